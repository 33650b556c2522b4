"""`engram verify`: checks that a user can repeat."""

from __future__ import annotations

from typing import Annotated

import typer

from engram.cli.output import print_json, stderr, stdout

verify = typer.Typer(help="Checks that anybody can repeat.", no_args_is_help=True)


@verify.callback()
def _verify() -> None:
    """Checks that anybody can repeat."""


@verify.command()
def isolation(
    methods: Annotated[list[str] | None, typer.Argument(help="Methods; all of them unless given.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train with and without evaluation; exit 1 if a single bit of the weights differs."""
    from engram.cli.options import start_computing

    start_computing(None, "cpu")
    from engram.engine.isolation import MODELS, check_isolation
    from engram.methods import METHODS

    names = list(methods or ())
    for name in names:
        METHODS[name]
    if not names:
        usable, broken = METHODS.loaded()
        names = list(usable)
        for line in broken:
            stderr.print(f"left out: {line}", markup=False, soft_wrap=True)
    found = []
    with stderr.status("training with and without evaluation") as status:
        for name in names:
            for model in MODELS:
                status.update(f"{name}, {model}")
                found.append(check_isolation(name, model))
                if not json:
                    last = found[-1]
                    verdict = "same" if last.holds else "DIFFERENT"
                    stdout.print(
                        f"{name:12} {model:30} {last.updates} updates  watched {last.watched[:16]}  "
                        f"unwatched {last.unwatched[:16]}  {verdict}",
                        soft_wrap=True,
                    )
    if json:
        print_json(
            {
                "holds": all(check.holds for check in found),
                "checks": [
                    {
                        "method": check.method,
                        "model": check.model,
                        "updates": check.updates,
                        "watched": check.watched,
                        "unwatched": check.unwatched,
                        "holds": check.holds,
                    }
                    for check in found
                ],
            }
        )
    if not all(check.holds for check in found):
        raise typer.Exit(1)
