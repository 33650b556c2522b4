"""The explanations tell the truth, and what cannot be a metric is refused."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engram
from engram.core.errors import InputError
from engram.metrics import METRICS, metric
from engram.metrics.arrays import Matrix
from engram.metrics.docstrings import read_definition
from engram.metrics.examples import worked_curve, worked_example
from engram.metrics.families import same_name
from engram.metrics.registry import NEEDS, Metric, all_metrics, computed, find, names
from engram.metrics.summary import missing, summarise

by_name = pytest.mark.parametrize("registered", all_metrics(), ids=lambda metric: metric.name)


@by_name
def test_working_is_arithmetic_that_gives_the_value(registered: Metric) -> None:
    example = worked_example(registered)
    assert example is not None
    arithmetic = example.working.replace("−", "-").replace("·", "*")
    assert re.fullmatch(r"[\d\s.()+*/-]+", arithmetic)
    assert eval(arithmetic) == pytest.approx(example.value, abs=1e-6)


@by_name
def test_a_tooltip_is_one_line(registered: Metric) -> None:
    assert registered.short().startswith(registered.name)
    assert "\n" not in registered.short()


@by_name
def test_every_metric_of_ours_says_what_it_is(registered: Metric) -> None:
    definition = registered.definition
    for part in (definition.meaning, definition.formula, definition.divisor, definition.undefined):
        assert part and "\n" not in part
    assert registered.source
    assert not re.search(r"\b00[0-4]\b", f"{definition} {registered.source}")


def test_every_metric_of_a_summary_is_explained() -> None:
    result = summarise(worked_curve(), classes_seen=[2, 4, 6], windows=[7, 10, 100, None])
    for name in {*result.final, *result.why}:
        assert len(find(name)) == 1, name


@pytest.mark.parametrize("name", names())
def test_every_name_finds_something(name: str) -> None:
    assert find(name)
    assert find(name.upper())


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    with pytest.raises(InputError, match="unknown metric 'WC-AC'; did you mean 'WC-ACC'"):
        find("WC-AC")


def test_one_name_has_many_numbers() -> None:
    comparison = same_name("forgetting")
    assert comparison is not None
    assert [round(v.value, 4) for v in comparison.variants[:5]] == [0.13, 0.1367, 0.1433, 0.1075, 0.0975]
    assert same_name("WF") is None
    assert same_name("Backward-Transfer") is not None


def test_which_metrics_need_task_ends_alone() -> None:
    enough = {name for name, metric in computed().items() if metric.task_ends_suffice}
    matrix = {"ACC", "AA", "FORG", "AF", "ACC-pooled", "RAA", "RAF", "AvgFgt", "AvgAcc", "AvgLAcc", "BWT"}
    assert enough == matrix


def test_only_what_is_asked_for_is_computed() -> None:
    result = summarise(worked_curve(), only=["min-ACC", "WF100", "RAA"])
    assert list(result.final) == ["min-ACC", "WF100"] and list(result.why) == ["RAA"]
    whole = summarise(worked_curve())
    assert result.final.items() <= whole.final.items()
    assert not missing(whole.final, whole.why)
    assert missing({}, whole.why) == tuple(name for name in whole.final if name not in whole.why)


def test_the_decorator_is_at_the_front_door() -> None:
    assert engram.metric is metric
    assert {"METRICS", "summarise", "matrix"} <= set(dir(engram.metrics))


def one(acc: Matrix) -> float:
    """One."""
    return 1.0


REFUSED: dict[str, tuple[dict[str, Any], Callable[..., Any], str]] = {
    "ours": ({"name": "ACC"}, one, "metric 'ACC' is engram's own: choose another name"),
    "reads like": ({"name": "acc"}, one, r"'acc' in test_registry.py, line \d+ .* read as ACC"),
    "windowed": ({"name": "WF25"}, one, "read as WF"),
    "no name": ({"name": " "}, one, "has no name"),
    "need": ({"needs": "bit"}, one, "unknown need of metric 'mine' 'bit'; did you mean 'bits'"),
    "arguments": (
        {"needs": "classes"},
        one,
        r"'mine' in test_registry.py, line \d+ cannot be called with matrix, classes: its "
        r"arguments are \(acc",
    ),
    "named by": ({"named_by": "window"}, one, "named_by='window'"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_a_metric_is_refused(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, function, message = REFUSED[case]
    # The name of this module is not engram's, so these are a user's.
    assert not function.__module__.startswith("engram")
    before = list(METRICS)
    with pytest.raises(InputError, match=message) as error:
        metric(**{"name": "mine", "higher_is_better": True, **arguments})(function)
    assert "\n" not in str(error.value)
    assert list(METRICS) == before


def test_a_docstring_is_a_definition() -> None:
    definition = read_definition(
        "First line\ngoes on.\n\nFormula: a\n    + b\nElsewhere: x\nElsewhere: y\n\nA note\nof two lines:\n\n"
        "- one\n  more\n- two\n\nArgs:\n    acc: Not shown.\n\n    Nor this.\n\nExample:\n    >>> 1\n    1"
    )
    assert definition.meaning == "First line goes on."
    assert definition.formula == "a + b"
    assert definition.elsewhere == ("x", "y")
    assert definition.notes == ("A note of two lines:", "- one more\n- two")
    assert read_definition("").meaning == ""


def test_every_need_of_a_history_can_be_given() -> None:
    needs = {need for metric in all_metrics() if metric.of_history for need in metric.needs}
    assert needs | {"bits"} <= set(NEEDS)
    assert np.isfinite([worked_example(metric).value for metric in all_metrics()]).all()  # type: ignore[union-attr]
