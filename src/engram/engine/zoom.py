"""Look again: a stretch of a finished run is learned once more, to the same bits, and evaluated closely."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from torch import Tensor

from engram.core.errors import InputError, unknown_name
from engram.core.files import is_file, read_json
from engram.core.folder import EXPERIMENT
from engram.core.trace import Trace
from engram.datasets.files import Reading
from engram.engine.checkpoint import checkpoint_of
from engram.engine.failures import RunFailed
from engram.engine.loop import state_of, steps_of
from engram.engine.observers import Observer, Step, tell
from engram.engine.start import start_from
from engram.engine.state import RunState
from engram.engine.view import other_view, own_view
from engram.engine.where import Where
from engram.evaluation.guard import same_randomness
from engram.methods.state import State
from engram.metrics.registry import computed
from engram.record.aside import put_back, replacing
from engram.record.checkpoints import kept_checkpoints
from engram.record.experiment import Experiment
from engram.record.result import Seconds
from engram.record.run import Run
from engram.record.tables import Tables
from engram.record.test_data import other_tasks
from engram.record.zoom import MEASURED, PARTS, SAMPLES, Compared, Zoom


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What to look at again.

    Attributes:
        first: Evaluate from this update on; 0 is before the first.
        last: Evaluate up to this update.
        every: Evaluate after every N updates, and at both ends and at task ends.
        samples: The samples that the run was evaluated on (`own`), or `all` of them.
        on: `test`, `train` or `validation` data of the run, or a file or folder of other samples (default:
            what the run was evaluated on).
        how: How that file is read.

    Example:
        >>> Stretch(first=9, last=3)
        Traceback (most recent call last):
        engram.core.errors.InputError: steps must be A:B with A at most B, got 9:3
    """

    first: int
    last: int
    every: int = 1
    samples: str = "own"
    on: str | Path | None = None
    how: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        if self.first < 0:
            raise InputError(f"steps must be at least 0, got {self.first}:{self.last}")
        if self.first > self.last:
            raise InputError(f"steps must be A:B with A at most B, got {self.first}:{self.last}")
        if self.every < 1:
            raise InputError(f"every must be at least 1, got {self.every}")
        if self.samples not in SAMPLES:
            raise unknown_name("choice of samples", self.samples, SAMPLES)

    def name(self, run: Run) -> str:
        """The name of its folder among the zooms of a run."""
        return self.of(run, part=self.part(run)).name

    def part(self, run: Run) -> str:
        """What is evaluated: a part of the run's data, or the name of other data."""
        if self.on is None:
            evaluation = run.description.get("evaluation")
            return str(evaluation.get("on", "test")) if isinstance(evaluation, Mapping) else "test"
        return str(self.on) if str(self.on) in PARTS else Path(self.on).name

    def of(self, run: Run, *, part: str, start: int = 0, compared: Compared | None = None) -> Zoom:
        """What is said of it when it was looked at."""
        return Zoom(
            run=run.id,
            first=self.first,
            last=self.last,
            every=self.every,
            samples=self.samples if part in PARTS else "all",
            on=part,
            start=start,
            compared=compared or Compared(),
            versions=dict(run.versions),
        )

    def due(self, step: int, *, ends_task: bool = False) -> bool:
        """Whether to evaluate after so many updates.

        Example:
            >>> stretch = Stretch(first=3, last=8, every=4)
            >>> [step for step in range(10) if stretch.due(step)]
            [3, 4, 8]
        """
        inside = self.first <= step <= self.last
        return inside and (step % self.every == 0 or step in (self.first, self.last) or ends_task)


def zoom(
    run: Run,
    stretch: Stretch,
    where: Where | None = None,
    observers: Sequence[Observer] = (),
    *,
    weights: Path | None = None,
) -> Run:
    """Learn a stretch of a finished run again, evaluate every update of it, and return that as a run.

    Learning starts from the last checkpoint that the run kept before the stretch, or from the beginning, and
    gives the same bits. That is checked: answers are compared with those of the run at its own evaluations in
    the stretch, and states with the checkpoints that it kept there.

    Args:
        run: The run.
        stretch: What to look at.
        where: Where to search for data sets, and where to compute.
        observers: Notified of every update that is learned again.
        weights: The file of the weights that the run started from, if it started from any.

    Returns:
        The evaluations of the stretch, and one at the end of each earlier task, so that tasks have their
        order. Its `description` has a part `zoom`, which `engram.record.zoom.Zoom` reads.

    Raises:
        InputError: The run cannot be learned again, or the stretch is not a part of it.

    Example:
        >>> import engram
        >>> run = engram.run("split-digits", "er", updates=10, every=5)
        >>> closely = zoom(run, Stretch(first=10, last=13))
        >>> closely.curve.step.tolist(), closely.description["zoom"]["compared"]["different"]
        ([10, 11, 12, 13], 0)
    """
    check_stretch(run, stretch)
    experiment = _experiment_of(run, weights)
    return _Zooming(run, experiment, stretch, where or Where(out=None)).made(observers)


def check_place(folder: Path, run: Run) -> None:
    """Refuse a folder for a zoom that holds something else.

    Raises:
        InputError: It does.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder that does not exist yet")
    put_back(folder)
    if not any(folder.iterdir()):
        return
    description = read_json(folder / EXPERIMENT) if is_file(folder / EXPERIMENT) else {}
    facts = description.get("zoom") if isinstance(description, dict) else None
    if not isinstance(facts, dict) or facts.get("run") != run.id:
        raise InputError(f"{folder} holds something else: name a folder that does not exist yet")


def save_zoom(closely: Run, folder: Path) -> Run:
    """Write a zoom, and return the saved run; one that was there before is replaced.

    Raises:
        InputError: It cannot be written; the one that was there is as before.
    """
    with replacing(folder):
        return closely.save(folder)


def check_stretch(run: Run, stretch: Stretch) -> None:
    """Refuse a stretch that a run does not have, before anything is computed.

    Raises:
        InputError: The run is not finished, is itself a zoom, or is shorter.
    """
    if not run.finished:
        raise InputError(f"the run {run.folder or run.id} is not finished: finish it first")
    if stretch.last > run.updates:
        raise InputError(
            f"the run {run.folder or run.id} has {run.updates:,} updates: choose steps up to {run.updates}, "
            f"got {stretch.first}:{stretch.last}"
        )
    if run.redrawn and stretch.samples == "own" and stretch.on in (None, *PARTS):
        raise InputError(
            "the run drew other samples for every evaluation, so it has none of its own: use --samples all"
        )


def _experiment_of(run: Run, weights: Path | None) -> Experiment:
    """The experiment of a run, which must be known to the bit.

    Raises:
        InputError: It is not.
    """
    if "zoom" in run.description:
        raise InputError(
            f"the run {run.folder or run.id} is a zoom itself: name the run that it is of, "
            f"{run.description['zoom']['run']}"
        )
    if "scenario" not in run.description:
        raise InputError(
            f"the run {run.folder or run.id} was recorded in a training loop, which cannot be repeated from "
            "here: evaluate more often there, with every=1"
        )
    try:
        experiment = run.experiment
    except InputError as error:
        raise InputError(
            f"{error}; load a plugin with --plugin, your data with --own, your network with --model"
        ) from error
    start = experiment.start
    if start is None and weights is not None:
        raise InputError(f"the run {run.id} started from no weights: leave --weights out")
    if start is None or (weights is None and start.file != Path()):
        return experiment
    if weights is None:
        raise InputError(
            f"the run {run.id} started from weights with sha256 {start.sha256[:12]}…: name their file with "
            "--weights"
        )
    return replace(experiment, start=replace(start, file=start_from(weights).file))


@dataclass(frozen=True, slots=True)
class _Start:
    """Where learning starts.

    Attributes:
        step: After so many updates.
        state: The state there; None for the beginning.
        ends: The states at the ends of earlier tasks that are evaluated without learning.
    """

    step: int
    state: State | None
    ends: tuple[State, ...] = ()


class _Zooming:
    """A stretch of a run while it is learned again.

    Args:
        run: The run.
        experiment: Its experiment.
        stretch: What to look at.
        where: Where to search for data sets, and where to compute.
    """

    def __init__(self, run: Run, experiment: Experiment, stretch: Stretch, where: Where) -> None:
        self.run, self.experiment, self.stretch, self.where = run, experiment, stretch, where
        self.beginning = state_of(experiment, where)
        with same_randomness():
            self._open_views()
        self.compared = Compared()
        self.seconds = 0.0

    def _open_views(self) -> None:
        """Prepare what is looked at, and what the run was evaluated on; other data than then are refused."""
        run, stretch, state = self.run, self.stretch, self.beginning
        spec = self.experiment.evaluation
        self.own = None if spec.redraw else own_view(state, samples="own", part=spec.on)
        if self.own is not None and (other := other_tasks(run.test_data, self.own.evaluator.test_data)):
            raise InputError(
                f"the data of task {other[0] + 1} are not those that the run {run.id} was evaluated on: "
                "restore them"
            )
        part = spec.on if stretch.on is None else stretch.on
        if stretch.samples == "own" and part == spec.on and self.own is not None:
            self.view = self.own
        elif part in PARTS:
            self.view = own_view(state, samples=stretch.samples, part=str(part))
        else:
            self.view = other_view(Path(part), state, stretch.how, data=self.where.data)

    @property
    def looks_as_before(self) -> bool:
        """Whether the samples are those that the run was evaluated on."""
        return self.view is self.own

    @cached_property
    def ends(self) -> list[int]:
        """The updates at which tasks end."""
        return list(
            accumulate(self.beginning.updates_of(phase) for phase in range(len(self.beginning.infos)))
        )

    @cached_property
    def earlier(self) -> list[int]:
        """The ends of tasks before the stretch."""
        return [end for end in self.ends if end < self.stretch.first]

    @cached_property
    def checks(self) -> set[int]:
        """The updates at which answers are compared with those of the run."""
        if self.own is None:
            return set()
        known = set(self.run.trace.step)
        inside = {step for step in known if self.stretch.first <= step <= self.stretch.last}
        before = [step for step in known if step < self.stretch.first]
        return inside or set(sorted(before)[-1:])

    def made(self, observers: Sequence[Observer]) -> Run:
        """Learn, evaluate, compare, and return the run."""
        kept = kept_checkpoints(self.run.folder)
        start = self._start(dict(kept))
        began = time.perf_counter()
        for end in start.ends:
            self.view.look(self._resumed(end))
        state = self.beginning if start.state is None else self._resumed(start.state)
        self._learn(state, start, kept, observers)
        self.seconds = time.perf_counter() - began
        if self.own is not None:
            self.compared.compare_answers(self.own.evaluator.trace, self.run.trace, self.checks)
        return self._run(start)

    def _resumed(self, state: State) -> RunState:
        return state_of(self.experiment, self.where, state)

    def _start(self, kept: dict[int, Path]) -> _Start:
        """The last checkpoint from which everything that is needed can be learned; damaged ones are named."""
        states: dict[int, State] = {}
        while True:
            needed = [] if self.looks_as_before else self.earlier
            missing = [end for end in needed if end not in kept]
            limit = missing[0] if missing else self.stretch.first
            # What is compared before the stretch must be learned.
            if self.checks and max(self.checks) < self.stretch.first:
                limit = min(limit, max(self.checks))
            step = max((step for step in kept if step <= limit), default=0)
            wanted = [*(end for end in needed if end < step), *([step] if step else [])]
            for place in [place for place in wanted if place not in states]:
                try:
                    states[place] = checkpoint_of(kept[place], self.experiment)
                except InputError as problem:
                    warnings.warn(f"{problem}: it is not used", stacklevel=4)
                    del kept[place]
                    break
            else:
                return _Start(step, states.get(step), tuple(states[end] for end in wanted if end != step))

    def _learn(
        self, state: RunState, start: _Start, kept: dict[int, Path], observers: Sequence[Observer]
    ) -> None:
        """Learn from the start to the end of the stretch, and evaluate what is due."""
        begun = ended = Run(planned=self.experiment)
        for observer in observers:
            observer.began(begun)
        if start.state is None:
            # As before the first update of a run: the method knows of its first task.
            state.begin_phase(watch=False)
        self._look(state, ends_task=start.step in self.ends)
        steps = steps_of(state, watch=False)
        try:
            while state.place.step < self.stretch.last:
                step = next(steps)
                accuracies = self._look(state, ends_task=step.ends_task)
                if step.step in kept:
                    self._compare(kept[step.step], state)
                tell(observers, self._told(step, begun, accuracies, start))
            ended = replace(begun, finished=True)
        except RunFailed as error:
            raise InputError(
                f"the run {self.run.id} cannot be learned again: {error}; it was made with "
                f"{_versions(self.run)}"
            ) from error
        finally:
            steps.close()
            for observer in observers:
                observer.ended(ended)

    def _told(self, step: Step, begun: Run, accuracies: dict[int, float], start: _Start) -> Step:
        """What observers are told: only what is learned again counts."""
        done, left = step.step - start.step, self.stretch.last - start.step
        return replace(step, run=begun, step=done, steps=left, resumed=0, accuracies=accuracies)

    def _look(self, state: RunState, *, ends_task: bool) -> dict[int, float]:
        """Evaluate, if it is due, on what is looked at, and on what the run was evaluated on to compare."""
        step = state.place.step
        if step in self.checks and self.own is not None:
            self.own.look(state)
        passed = ends_task and step in self.earlier and not self.looks_as_before
        if not passed and not self.stretch.due(step, ends_task=ends_task):
            return {}
        self.view.look(state)
        return self.view.latest

    def _compare(self, path: Path, state: RunState) -> None:
        """Compare the state with a checkpoint that the run kept."""
        try:
            before = checkpoint_of(path, self.experiment)
        except InputError:
            return
        with same_randomness():
            then = self._resumed(before)
            # What answers, rather than what is stored: some methods fit it anew whenever they are asked.
            same = same_state(_answering(state), _answering(then))
        same &= same_state(state.place.state_dict(), then.place.state_dict())
        self.compared.checkpoints += 1
        if not same:
            self.compared.different_states += 1
            self.compared.note_different(state.place.step)

    def _run(self, start: _Start) -> Run:
        """The run that says what was seen."""
        stretch, view = self.stretch, self.view
        tables = view.tables()
        inside = [step for step in set(tables.trace.step) if step >= stretch.first]
        facts = stretch.of(self.run, part=view.part, start=start.step, compared=self.compared)
        phases = self.experiment.scenario.phases[: 1 + sum(end < stretch.last for end in self.ends)]
        made = Run(
            description=facts.description(self.run),
            finished=True,
            sizes=view.sizes,
            phases={tasks[-1]: tuple(tasks) for tasks in phases},
            test_data=view.test_data,
            updates=stretch.last - start.step,
            evaluations=len(inside),
            seconds=Seconds(max(0.0, self.seconds - view.evaluator.seconds), view.evaluator.seconds),
            tables=Tables(
                self._with_earlier(tables.trace),
                readings=[reading for reading in tables.readings if reading[0] in set(tables.trace.step)],
                samples=tables.samples,
                answers=tables.answers,
            ),
        )
        measured = made.measure(only=MEASURED)
        left_out = {name: facts.left_out for name in computed() if name not in MEASURED}
        return replace(
            made,
            stored=measured.final,
            by_task=measured.by_task,
            why={**left_out, **measured.why},
        )

    def _with_earlier(self, trace: Trace) -> Trace:
        """The trace, with the run's own evaluations at the ends of earlier tasks where these are missing."""
        if not self.looks_as_before:
            return trace
        known, steps = sorted(set(self.run.trace.step)), set[int]()
        for begin, end in pairwise([-1, *self.earlier]):
            steps |= set([step for step in known if begin < step <= end][-1:])
        inside = {step for step in trace.step if self.stretch.first <= step <= self.stretch.last}
        return self.run.trace.at(steps).followed_by(trace.at(inside))


def same_state(one: object, other: object) -> bool:
    """Whether two states are the same to the bit.

    Example:
        >>> weights = torch.tensor([0.5, float("nan")])
        >>> same_state({"w": weights, "steps": [3]}, {"w": weights.clone(), "steps": [3]})
        True
        >>> same_state({"w": weights, "steps": [3]}, {"w": weights + 1e-7, "steps": [3]})
        False
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        here, there = one.detach().cpu(), other.detach().cpu()
        return torch.equal(here, there) or torch.allclose(here, there, rtol=0, atol=0, equal_nan=True)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_state(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return one == other or (one != one and other != other)


def _answering(state: RunState) -> dict[str, Tensor]:
    """The weights of the network that would answer now."""
    return state.method.predictor().state_dict()


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.versions.items()) or "unknown versions"
