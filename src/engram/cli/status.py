"""`engram status`: what is under way in a folder of runs, asked from any terminal on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Json
from engram.cli.output import print_json, stdout
from engram.core.folder import has_checkpoint
from engram.core.words import counted, duration

if TYPE_CHECKING:
    from engram.record.run import Run
    from engram.results.status import Active, FolderStatus

SHOWN = 20
"""At most so many runs of a kind are listed; `--json` has all."""


def status(
    folder: Annotated[Path, typer.Argument(help="The folder that runs are written to.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Say which runs of FOLDER are done, under way, failed and left, and how long the rest takes."""
    from engram.results.status import folder_status

    state = folder_status(folder)
    if json:
        print_json(state.as_json())
    else:
        print_status(state)


def print_status(state: FolderStatus) -> None:
    """Print the state of a folder."""
    ended = (
        f"{state.done:,} done, {len(state.running)} under way, {len(state.failed)} failed, {state.left} left"
    )
    _say(f"{counted(state.total, 'run')} in {state.folder}: {ended}")
    if state.left or state.running:
        left = "unknown" if state.seconds_left is None else f"about {duration(state.seconds_left)}"
        _say(f"time left: {left}")
    if state.left and not state.running:
        _say("no process is working on it: run the same command again to go on")
    _list("under way", [_of_active(active) for active in state.running])
    _list("failed", [f"{_name(run)}: {run.failure.reason}" for run in state.failed if run.failure])
    _list("not finished", [_of_unfinished(run) for run in state.unfinished])


def _of_active(active: Active) -> str:
    line = f"{_name(active.run)}: {active.holder}"
    if active.step is not None and active.steps is not None and active.learning is not None:
        share = active.step / max(1, active.steps)
        updates = f"{active.step:,} of {counted(active.steps, 'update')}"
        line += f"; {updates} ({share:.0%}), task {active.learning + 1}"
        line += f", evaluations {counted(active.lag, 'update')} behind" if active.lag else ""
    return line if active.seconds_left is None else f"{line}, {duration(active.seconds_left)} left"


def _of_unfinished(run: Run) -> str:
    resumes = run.folder is not None and has_checkpoint(run.folder)
    begins = "resumes from its checkpoint" if resumes else "starts from the beginning"
    return f"{_name(run)}: interrupted or killed; {begins}"


def _name(run: Run) -> str:
    return run.label if run.seed is None else f"{run.label}, seed {run.seed}"


def _list(title: str, lines: list[str]) -> None:
    if not lines:
        return
    _say(f"{title}:")
    for line in lines[:SHOWN]:
        _say(f"  {line}")
    if len(lines) > SHOWN:
        _say(f"  and {len(lines) - SHOWN:,} more")


def _say(line: str) -> None:
    stdout.print(line, soft_wrap=True, markup=False)
