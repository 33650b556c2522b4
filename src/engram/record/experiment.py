"""What an experiment is: a value whose hash is its identity."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Annotated

from pydantic import Field

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.core.jsons import Json, JsonMapping, JsonObject
from engram.core.plugins import PLUGIN_MODULE
from engram.core.registries import METHODS
from engram.core.schema import INTERNAL, Flag, Since, as_fields, from_fields, later_fields, written_items
from engram.core.values import OptimizerSpec
from engram.models.spec import MODELS, ModelSpec
from engram.record.revisions import revisions_of
from engram.record.specs import EvaluationSpec, PhaseSpec, Start, TransferSpec
from engram.scenarios.values import Scenario

__all__ = ["FORMAT", "EvaluationSpec", "Experiment", "PhaseSpec", "Start", "TransferSpec"]

FORMAT = 1


_UNSAFE = re.compile(r"[/\\\0]|\.\.")
"""What a name of a folder must not have."""


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
        budget_bytes: What the method may keep beyond the weights; None for no limit.
        by_phase: Overrides for the first phases, one per phase; later phases have none.
        start: The weights that it starts from; None for those of the model.
        seed: Initial weights, order of data, the method's and the evaluation's randomness.

    Example:
        >>> from dataclasses import replace
        >>> from engram.scenarios import split
        >>> one = Experiment(split("digits", setting="class"), "finetune")
        >>> one.id == replace(one, seed=0).id, one.id == replace(one, seed=1).id
        (True, False)
    """

    scenario: Annotated[Scenario, INTERNAL]
    method: Annotated[str, INTERNAL]
    settings: Annotated[JsonObject, INTERNAL] = field(default_factory=dict)
    model: Annotated[ModelSpec, INTERNAL] = field(default_factory=ModelSpec)
    optimizer: Annotated[OptimizerSpec, INTERNAL] = field(default_factory=OptimizerSpec)
    batch_size: Annotated[int, Field(ge=1, description="New samples in each update")] = 32
    epochs: Annotated[int, Field(ge=1, description="Passes over each task's data")] = 1
    updates: Annotated[int | None, Field(ge=1, description="Updates of each task, instead of passes")] = None
    evaluation: Annotated[EvaluationSpec, INTERNAL] = field(default_factory=EvaluationSpec)
    augment: Annotated[
        bool,
        Since("2"),
        Flag("--augment/--no-augment"),
        Field(description="Crop and mirror images whenever they are learned"),
    ] = False
    budget_bytes: Annotated[
        int | None, Field(ge=1, description="Bytes that may be kept beyond the weights; sizes the memory")
    ] = None
    by_phase: Annotated[tuple[PhaseSpec, ...], Since("2"), INTERNAL] = ()
    start: Annotated[Start | None, Since("2"), INTERNAL] = None
    seed: Annotated[int, INTERNAL] = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "updates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        for kind, name in (("scenario", self.scenario.name), ("method", self.method)):
            # Both are part of the name of the run's folder.
            if _UNSAFE.search(name) is not None:
                raise InputError(f"the name of a {kind} must have no slash and no two dots, got {name!r}")
        object.__setattr__(self, "seed", whole_seed(self.seed))

    def __repr__(self) -> str:
        return (
            f"Experiment({self.method} on {self.scenario.name}, {self.scenario.setting.kind} setting, "
            f"{len(self.scenario.tasks)} tasks, {self.model.name}, seed {self.seed},\n"
            f"           id {self.id})"
        )

    def __reduce__(self) -> tuple[Callable[..., Experiment], tuple[object, ...]]:
        """An experiment whose method is a class takes the class along to other processes.

        A plugin's method is left out: every process loads the plugin itself. Of a model from a file, the file
        is taken along.
        """
        values = tuple(getattr(self, item.name) for item in fields(self))
        source = MODELS[self.model.name].source if self.model.name in MODELS else ""
        if self.method not in METHODS or METHODS.is_ours(self.method):
            return _restored, (values, None, source)
        method = METHODS[self.method]
        return _restored, (values, None if method.__module__.startswith(PLUGIN_MODULE) else method, source)

    def steps(self, samples: int, *, phase: int | None = None) -> int:
        """The number of updates for a task with this number of training samples.

        Updates are counted per task: a phase that joins several tasks gets as many updates as these tasks
        would get one after the other.

        Args:
            samples: Training samples of the task, or of all tasks in the phase.
            phase: The phase in which it is learned, if its overrides and joined tasks are to count.

        Example:
            >>> from engram.scenarios import joint, split
            >>> digits = split("digits", setting="class")
            >>> Experiment(digits, "er", batch_size=10, epochs=2).steps(25)
            6
            >>> Experiment(joint(digits), "offline", updates=40).steps(1500, phase=0)
            200
        """
        override = self.of_phase(phase).updates if phase is not None else None
        if override is not None:
            return override
        passes = self.epochs if self.scenario.passes is None else self.scenario.passes
        if self.updates is not None and self.scenario.passes is None:
            return self.updates * (1 if phase is None else len(self.scenario.phases[phase]))
        return passes * -(-samples // self.batch_size)

    def skipping(self) -> Experiment:
        """The same experiment, with evaluations left out while evaluator processes are busy: another one."""
        return replace(self, evaluation=replace(self.evaluation, skips=True))

    def of_phase(self, phase: int) -> PhaseSpec:
        """The overrides for a phase."""
        return self.by_phase[phase] if phase < len(self.by_phase) else PhaseSpec()

    @property
    def label(self) -> str:
        """What people read."""
        return f"{self.method} on {self.scenario.name} ({self.scenario.setting.kind})"

    @property
    def digest(self) -> str:
        """A hash of everything above."""
        return _digest(self._fields())

    @property
    def stem(self) -> str:
        """The readable part of the id, which similar experiments share."""
        return f"{self.scenario.name}-{self.scenario.setting.kind}-{self.method}-s{self.seed}"

    @property
    def id(self) -> str:
        """The name of the run's folder: readable, and different for every experiment."""
        return f"{self.stem}-{self.digest}"

    @property
    def earlier_ids(self) -> tuple[str, ...]:
        """The ids that the same fields had before the corrections that apply to it, oldest first.

        Example:
            >>> from engram.engine.recipe import experiment
            >>> len(experiment("split-digits", "imm-mean", setting="task").earlier_ids)
            1
        """
        written = self._fields()
        names = written.pop("revised", [])
        digests = [_digest(written | ({"revised": names[:n]} if n else {})) for n in range(len(names))]
        return tuple(f"{self.stem}-{digest}" for digest in digests)

    def as_json(self) -> JsonObject:
        """What `experiment.json` says."""
        written = self._fields()
        name = f"{self.stem}-{_digest(written)}"
        # What experiments share is copied, so that whoever gets this may change it.
        return {"format": FORMAT, "id": name, "label": self.label, **copy.deepcopy(written)}

    @classmethod
    def of_json(cls, written: JsonMapping, *, weights: Path | None = None) -> Experiment:
        """The experiment that `experiment.json` describes: what `as_json` wrote is read to the same id.

        Methods, models and data sets of a user's own must be registered before (`load_plugin`).

        Args:
            written: What is in the file.
            weights: The file of the weights that the experiment starts from, if any; `experiment.json` has
                only their hash.

        Raises:
            InputError: Something is missing, unknown or of the wrong type; the message says where.

        Example:
            >>> from engram.engine.recipe import experiment
            >>> one = experiment("split-digits", "er", seed=3)
            >>> Experiment.of_json(json.loads(json.dumps(one.as_json()))).id == one.id
            True
        """
        if (version := written.get("format", FORMAT)) != FORMAT:
            raise InputError(f"experiment.json has format {version}: this engram reads format {FORMAT}")
        derived = ("format", "id", "label", "code", "revised")
        known = {name: value for name, value in written.items() if name not in derived}
        if isinstance(start := known.get("start"), Mapping):
            known["start"] = {**start, "file": weights or Path()}
        method, settings = known.get("method"), known.get("settings")
        if isinstance(method, str) and method in METHODS and isinstance(settings, Mapping):
            # Later settings are written only where they differ from their default.
            known["settings"] = {**later_fields(METHODS[method]), **settings}
        experiment = from_fields(cls, known, where="experiment.json")
        assert isinstance(experiment, cls)
        return experiment

    def _fields(self) -> JsonObject:
        """Every field by name."""
        written: JsonObject = {
            name: _scenario_fields(_Same(self.scenario)) if name == "scenario" else as_fields(item)
            for name, item in written_items(self)
        }
        written["settings"] = self._written_settings()
        if code := self._own_code():
            written["code"] = code
        if revised := [revision.name for revision in revisions_of(self)]:
            written["revised"] = revised
        return written

    def _written_settings(self) -> JsonObject:
        """The hyper-parameters, without those that came later and have their default."""
        if self.method not in METHODS:
            return dict(self.settings)
        later = later_fields(METHODS[self.method])
        return {
            name: value for name, value in self.settings.items() if name not in later or value != later[name]
        }

    def _own_code(self) -> dict[str, str]:
        """Hashes of users' own code and data: when they change, it is another experiment."""
        sets = dict.fromkeys(task.source.dataset for task in self.scenario.tasks)
        hashes = {
            "method": METHODS.code_of(self.method),
            "model": "" if self.model.value is not None else MODELS.code_of(self.model.name),
            **{f"data set {name}": DATASETS[name].digest for name in sets if name in DATASETS},
        }
        return {what: digest for what, digest in hashes.items() if digest}


class _Same:
    """A scenario as a key, equal only to itself: equal ones may be written differently (1 and 1.0)."""

    __slots__ = ("scenario",)

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __hash__(self) -> int:
        return id(self.scenario)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.scenario is other.scenario


@lru_cache(maxsize=256)
def _scenario_fields(same: _Same) -> Json:
    """A scenario as it is written. Many experiments share one, and it is most of what their ids hash."""
    return as_fields(same.scenario)


def _digest(written: JsonObject) -> str:
    text = json.dumps({"format": FORMAT, **written}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _restored(values: tuple[Json, ...], method: type[object] | None, model: str = "") -> Experiment:
    """An experiment in another process, where its method and its model may not be registered yet."""
    planned = Experiment(*values)
    if model and planned.model.name not in MODELS:
        from engram.models.from_file import model_from_file

        model_from_file(model)
    if method is not None and planned.method not in METHODS:
        METHODS.add_own(planned.method, method)
    return planned


def whole_seed(seed: object) -> int:
    """A seed as one of Python's whole numbers, which descriptions and identities hold; NumPy has its own.

    Raises:
        InputError: It is not a whole number from 0 on.

    Example:
        >>> import numpy as np
        >>> whole_seed(np.int64(3))
        3
        >>> whole_seed("3")
        Traceback (most recent call last):
        engram.core.errors.InputError: seed must be a whole number, got '3'
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise InputError(f"seed must be a whole number, got {seed!r}")
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    return int(seed)
