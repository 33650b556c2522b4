"""What a scenario is: a value. Nothing is loaded to describe, compare, hash, print or pickle one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from engram.core.errors import InputError
from engram.core.schema import Since
from engram.core.values import Heads


@dataclass(frozen=True, slots=True)
class Source:
    """Some classes of a data set, in this order.

    Attributes:
        dataset: Its name.
        classes: The labels of the classes.
        unused: How many of the first training samples are left out: some papers reserve them for validation
            and never use them.
    """

    dataset: str
    classes: tuple[int, ...]
    unused: Annotated[int, Since("2")] = 0

    def __post_init__(self) -> None:
        if self.unused < 0:
            raise InputError(f"unused samples of {self.dataset} must be at least 0, got {self.unused}")


@dataclass(frozen=True, slots=True)
class Pad:
    """Adds a border of black pixels on every side."""

    pixels: int
    kind: Literal["pad"] = "pad"


@dataclass(frozen=True, slots=True)
class Grey:
    """Turns colour into one channel of brightness (ITU-R 601 luma); grey images stay as they are."""

    kind: Literal["grey"] = "grey"


@dataclass(frozen=True, slots=True)
class Colour:
    """Repeats a grey channel three times; colour images stay as they are."""

    kind: Literal["colour"] = "colour"


@dataclass(frozen=True, slots=True)
class Resize:
    """Scales images to `size` by `size` pixels, bilinear with antialiasing."""

    size: int
    kind: Literal["resize"] = "resize"


@dataclass(frozen=True, slots=True)
class Permute:
    """Puts all pixels, channels included, in the order that this seed gives (NumPy's RandomState)."""

    seed: int
    kind: Literal["permute"] = "permute"


@dataclass(frozen=True, slots=True)
class Rotate:
    """Turns images counter-clockwise about their centre, nearest neighbour, black outside."""

    degrees: float
    kind: Literal["rotate"] = "rotate"


@dataclass(frozen=True, slots=True)
class Normalise:
    """The last step: pixel values 0..255 become (value / 255 − mean) / std, channel by channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    kind: Literal["normalise"] = "normalise"


Transform = Annotated[
    Pad | Grey | Colour | Resize | Permute | Rotate | Normalise, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class Task:
    """One task: whose samples, changed how, answered with which output units.

    Attributes:
        source: The data set and its classes.
        units: The output unit that stands for each class of the source, in the source's order.
        transforms: What is done to the images, in this order.
        name: What people read.
    """

    source: Source
    units: tuple[int, ...]
    transforms: tuple[Transform, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if not self.units or len(self.units) != len(self.source.classes):
            raise InputError(
                f"task {self.name!r} has {len(self.source.classes)} classes and {len(self.units)} units: "
                "give every class one unit, and at least one class"
            )
        if min(self.units) < 0:
            raise InputError(
                f"task {self.name!r} has output unit {min(self.units)}: units are counted from 0"
            )


@dataclass(frozen=True, slots=True)
class TaskSetting:
    """Task identity is known in training and in evaluation: every task has its own head."""

    kind: Literal["task"] = "task"

    @property
    def shows_boundaries(self) -> bool:
        """Whether the learner is told that a new task begins: always, as it is told which task it is."""
        return True


@dataclass(frozen=True, slots=True)
class DomainSetting:
    """All tasks share the same output units; task identity is hidden."""

    boundaries: bool = True
    kind: Literal["domain"] = "domain"

    @property
    def shows_boundaries(self) -> bool:
        """Whether the learner is told that a new task begins."""
        return self.boundaries


@dataclass(frozen=True, slots=True)
class ClassSetting:
    """Tasks bring new classes, and the answer is one of all classes; task identity is hidden.

    Attributes:
        classes_known: Whether all classes compete from the start; else only those seen so far do, in the
            loss.
        mask_evaluation: Whether classes not yet seen are also kept out of the answers (the code of Hsu et al.
            2018 lets them win).
        boundaries: Whether the learner is told that a new task begins.
    """

    classes_known: bool = False
    mask_evaluation: bool = True
    boundaries: bool = True
    kind: Literal["class"] = "class"

    @property
    def shows_boundaries(self) -> bool:
        """Whether the learner is told that a new task begins."""
        return self.boundaries


Setting = Annotated[TaskSetting | DomainSetting | ClassSetting, Field(discriminator="kind")]
SettingName = Literal["task", "domain", "class"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A stream of tasks and what may be known of it.

    Attributes:
        name: What people read.
        tasks: The tasks, which are also what is evaluated.
        setting: What learner and evaluator may know.
        phases: Which tasks are learned together, in this order (default: each alone, one after the other).
        passes: How often each sample is shown: 1 for an online stream, None where the experiment decides.
        held_out: The share of each class's training samples that is not learned but kept for validation.
    """

    name: str
    tasks: tuple[Task, ...]
    setting: Setting
    phases: tuple[tuple[int, ...], ...] = ()
    passes: int | None = None
    held_out: Annotated[float, Since("2")] = 0.0

    def __repr__(self) -> str:
        phases = "" if len(self.phases) == len(self.tasks) else f", {len(self.phases)} phases"
        passes = "" if self.passes is None else f", {self.passes} passes" if self.passes > 1 else ", online"
        hidden = "" if self.setting.shows_boundaries else ", boundaries hidden"
        return (
            f"Scenario({self.name!r}, {self.setting.kind} setting, {len(self.tasks)} tasks, "
            f"{self.n_units} output units{phases}{passes}{hidden})"
        )

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise InputError(
                f"held_out of scenario {self.name!r} must be at least 0 and below 1, got {self.held_out:g}"
            )
        if not self.tasks:
            raise InputError(f"scenario {self.name!r} has no tasks: it needs at least one")
        if not self.phases:
            object.__setattr__(self, "phases", tuple((i,) for i in range(len(self.tasks))))
        if not all(self.phases):
            raise InputError(f"scenario {self.name!r} has an empty phase: name the tasks learned in it")
        unknown = [task for phase in self.phases for task in phase if not 0 <= task < len(self.tasks)]
        if unknown:
            raise InputError(
                f"scenario {self.name!r} has no task {unknown[0]}: phases may name 0 to {len(self.tasks) - 1}"
            )
        if self.passes is not None and self.passes < 1:
            raise InputError(f"passes of scenario {self.name!r} must be at least 1, got {self.passes}")

    @property
    def n_units(self) -> int:
        """How many output units the network needs."""
        return 1 + max(unit for task in self.tasks for unit in task.units)

    @property
    def classes_seen(self) -> tuple[int, ...]:
        """How many different output units are in use after each phase."""
        seen: set[int] = set()
        counts = []
        for phase in self.phases:
            seen.update(unit for task in phase for unit in self.tasks[task].units)
            counts.append(len(seen))
        return tuple(counts)

    def heads(self, phase: int) -> Heads:
        """The units that compete in each head while `phase` is learned."""
        if isinstance(self.setting, TaskSetting):
            return tuple(tuple(sorted(set(task.units))) for task in self.tasks)
        if isinstance(self.setting, ClassSetting) and not self.setting.classes_known:
            learned = [task for tasks in self.phases[: phase + 1] for task in tasks]
            return (tuple(sorted({unit for task in learned for unit in self.tasks[task].units})),)
        return (tuple(range(self.n_units)),)

    def answers(self, phase: int) -> tuple[tuple[int, ...], ...]:
        """For each task, the units among which its samples are classified during `phase`."""
        if isinstance(self.setting, TaskSetting):
            return self.heads(phase)
        free = isinstance(self.setting, ClassSetting) and not self.setting.mask_evaluation
        units = tuple(range(self.n_units)) if free else self.heads(phase)[0]
        return (units,) * len(self.tasks)
