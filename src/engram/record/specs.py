"""The parts of an experiment that say when it is evaluated, what it starts from, and what differs by phase.

Every option is declared here once, at its field: see `engram.core.schema`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from engram.core.errors import InputError
from engram.core.schema import INTERNAL, Flag, Since, ZeroMeansAll
from engram.record.two_level import canonical, check_levels


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """How what was learned is tried on the next task, at the end of every task but the last.

    As in Chen et al. (2023): a few samples of each class of the next task train a new linear head on fixed
    features, and, if asked, all weights of a copy of the network; feature diversity is measured on the same
    features.

    Attributes:
        shots: Samples per class; several numbers are tried.
        lr: Learning rate of the linear head.
        epochs: Passes over the few samples.
        batch_size: Samples in an update, at most.
        tuned_lrs: Learning rates with which all weights are trained; empty to skip that.
        tuned_epochs: After how many passes those networks are evaluated.
    """

    shots: tuple[int, ...] = (5, 10, 20, 100)
    lr: float = 0.01
    epochs: int = 100
    batch_size: int = 50
    tuned_lrs: tuple[float, ...] = ()
    tuned_epochs: tuple[int, ...] = (10, 50, 100)

    def __post_init__(self) -> None:
        counted = (*self.shots, self.epochs, self.batch_size, *self.tuned_epochs)
        if not self.shots or not self.tuned_epochs or min(counted) < 1:
            raise InputError(
                "shots, epochs and batch size of probes must be at least 1, got "
                f"{','.join(map(str, self.shots)) or 'no shots'}, {self.epochs} and {self.batch_size}"
            )
        for rate in (self.lr, *self.tuned_lrs):
            if not rate > 0:
                raise InputError(f"lr of probes must be above 0, got {rate}")


@dataclass(frozen=True, slots=True)
class Start:
    """The weights that a run starts from. Their content is part of its identity, their place is not.

    Attributes:
        sha256: The hash of the file's content.
        file: Where the file is on this machine; neither compared nor hashed nor written.

    Example:
        >>> Start("12ab", Path("here.pt")) == Start("12ab", Path("there.pt"))
        True
    """

    sha256: str
    file: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """Overrides for one phase of a stream.

    Attributes:
        lr: The learning rate; None for the experiment's.
        updates: The number of updates; None for as many as the experiment says.
        stop: End the phase after this update, as if the others were still to come: schedules and methods
            that depend on the number of updates are told that of the whole phase. None to learn to the end.
    """

    lr: float | None = None
    updates: int | None = None
    stop: Annotated[int | None, Since("3")] = None

    def __post_init__(self) -> None:
        for name, value in (("updates", self.updates), ("stop", self.stop)):
            if value is not None and value < 1:
                raise InputError(f"{name} of a phase must be at least 1, got {value}")


@dataclass(frozen=True, slots=True)
class EvaluationSpec:
    """When and on what a run is evaluated.

    Attributes:
        every: Evaluate after every N updates.
        per_epoch: Count updates from 0 in every epoch (the code of De Lange et al. 2023).
        subset: Samples of each task; None for all.
        redraw: Draw a new subset for every evaluation (the code of De Lange et al. 2023).
        tasks: The tasks `seen` so far, or `all`.
        on: `test` data, `train`ing data, or the `validation` data that the scenario holds out.
        before: Also before the first update.
        full_ends: Also on everything at the end of each task.
        losses: Record the loss of each task as well.
        answers: Record what was answered as well. The experiment stays the same: a run that was made without
            is made once more, with the same result.
        gradients: Record the plasticity and stability parts of each evaluated update: the norms of their
            gradients, and their losses.
        plasticity: Record dormant units and the effective rank of the features at the end of each task.
        transfer: Try what was learned on the next task, at the end of each task.
        balances: At the very end, record the accuracy of merged networks over their balance (IMM).
        upstream: A data set that the start was pretrained on: how much of it is remembered.
        points: Evaluate each phase about this many times, instead of `every` (Pfülb & Gepperth 2019: 90);
            0 to use `every`.
        samples: `two-level:N` to ask N of the samples at every evaluation, and all of them at some; None to
            ask all every time. `two-level` is `two-level:200`.
        skips: Leave out evaluations, except at task ends, while all evaluator processes are busy: the period
            follows their speed, as De Lange et al. (2023, section 3.3) describe. Such a run is another
            experiment, because it is evaluated after fewer updates.
    """

    every: Annotated[int, Field(ge=1, description="Evaluate after every N updates")] = 1
    per_epoch: Annotated[bool, Field(description="Count --every within each epoch")] = False
    subset: Annotated[
        int | None,
        ZeroMeansAll(),
        Field(
            ge=1,
            description="Test samples per task in each evaluation; 0 for all (default: the benchmark's, "
            "usually 1000)",
        ),
    ] = 1000
    redraw: Annotated[bool, Field(description="Draw a new subset for every evaluation")] = False
    tasks: Annotated[Literal["seen", "all"], Field(description="Evaluate the tasks seen so far, or all")] = (
        "seen"
    )
    on: Annotated[
        Literal["test", "train", "validation"], Field(description="Evaluate on this part of the data")
    ] = "test"
    before: Annotated[
        bool, Flag("--before/--no-before"), Field(description="Evaluate before the first update as well")
    ] = True
    full_ends: Annotated[bool, Field(description="Also evaluate all samples at the end of each task")] = False
    losses: Annotated[bool, Field(description="Record losses as well")] = False
    gradients: Annotated[bool, Field(description="Record stability and plasticity gradient norms")] = False
    answers: Annotated[bool, Field(description="Record what was answered as well")] = field(
        default=False, compare=False
    )
    plasticity: Annotated[
        bool, Since("3"), Field(description="Record dormant units and effective rank at task ends")
    ] = False
    transfer: Annotated[TransferSpec | None, Since("2"), INTERNAL] = None
    balances: Annotated[bool, Since("2"), INTERNAL] = False
    upstream: Annotated[str, Since("2"), INTERNAL] = ""
    points: Annotated[int, Since("2"), INTERNAL] = 0
    skips: Annotated[bool, Since("3"), INTERNAL] = False
    samples: Annotated[
        str | None,
        Since("4"),
        Field(
            description="two-level[:N]: evaluate N samples of each task (default: 200) every time, and all "
            "of them where it matters"
        ),
    ] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", canonical(self.samples))
        check_levels(
            self.samples,
            subset=self.subset,
            redraw=self.redraw,
            full_ends=self.full_ends,
            per_epoch=self.per_epoch,
        )

    def every_in(self, steps: int) -> int:
        """The number of updates between two evaluations in a phase of `steps` updates.

        Example:
            >>> EvaluationSpec(every=7).every_in(3000), EvaluationSpec(points=90).every_in(3000)
            (7, 33)
        """
        return max(1, steps // self.points) if self.points else self.every
