"""`engram verify`: checks that a user can repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.arrange import arranged
from engram.cli.options import Data, Plugin, load_own
from engram.cli.output import name_broken, print_json, stderr, stdout
from engram.cli.verbs import VerbCommand, group_of_verbs
from engram.cli.verify_runs import runs
from engram.core.jsons import JsonObject

if TYPE_CHECKING:
    from engram.engine.isolation import Isolation


def isolation(
    methods: Annotated[list[str] | None, typer.Argument(help="Methods to check.", show_default="all")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A network: see `engram list models`; or FILE:FACTORY.  [default: an MLP and a ResNet]"
        ),
    ] = None,
    scenario: Annotated[str, typer.Option(help="A benchmark: see `engram list scenarios`.")] = "split-digits",
    plugin: Plugin = None,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train with and without evaluation; exit with 1 if a single bit of the weights differs."""
    from engram.cli.options import check_data, start_computing

    check_data(data)
    start_computing(None, "cpu")
    load_own(plugin)
    from engram.engine.isolation import MODELS, check_isolation
    from engram.models.from_file import check_model_name

    checks = []
    names = methods_to_check(methods or [])
    if model is not None:
        check_model_name(model)
    models = [*MODELS] if model is None else [model]
    if not json:
        _print_row("method", "model", "watched", "unwatched", "weights")
    with stderr.status("training with and without evaluation") as status:
        for name in names:
            for network in models:
                status.update(f"{name}, {network}")
                checks.append(check_isolation(name, network, scenario=scenario, data=data))
                if not json:
                    _print_check(checks[-1])
    holds = all(check.holds for check in checks)
    if json:
        print_json({"holds": holds, "checks": [_as_json(check) for check in checks]})
    if not holds:
        raise typer.Exit(1)


def methods_to_check(names: list[str]) -> list[str]:
    """The methods of these names; without names, all that can be used.

    Raises:
        InputError: There is no method of such a name.

    Example:
        >>> methods_to_check(["ewc"])
        ['ewc']
    """
    from engram.methods import METHODS

    if names:
        for name in names:
            METHODS[name]
        return names
    usable, broken = METHODS.loaded()
    name_broken(broken)
    return list(usable)


def _print_row(method: str, model: str, *cells: str) -> None:
    stdout.print(
        " ".join([f"{method:17}", f"{model:29}", *(f"{cell:9}" for cell in cells)]).rstrip(), soft_wrap=True
    )


def _print_check(check: Isolation) -> None:
    verdict = "same" if check.holds else "DIFFERENT"
    _print_row(check.method, check.model, check.watched[:8], check.unwatched[:8], verdict)


def _as_json(check: Isolation) -> JsonObject:
    return {
        "method": check.method,
        "model": check.model,
        "updates": check.updates,
        "watched": check.watched,
        "unwatched": check.unwatched,
        "holds": check.holds,
    }


verify = group_of_verbs("verify", "Checks that anybody can repeat.")


@verify.callback()
def _verify() -> None:
    """Checks that anybody can repeat."""


verify.command(cls=VerbCommand)(arranged(isolation))
verify.command(cls=VerbCommand)(arranged(runs))
