"""The explanations tell the truth: their arithmetic gives what the functions give."""

import re

import pytest

from engram.core.errors import InputError
from engram.metrics.definitions import DEFINITIONS, Definition, compare, find, names
from engram.metrics.definitions import worked_curve as curve_of_the_examples
from engram.metrics.summary import summarise


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_working_is_arithmetic_that_gives_the_value(definition: Definition) -> None:
    example = definition.example()
    arithmetic = example.working.replace("−", "-").replace("·", "*")
    assert re.fullmatch(r"[\d\s.()+*/-]+", arithmetic)
    assert eval(arithmetic) == pytest.approx(example.value, abs=1e-6)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.name)
def test_a_tooltip_is_one_line(definition: Definition) -> None:
    assert definition.short().startswith(definition.name)
    assert "\n" not in definition.short()


def test_every_metric_of_a_summary_is_explained() -> None:
    result = summarise(curve_of_the_examples(), classes_seen=[2, 4, 6], windows=[7, 10, 100, None])
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
    comparison = compare("forgetting")
    assert comparison is not None
    assert [round(v.value, 4) for v in comparison.variants[:5]] == [0.13, 0.1367, 0.1433, 0.1075, 0.0975]
    assert compare("WF") is None
