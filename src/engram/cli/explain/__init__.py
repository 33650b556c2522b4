"""`engram explain`: what a name means, whatever it is the name of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
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
    matrix: Annotated[
        Path | None,
        typer.Option(help="Accuracies as for `engram metrics`: what every tool would call by this name."),
    ] = None,
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explain a metric, method, scenario, model, setting, data set, card question or verdict."""
    from engram.cli.explain.metrics import explain_metrics, show_comparison
    from engram.core.errors import unknown_name

    load_own(plugin)
    if matrix is not None:
        _compare_definitions(name, matrix, as_json=json)
        return
    explanations, comparison = explain_metrics(name)
    explanations += _explanations(name, _kinds())
    # Only now, because these are slow to import.
    explanations = explanations or _explanations(name, _slow_kinds())
    if not explanations:
        lists = "scenarios, models, methods, metrics, datasets and optimizers"
        raise unknown_name("name", name, all_names(), listed_by="engram list KIND", lists=lists)
    if json:
        print_json({"explanations": [explanation.as_json() for explanation in explanations]})
        return
    for explanation in explanations:
        explanation.show()
    if comparison is not None:
        show_comparison(comparison)
    stdout.print()


def _compare_definitions(name: str, file: Path, *, as_json: bool) -> None:
    """Print one matrix under every definition of a name."""
    from engram.cli.explain.metrics import show_comparison
    from engram.core.errors import unknown_name
    from engram.core.folder import finite
    from engram.metrics.families import same_name, shared_names
    from engram.metrics.history import Curve
    from engram.metrics.tables import read_accuracies

    accuracies = read_accuracies(file)
    comparison = same_name(name, accuracies.matrix() if isinstance(accuracies, Curve) else accuracies)
    if comparison is None:
        raise unknown_name("name of several numbers", name, shared_names())
    if as_json:
        variants = [{"who": one.who, "how": one.how, "value": one.value} for one in comparison.variants]
        print_json(finite({"name": comparison.name, "variants": variants}))
    else:
        show_comparison(comparison)


_COMPOSED = ("slt-", "split:", "permuted:", "rotated:", "domains:")
"""How the names of scenarios begin that are made from their names."""


def _explanations(name: str, kinds: Sequence[Kind]) -> list[Explanation]:
    return [
        explain_it(name)
        for names, explain_it in kinds
        if name in names() or (names is scenario_names and name.startswith(_COMPOSED))
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
