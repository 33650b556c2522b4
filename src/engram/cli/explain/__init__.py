"""`engram explain`: what a name means, whatever it is the name of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.completion import completion, dataset_names, method_names, model_names, scenario_names
from engram.cli.options import Plugin, load_own
from engram.cli.output import print_json, stdout

if TYPE_CHECKING:
    from engram.cli.explain.value import Explanation

    Kind = tuple[Callable[[], Iterable[str]], Callable[[str], Explanation]]


def all_names() -> list[str]:
    """Every name that can be explained.

    Example:
        >>> {"ewc", "WC-ACC", "split-mnist", "mlp", "domain", "mnist", "causality"} <= set(all_names())
        True
    """
    from engram.cli.explain.metrics import metric_names

    return [*metric_names(), *(name for names, _ in [*_kinds(), *_slow_kinds()] for name in names())]


def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="A metric (WC-ACC, WF10, forgetting), a method, a scenario, a model, a setting, a data set, "
            "a word of statistics (interval), a question of the protocol card, an optimizer, or a verdict of "
            "engram reproduce.",
            autocompletion=completion(all_names),
        ),
    ],
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explain a metric, method, scenario, model, setting, data set, card question or verdict."""
    from engram.cli.explain.metrics import explain_metrics, show_comparison
    from engram.core.errors import unknown_name

    load_own(plugin)
    explanations, comparison = explain_metrics(name)
    explanations += _explanations(name, _kinds())
    # Only now, because these are slow to import.
    explanations = explanations or _explanations(name, _slow_kinds())
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


def _explanations(name: str, kinds: Sequence[Kind]) -> list[Explanation]:
    return [
        explain_it(name)
        for names, explain_it in kinds
        if name in names() or (names is scenario_names and name.startswith("slt-"))
    ]


def _kinds() -> list[Kind]:
    """The kinds of things besides metrics: their names, and what explains one."""
    from engram.cli.explain import things

    return [
        (method_names, things.explain_method),
        (scenario_names, things.explain_scenario),
        (model_names, things.explain_model),
        (things.setting_names, things.explain_setting),
        (dataset_names, things.explain_dataset),
        (things.term_names, things.explain_term),
    ]


def _slow_kinds() -> list[Kind]:
    from engram.cli.explain import things

    return [
        (things.card_questions, things.explain_question),
        (things.optimizer_names, things.explain_optimizer),
        (things.verdict_names, things.explain_verdict),
    ]
