"""Where and how experiments are run: one value that is passed on unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engram.core.errors import InputError, unknown_name
from engram.record.checkpoints import checkpoint_period
from engram.record.half_checked import Precision, check_precision
from engram.record.parallel import ParallelPlan

SAVES: Final = ("final", "tasks")
"""Which weights a run may keep: those at its end, or those after every task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Everything about running that does not change what is computed.

    Attributes:
        out: The folder that runs are written to, each in a subfolder named by its experiment's id; None keeps
            them in memory.
        data: The folder that is searched for data sets first.
        device: Where to compute: `cpu`, `cuda` or `mps`.
        plugin: A Python file that registers methods, models and so on; worker processes load it as well.
        precision: `half-checked` evaluates in half precision and asks answers in doubt again, to the same
            bits; `auto` does so where it is faster.
        parallel: `auto` evaluates in evaluator processes beside the learner where that is faster, a number
            in that many, `off` in line; the bits are the same. Only experiments that say so `skip`
            evaluations.
        strict: Whether to stop a method that reads or does what it must not.
        jobs: Parallel runs (default: one per core).
        checkpoint_seconds: The most work that may be lost, in seconds; infinite for no checkpoints (default:
            30, or as many as are needed for checkpoints to take at most 3 % of the time).
        timeout: End a run that completes no update for this many seconds; its process is ended, so it needs
            one of its own (default: never).
        threads: The threads that compute in a process of its own (default: one).
        save_weights: Which weights a run keeps in its folder: `final`, or those after all `tasks` (default:
            none).
        keep_checkpoints: Which checkpoints a run keeps in its folder, for `engram zoom`: those at the end of
            all `tasks`, or also every N updates (default: none).

    Example:
        >>> Where(jobs=0)
        Traceback (most recent call last):
        engram.core.errors.InputError: jobs must be at least 1, got 0
    """

    out: Path | None = Path("runs")
    data: Path | None = None
    device: str = "cpu"
    plugin: Path | None = None
    precision: Precision = "full"
    parallel: str = "off"
    strict: bool = False
    jobs: int | None = None
    checkpoint_seconds: float | None = None
    timeout: float | None = None
    threads: int | None = None
    save_weights: str | None = None
    keep_checkpoints: str | int | None = None

    def __post_init__(self) -> None:
        check_precision(self.precision)
        if ParallelPlan.of(self.parallel).evaluators and self.device != "cpu":
            raise InputError(
                f"evaluator processes need the device cpu, got {self.device}: leave parallel out"
            )
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"jobs must be at least 1, got {self.jobs}")
        if self.save_weights not in (None, *SAVES):
            raise unknown_name("weights to save", str(self.save_weights), SAVES)
        if self.save_weights is not None and self.out is None:
            raise InputError("weights are kept in the folder of a run: name one with out=…")
        if self.keep_checkpoints is not None:
            checkpoint_period(self.keep_checkpoints)
            if self.out is None:
                raise InputError("checkpoints are kept in the folder of a run: name one with out=…")
        for name in ("checkpoint_seconds", "timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise InputError(f"{name} must be above 0, got {seconds:g}")

    @property
    def folder(self) -> Path:
        """The folder of runs.

        Raises:
            InputError: Runs are kept in memory.
        """
        if self.out is None:
            raise InputError("runs need a folder: name one with out=…")
        return self.out
