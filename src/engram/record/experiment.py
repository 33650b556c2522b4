"""What an experiment is: a value whose hash is its identity."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engram.core.errors import InputError
from engram.core.registry import Registry
from engram.core.values import OptimizerSpec
from engram.methods import METHODS
from engram.models import MODELS
from engram.models.spec import ModelSpec
from engram.scenarios.values import Scenario

FORMAT = 1

# Fields that came later are written only where they say something: what they do not change keeps its name.
_LATER_FIELDS = (
    ("augment",),
    ("by_phase",),
    ("start",),
    ("evaluation", "transfer"),
    ("evaluation", "upstream"),
    ("evaluation", "balances"),
    ("evaluation", "points"),
    ("model", "zero_head"),
    ("scenario", "held_out"),
)
_LATER_SETTINGS = {"dgr": ("sure",)}


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """How what was learned is tried on the next task, at the end of every task but the last (003).

    A few samples of each class of the next task train a new linear head on fixed features, and, if asked,
    all weights of a copy of the network; feature diversity is measured on the same features.

    Attributes:
        shots: Samples of each class; several numbers are tried.
        lr: Learning rate of the linear head.
        epochs: Passes over the few samples.
        batch_size: Samples in an update, at most.
        tuned_lrs: Learning rates with which all weights are trained; none leaves that out.
        tuned_epochs: After how many passes those networks are asked.
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
                f"shots {','.join(map(str, self.shots)) or 'none'}, epochs {self.epochs} and batch size "
                f"{self.batch_size} cannot be used to probe: give whole numbers above 0"
            )
        for rate in (self.lr, *self.tuned_lrs):
            if not rate > 0:
                raise InputError(f"lr={rate} cannot be used to probe: give a learning rate above 0")


@dataclass(frozen=True, slots=True)
class Start:
    """The weights that a run starts from: what they are says who it is, where they lie does not.

    Attributes:
        sha256: The hash of the file's content.
        file: Where the file lies on this machine; no part of what is compared, hashed or written down.

    Example:
        >>> Start("12ab", Path("here.pt")) == Start("12ab", Path("there.pt"))
        True
    """

    sha256: str
    file: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """What is otherwise in one phase of a stream.

    Attributes:
        lr: The learning rate; None for the experiment's.
        updates: The number of updates; None for as many as the experiment says.
    """

    lr: float | None = None
    updates: int | None = None

    def __post_init__(self) -> None:
        if self.updates is not None and self.updates < 1:
            raise InputError(f"updates={self.updates} of a phase cannot be used: give 1 or more")


@dataclass(frozen=True, slots=True)
class EvaluationSpec:
    """When and on what a run is evaluated.

    Attributes:
        every: After every so many updates.
        per_epoch: Count updates anew in every epoch (000's code).
        subset: Samples of each task; None for all.
        redraw: Draw the subset anew for every evaluation (000's code).
        tasks: The tasks `seen` so far, or `all`.
        on: `test` data, `train`ing data, or the `validation` data that the scenario holds out.
        before: Also before the first update.
        full_ends: Also on everything at the end of each task.
        losses: Record the loss of each task as well.
        gradients: Record the plasticity and stability parts of each evaluated update: the norms of their
            gradients, and their losses.
        transfer: Try what was learned on the next task, at the end of each task.
        balances: At the very end, record the accuracy of merged networks over their balance (IMM).
        points: About how often each phase is evaluated, whatever its length and `every` (004: 90); 0 for as
            often as `every` says.
    """

    every: int = 1
    per_epoch: bool = False
    subset: int | None = 1000
    redraw: bool = False
    tasks: Literal["seen", "all"] = "seen"
    on: Literal["test", "train", "validation"] = "test"
    before: bool = True
    full_ends: bool = False
    losses: bool = False
    gradients: bool = False
    transfer: TransferSpec | None = None
    balances: bool = False
    upstream: str = ""
    points: int = 0

    def every_in(self, steps: int) -> int:
        """After every so many updates of a phase that has so many.

        Example:
            >>> EvaluationSpec(every=7).every_in(3000), EvaluationSpec(points=90).every_in(3000)
            (7, 33)
        """
        return max(1, steps // self.points) if self.points else self.every


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything that decides what a run computes, and nothing else.

    Where data are, the number of threads and the device are not part of it.

    Attributes:
        scenario: The stream of tasks.
        method: A method's name.
        settings: All of the method's hyper-parameters.
        model: The network.
        optimizer: How it is updated.
        batch_size: New samples in each update.
        epochs: Passes over each task's data (an online scenario has one).
        updates: Updates of each task, where they are counted instead of passes; tasks that are joined get the
            sum of theirs.
        evaluation: When and on what it is evaluated.
        augment: Whether images are cropped and mirrored at random whenever they are learned.
        budget_bytes: What the method may keep beyond the weights; None for as much as it likes.
        by_phase: What is otherwise in the first phases, one after the other; later ones are as said above.
        start: The weights that it starts from; None for those of the model.
        seed: Initial weights, order of data, the method's and the evaluation's randomness.

    Example:
        >>> from engram.scenarios import split
        >>> one = Experiment(split("digits", setting="class"), "finetune")
        >>> one.id == replace(one, seed=0).id, one.id == replace(one, seed=1).id
        (True, False)
    """

    scenario: Scenario
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    model: ModelSpec = field(default_factory=ModelSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    batch_size: int = 32
    epochs: int = 1
    updates: int | None = None
    evaluation: EvaluationSpec = field(default_factory=EvaluationSpec)
    augment: bool = False
    budget_bytes: int | None = None
    by_phase: tuple[PhaseSpec, ...] = ()
    start: Start | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "updates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name}={value} cannot be used: give 1 or more")
        if self.seed < 0:
            raise InputError(f"seed={self.seed} cannot be used: give 0 or more")

    def steps(self, samples: int, *, phase: int | None = None) -> int:
        """How many updates a task with so many training samples gets, in some phase.

        Updates are counted for each task: a phase that joins several tasks gets as many as they would get one
        after the other, just as so many passes over all of their samples are as many updates in all.

        Example:
            >>> from engram.scenarios import joint, split
            >>> digits = split("digits", setting="class")
            >>> Experiment(digits, "er", batch_size=10, epochs=2).steps(25)
            6
            >>> Experiment(joint(digits), "offline", updates=40).steps(1500, phase=0)
            200
        """
        own = self.of_phase(phase).updates if phase is not None else None
        if own is not None:
            return own
        passes = self.epochs if self.scenario.passes is None else self.scenario.passes
        if self.updates is not None and self.scenario.passes is None:
            return self.updates * (1 if phase is None else len(self.scenario.phases[phase]))
        return passes * -(-samples // self.batch_size)

    def of_phase(self, phase: int) -> PhaseSpec:
        """What is otherwise in a phase."""
        return self.by_phase[phase] if phase < len(self.by_phase) else PhaseSpec()

    @property
    def label(self) -> str:
        """What people read."""
        return f"{self.method} on {self.scenario.name} ({self.scenario.setting.kind})"

    @property
    def digest(self) -> str:
        """A hash of everything above."""
        text = json.dumps({"format": FORMAT, **self._fields()}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def id(self) -> str:
        """The name of the run's folder: readable, and different for every experiment."""
        setting = self.scenario.setting.kind
        return f"{self.scenario.name}-{setting}-{self.method}-s{self.seed}-{self.digest}"

    def as_json(self) -> dict[str, Any]:
        """What `experiment.json` says."""
        return {"format": FORMAT, "id": self.id, "label": self.label, **self._fields()}

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment with another seed."""
        return replace(self, seed=seed)

    def _fields(self) -> dict[str, Any]:
        """Every field by name."""
        found = asdict(self)
        for *path, name in _LATER_FIELDS:
            holder = found
            for part in path:
                holder = holder[part]
            if not holder[name]:
                del holder[name]
        for name in _LATER_SETTINGS.get(self.method, ()):
            if not found["settings"].get(name):
                found["settings"].pop(name, None)
        for task in found["scenario"]["tasks"]:
            if not task["source"]["unused"]:
                del task["source"]["unused"]
        if self.start is not None:
            del found["start"]["file"]
        if code := _own_code(METHODS, self.method) | _own_code(MODELS, self.model.name):
            found["code"] = code
        return found


def _own_code(registry: Registry[Any], name: str) -> dict[str, str]:
    """A hash of the file in which a user's own method or network is written: edited, it is another one."""
    if name not in registry or registry.is_ours(name):
        return {}
    file = getattr(sys.modules.get(registry[name].__module__), "__file__", None)
    if file is None or not Path(file).is_file():
        return {}
    return {registry.kind: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]}
