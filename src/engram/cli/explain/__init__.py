"""`engram explain`: what a name means, whatever it is the name of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.arrange import dataset_names, method_names, model_names, scenario_names
from engram.cli.options import Plugin, load_own
from engram.cli.output import print_json, stdout

if TYPE_CHECKING:
    from engram.cli.explain.value import Explanation


def all_names() -> list[str]:
    """Every name that can be explained.

    Example:
        >>> {"ewc", "WC-ACC", "split-mnist", "mlp", "domain", "mnist", "causality"} <= set(all_names())
        True
    """
    from engram.cli.explain.metrics import metric_names

    return [*metric_names(), *(name for names, _ in _kinds() for name in names())]


def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="A metric (WC-ACC, WF10, forgetting), a method, a scenario, a model, a setting, a data set, "
            "or a question of the protocol card.",
        ),
    ],
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explain a metric, method, scenario, model, setting, data set or card question."""
    from engram.cli.explain.metrics import explain_metrics, show_comparison
    from engram.core.errors import unknown_name

    load_own(plugin)
    explanations, comparison = explain_metrics(name)
    *kinds, questions = _kinds()
    for names, explain_it in kinds:
        if name in names() or (names is scenario_names and name.startswith("slt-")):
            explanations.append(explain_it(name))
    # Only now: questions are slow to import.
    if not explanations and name in questions[0]():
        explanations.append(questions[1](name))
    if not explanations:
        raise unknown_name("name", name, all_names(), listed_by="engram list")
    if json:
        print_json({"explanations": [explanation.as_json() for explanation in explanations]})
        return
    for explanation in explanations:
        explanation.show()
    if comparison is not None:
        show_comparison(comparison)
    stdout.print()


def _kinds() -> list[tuple[Callable[[], Iterable[str]], Callable[[str], Explanation]]]:
    """The kinds of things besides metrics: their names, and what explains one."""
    from engram.cli.explain import things

    return [
        (method_names, things.explain_method),
        (scenario_names, things.explain_scenario),
        (model_names, things.explain_model),
        (things.setting_names, things.explain_setting),
        (dataset_names, things.explain_dataset),
        (things.card_questions, things.explain_question),
    ]
