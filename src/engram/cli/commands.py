"""A run as a command line, for schedulers that engram does not know."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.errors import InputError
from engram.core.jsons import Json

if TYPE_CHECKING:
    from engram.engine.where import Where
    from engram.protocols.sweep_file import Row
    from engram.record.experiment import Experiment


def command_of(planned: Experiment, row: Row, where: Where) -> str:
    """The `engram run` command that makes one run of a sweep, to the same bits and in the same folder.

    Args:
        planned: The experiment.
        row: Its options, as the sweep file has them.
        where: Where and how to run it.

    Raises:
        InputError: The options of `engram run` cannot express it.

    Example:
        >>> from engram.engine.where import Where
        >>> from engram.protocols.sweep_file import expand
        >>> plan = expand({"scenario": "split-digits", "method": "er", "lr": 0.1, "set": {"memory": 50}})
        >>> command_of(plan.experiments[0], plan.rows[0], Where())
        'engram run split-digits er --first-seed 0 --lr 0.1 --set memory=50 --threads 1 --out runs'
    """
    words = ["engram", "run", str(row.options["scenario"]), str(row.options["method"])]
    words += ["--first-seed", str(row.seed)]
    chosen: dict[str, Json] = {}
    pairs = [f"{name}={_text(value)}" for name, value in row.fields.items()]
    for name, value in row.options.items():
        if name in ("scenario", "method"):
            continue
        option = _option(name)
        if option is None:
            pairs.append(f"model.{name}={_text(value)}")
        elif not isinstance(value, bool):
            words += [option, _text(value)]
            chosen[name] = _text(value)
        elif value:
            words.append(option)
            chosen[name] = True
    for pair in pairs:
        words += ["--set", pair]
    _check(planned, row, chosen, pairs, where.parallel)
    return shlex.join([*words, *_places(where)])


def _option(name: str) -> str | None:
    """The option of `engram run` for an option of a sweep; None for one of a user's network."""
    from engram.engine.options import all_options

    declared = all_options().get(name)
    if declared is None:
        return None
    return declared.flag or f"--{name.replace('_', '-')}"


def _text(value: Json) -> str:
    """A value as it is typed."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(Path(value).absolute()) if isinstance(value, Path) else str(value)


def _check(planned: Experiment, row: Row, chosen: dict[str, Json], pairs: list[str], parallel: str) -> None:
    """Check that the command gives the same experiment."""
    from engram.cli.run_options import RunOptions

    options = RunOptions.of(**chosen, set_=pairs, first_seed=row.seed, parallel=parallel)
    [typed] = options.experiments(str(row.options["scenario"]), str(row.options["method"]))
    if typed.id != planned.id:
        raise InputError(
            f"{planned.label}, seed {planned.seed}, cannot be written as one `engram run` command: "
            "run the sweep file itself, with --on serial in every job"
        )


def _places(where: Where) -> list[str]:
    """The options that say where and how to run; one thread, so that the bits are those of a sweep."""
    words = ["--threads", "1", "--out", str(where.folder)]
    if where.plugin is not None:
        words += ["--plugin", str(where.plugin)]
    if where.data is not None:
        words += ["--data", str(where.data)]
    for name, word, usual in (
        ("--device", where.device, ("cpu",)),
        ("--precision", where.precision, ("full",)),
        ("--parallel", where.parallel, ("auto", "off")),
    ):
        if word not in usual:
            words += [name, word]
    if where.strict:
        words.append("--strict")
    for name, seconds in (("--checkpoint-every", where.checkpoint_seconds), ("--timeout", where.timeout)):
        if seconds is not None:
            words += [name, f"{seconds:g}"]
    for name, kept in (
        ("--save-weights", where.save_weights),
        ("--keep-checkpoints", where.keep_checkpoints),
    ):
        if kept is not None:
            words += [name, str(kept)]
    return words
