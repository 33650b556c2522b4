"""Observers: which calls they get, in which order, in this process and from worker processes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pytest

from engram.core.folder import CHECKPOINT, TRACE, finite
from engram.engine.checkpoint import Checkpoints
from engram.engine.execute import execute, run_in_memory
from engram.engine.failures import RunFailed
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.observers import Observer, Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.serial import Serial
from engram.record.experiment import Experiment
from engram.record.failure import FailureKind
from engram.record.run import Run

EVALUATED = [5, 8, 10, 15, 16, 20, 24, 25, 30, 32, 35, 40]
TASK_ENDS = [8, 16, 24, 32, 40]


def small(method: str = "er", *, seed: int = 0, **options: float) -> Experiment:
    """Forty updates, of which every fifth and the last of each task are evaluated."""
    evaluation = {"every": 5, "subset": 20}
    return experiment("split-digits", method, updates=8, seed=seed, evaluation=evaluation, **options)  # type: ignore[arg-type]


@dataclass
class Diary(Watcher):
    """Records every call."""

    calls: list[tuple[str, Run | Step]] = field(default_factory=list)

    def began(self, run: Run) -> None:
        self.calls.append(("began", run))

    def updated(self, step: Step) -> None:
        self.calls.append(("updated", step))

    def evaluated(self, step: Step) -> None:
        self.calls.append(("evaluated", step))

    def task_ended(self, step: Step) -> None:
        self.calls.append(("task_ended", step))

    def ended(self, run: Run) -> None:
        self.calls.append(("ended", run))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def steps(self, name: str) -> list[Step]:
        return [value for called, value in self.calls if called == name and isinstance(value, Step)]

    def runs(self, name: str) -> list[Run]:
        return [value for called, value in self.calls if called == name and isinstance(value, Run)]


def check_order(diary: Diary) -> None:
    """A run begins once, its steps come in order, and it ends once."""
    names = diary.names()
    assert names[0] == "began" and names[-1] == "ended"
    assert names.count("began") == names.count("ended") == 1
    steps = [(value.step, name) for name, value in diary.calls if isinstance(value, Step)]
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)
    for step, calls in groupby(steps, key=lambda call: call[0]):
        expected = [
            "updated",
            *(["evaluated"] * (step in EVALUATED)),
            *(["task_ended"] * (step in TASK_ENDS)),
        ]
        assert [name for _, name in calls] == expected


def told(diary: Diary) -> list[tuple[str, int, int, int, float, dict[int, float], bool]]:
    """Every evaluated step and every end of a task, with all of its fields."""
    return [
        (
            name,
            step.step,
            step.steps,
            step.learning,
            step.loss,
            dict(step.accuracies),
            step.ends_task,
        )
        for name in ("evaluated", "task_ended")
        for step in diary.steps(name)
    ]


def in_memory(planned: Experiment, out: Path, diary: Diary) -> Run:
    return run_in_memory(planned, Where(out=None), [diary])


def in_a_folder(planned: Experiment, out: Path, diary: Diary) -> Run:
    return execute(planned, Where(out=out), [diary])


def serial(planned: Experiment, out: Path, diary: Diary) -> Run:
    return Serial(Where(out=out), [diary])([planned])[0]


def in_another_process(planned: Experiment, out: Path, diary: Diary) -> Run:
    return Processes(Where(out=out, jobs=1), [diary])([planned])[0]


HERE = [in_memory, in_a_folder, serial]
Way = Callable[[Experiment, Path, Diary], Run]


@pytest.mark.parametrize("way", HERE)
def test_every_update_is_told_in_this_process(way: Way, tmp_path: Path) -> None:
    diary = Diary()
    run = way(small(), tmp_path, diary)
    check_order(diary)
    updates = diary.steps("updated")
    assert [step.step for step in updates] == list(range(1, 41))
    assert {step.steps for step in updates} == {40}
    assert [step.step for step in diary.steps("evaluated")] == EVALUATED
    assert [step.step for step in diary.steps("task_ended")] == TASK_ENDS
    assert [step.learning for step in diary.steps("task_ended")] == [0, 1, 2, 3, 4]
    assert all(step.ends_task == (step.step in TASK_ENDS) for step in updates)
    assert all(bool(step.accuracies) == (step.step in EVALUATED) for step in updates)
    assert all(step.method is not None and step.snapshot is not None for step in updates)
    assert {step.run.id for step in updates} == {small().id}
    (ended,) = diary.runs("ended")
    assert ended is run or ended.id == run.id
    assert ended.finished and ended.trace == run.trace


def test_accuracies_are_those_of_the_trace(tmp_path: Path) -> None:
    diary = Diary()
    trace = in_a_folder(small(), tmp_path, diary).trace
    measured = list(zip(trace.step, trace.task, trace.accuracy(), strict=True))
    for step in diary.steps("evaluated"):
        expected = {task: float(value) for number, task, value in measured if number == step.step}
        assert dict(step.accuracies) == pytest.approx(expected)


@pytest.mark.slow
def test_worker_processes_tell_the_same(tmp_path: Path) -> None:
    here, worker = Diary(), Diary()
    runs = [
        in_a_folder(small(), tmp_path / "here", here),
        in_another_process(small(), tmp_path / "there", worker),
    ]
    check_order(worker)
    assert told(worker) == told(here)
    assert len(told(worker)) == len(EVALUATED) + len(TASK_ENDS)
    assert runs[0].trace == runs[1].trace
    # Live objects are not sent between processes.
    assert all(step.method is None and step.snapshot is None for step in worker.steps("updated"))
    assert worker.runs("began")[0].id == here.runs("began")[0].id == small().id
    (ended_here,), (ended_there,) = here.runs("ended"), worker.runs("ended")
    assert finite(ended_here.metrics) == finite(ended_there.metrics)


@pytest.mark.slow
def test_several_workers_tell_of_each_run_in_order(tmp_path: Path) -> None:
    diary = Diary()
    experiments = [small(seed=seed) for seed in range(3)]
    Processes(Where(out=tmp_path, jobs=2), [diary])(experiments)
    for planned in experiments:
        one = Diary(
            [
                (name, value)
                for name, value in diary.calls
                if (value.run if isinstance(value, Step) else value).id == planned.id
            ]
        )
        check_order(one)
        assert [step.step for step in one.steps("evaluated")] == EVALUATED


def failing() -> Experiment:
    return experiment("split-digits", "finetune", lr=1e9, updates=8, evaluation={"subset": 20})


@pytest.mark.parametrize("way", [serial, pytest.param(in_another_process, marks=pytest.mark.slow)])
def test_a_run_that_fails_ends_once_with_its_failure(way: Way, tmp_path: Path) -> None:
    diary = Diary()
    run = way(failing(), tmp_path, diary)
    assert diary.names()[0] == "began" and diary.names().count("ended") == 1
    (ended,) = diary.runs("ended")
    assert ended.failure is not None and ended.failure == run.failure
    assert ended.folder == tmp_path / failing().id
    assert [step.step for step in diary.steps("evaluated")] == list(range(1, ended.failure.step or 0))


def test_a_run_in_memory_that_fails_ends_as_well() -> None:
    diary = Diary()
    with pytest.raises(RunFailed) as error:
        run_in_memory(failing(), Where(out=None), [diary])
    (ended,) = diary.runs("ended")
    assert ended.failure == error.value.failure and ended.folder is None


@pytest.mark.parametrize("way", [in_a_folder, serial, in_another_process])
def test_a_run_that_was_finished_only_ends(way: Way, tmp_path: Path) -> None:
    execute(small(), Where(out=tmp_path))
    diary = Diary()
    way(small(), tmp_path, diary)
    assert diary.names() == ["ended"] and diary.runs("ended")[0].finished


@pytest.mark.parametrize("way", [in_a_folder, serial, in_another_process])
def test_a_run_that_resumes_begins_where_it_was(way: Way, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    class Kill(Watcher):
        def updated(self, step: Step) -> None:
            if step.step == 13:
                raise Killed

    with pytest.raises(Killed):
        execute(small(), Where(out=tmp_path, checkpoint_seconds=1e-9), [Kill()])
    diary = Diary()
    resumed = way(small(), tmp_path, diary)
    check_order(diary)
    steps = diary.steps("updated")
    assert {step.resumed for step in steps} == {12} and steps[0].step == 13
    if way is not in_another_process:
        assert [step.step for step in steps] == list(range(13, 41))
    assert resumed.trace == run(small()).trace


def test_watching_changes_no_bits(tmp_path: Path) -> None:
    class Looking(Diary):
        """Reads all fields of a step."""

        def updated(self, step: Step) -> None:
            assert step.method is not None and step.snapshot is not None
            self.last = weights_digest(step.method)
            step.snapshot()

    looking = Looking()
    watched = execute(small("ewc"), Where(out=tmp_path), [looking, Diary()])
    *_, last = run_steps(small("ewc"))
    assert last.method is not None
    assert looking.last == weights_digest(last.method)
    assert watched.trace == run(small("ewc")).trace
    assert watched.metrics == pytest.approx(dict(run(small("ewc")).metrics), nan_ok=True)


def test_observers_are_told_in_the_order_in_which_they_are_given() -> None:
    calls: list[str] = []

    class Named(Watcher):
        def __init__(self, name: str) -> None:
            self.name = name

        def updated(self, step: Step) -> None:
            calls.append(self.name)

    run_in_memory(small(), Where(out=None), [Named("first"), Named("second")])
    assert calls == ["first", "second"] * 40


# Checkpoints --------------------------------------------------------------------------------------


def test_checkpoints_are_an_observer(tmp_path: Path) -> None:
    """The calls of an observer are enough to resume a run."""
    place = tmp_path / small().id / CHECKPOINT
    place.parent.mkdir()
    checkpoints = Checkpoints(place, seconds=1e-9)
    assert isinstance(checkpoints, Observer)
    for step in run_steps(small()):
        checkpoints.updated(step)
        if step.step == 13:
            break
    diary = Diary()
    resumed = execute(small(), Where(out=tmp_path), [diary])
    assert diary.steps("updated")[0].step == 14
    assert resumed.trace == run(small()).trace and not place.exists()


def test_checkpoints_are_saved_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("engram.engine.checkpoint.time.monotonic", lambda: now[0])
    checkpoints = Checkpoints(tmp_path / CHECKPOINT, seconds=10)
    saved = []
    for step in run_steps(small()):
        now[0] += 3
        checkpoints.updated(step)
        if (tmp_path / CHECKPOINT).exists():
            saved.append(step.step)
            (tmp_path / CHECKPOINT).unlink()
    # Twelve seconds after the last one, and never earlier.
    assert saved == list(range(4, 41, 4))


def test_a_run_in_memory_keeps_no_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_in_memory(small(), Where(out=None, checkpoint_seconds=1e-9), [])
    assert list(tmp_path.iterdir()) == []
    execute(small(), Where(out=tmp_path, checkpoint_seconds=float("inf")))
    assert (tmp_path / small().id / TRACE).is_file()


@pytest.mark.parametrize("how", [in_memory, in_a_folder])
def test_a_run_that_fails_in_its_first_update_began_and_ended(
    how: Callable[[Experiment, Path, Diary], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary()

    def fail(self: object, batch: object) -> float:
        raise LookupError("nothing here")

    monkeypatch.setattr("engram.methods.base.Learner.observe", fail)
    with pytest.raises(RunFailed):
        how(small(), tmp_path, diary)
    assert diary.names() == ["began", "ended"]
    [run] = diary.runs("ended")
    assert run.failure is not None and (run.failure.step, run.failure.task) == (1, 0)


def test_a_run_that_is_interrupted_ends(tmp_path: Path) -> None:
    class Impatient(Diary):
        def updated(self, step: Step) -> None:
            raise KeyboardInterrupt

    diary = Impatient()
    with pytest.raises(KeyboardInterrupt):
        execute(small(), Where(out=tmp_path), [diary])
    [run] = diary.runs("ended")
    assert diary.names() == ["began", "ended"]
    assert run.failure is not None and run.failure.kind is FailureKind.INTERRUPTED
    assert Run.find(small(), tmp_path).status == "unfinished"
