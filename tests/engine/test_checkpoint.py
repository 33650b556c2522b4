"""Checkpoints that were changed, cut short or replaced are noticed, and the run is the same to the bit."""

import errno
import io
import warnings
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT, PREVIOUS, RESULT
from engram.core.trace import Trace
from engram.engine import checkpoint
from engram.engine.checkpoint import Checkpoints, DamagedCheckpoint, read_checkpoint, write_checkpoint
from engram.engine.execute import attempt, execute
from engram.engine.failures import failure_of
from engram.engine.loop import run, run_steps
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.state import RunState
from engram.engine.where import Where
from engram.record.experiment import Experiment


def small(method: str = "er") -> Experiment:
    return experiment("split-digits", method, updates=4, hidden=(8,), evaluation={"subset": 10})


@cache
def whole(method: str) -> Trace:
    return run(small(method)).trace


class Steps(Watcher):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def updated(self, step: Step) -> None:
        self.seen.append(step.step)


def leave(out: Path, *steps: int, method: str = "er") -> Path:
    """Leave checkpoints after some updates, as a killed run does; returns the path of the last one."""
    place = out / small(method).id / CHECKPOINT
    for step in islice(run_steps(small(method)), max(steps)):
        if step.step in steps:
            assert step.snapshot is not None
            write_checkpoint(place, step.snapshot())
    return place


def resume(out: Path, method: str = "er") -> tuple[list[int], list[str]]:
    """The updates that a resumed run makes, and what it warns about; its bits are those of a whole one."""
    observer = Steps()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        resumed = execute(small(method), Where(out=out), [observer])
    assert resumed.trace == whole(method)
    names = {path.name for path in (out / small(method).id).iterdir()}
    assert RESULT in names and not names & {CHECKPOINT, PREVIOUS}
    return observer.seen, [str(warning.message) for warning in warned]


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    place = leave(tmp_path, 3)
    content = place.read_bytes()
    size = len(content)
    offsets = {*range(0, size, size // 97), *range(size - 99, size, 3)}
    for number, offset in enumerate(sorted(offsets)):
        changed = bytearray(content)
        changed[offset] ^= 1 << (number % 8)
        place.write_bytes(changed)
        with pytest.raises(DamagedCheckpoint, match=r"checkpoint\.pt"):
            read_checkpoint(place)
    for length in (0, 1, 80, size // 2, size - 1):
        place.write_bytes(content[:length])
        with pytest.raises(DamagedCheckpoint, match=r"checkpoint\.pt"):
            read_checkpoint(place)
    place.write_bytes(content)
    assert read_checkpoint(place)["place"]["step"] == 3


def test_torch_can_read_it_as_well(tmp_path: Path) -> None:
    assert torch.load(leave(tmp_path, 3), weights_only=True)["place"]["step"] == 3


def test_the_checkpoint_before_is_kept_and_used(tmp_path: Path) -> None:
    place = leave(tmp_path, 5, 9)
    assert read_checkpoint(place.with_name(PREVIOUS))["place"]["step"] == 5
    changed = bytearray(place.read_bytes())
    changed[len(changed) // 2] ^= 4
    place.write_bytes(changed)
    updates, warned = resume(tmp_path)
    assert updates == list(range(6, 21))
    [line] = warned
    assert f"{place} is damaged" in line and "the run resumes from the checkpoint before it" in line


def test_a_checkpoint_that_was_being_replaced_is_not_missed(tmp_path: Path) -> None:
    """Killed between two renames, a run leaves the one before only."""
    place = leave(tmp_path, 5, 9)
    place.unlink()
    assert resume(tmp_path) == (list(range(6, 21)), [])


def test_with_both_damaged_the_run_starts_from_the_beginning(tmp_path: Path) -> None:
    place = leave(tmp_path, 5, 9)
    place.write_bytes(b"not a checkpoint")
    place.with_name(PREVIOUS).write_bytes(b"")
    updates, warned = resume(tmp_path)
    assert updates == list(range(1, 21)) and len(warned) == 2


@pytest.mark.parametrize(
    "key", ["format", "digest", "place", "meter", "noise", "method", "evaluator", "ledger"]
)
def test_missing_keys_are_noticed(key: str, tmp_path: Path) -> None:
    place = leave(tmp_path, 5, 9)
    write_checkpoint(place, {name: value for name, value in read_checkpoint(place).items() if name != key})
    # The one before is now the whole one of step 9.
    updates, [line] = resume(tmp_path)
    assert updates == list(range(10, 21)) and "\n" not in line


@pytest.mark.parametrize("state", [[1], {"a": 1}, 3])
def test_something_else_is_noticed(state: Any, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / small().id / CHECKPOINT, state)
    updates, [line] = resume(tmp_path)
    assert updates == list(range(1, 21)) and str(tmp_path / small().id / CHECKPOINT) in line


def test_one_of_an_earlier_version_has_no_checksum_and_is_not_used(tmp_path: Path) -> None:
    place = leave(tmp_path, 5)
    state, buffer = read_checkpoint(place), io.BytesIO()
    torch.save(state, buffer)
    place.write_bytes(buffer.getvalue())
    updates, [line] = resume(tmp_path)
    assert updates == list(range(1, 21)) and "has no checksum" in line


def test_a_folder_in_its_place_is_noticed_and_kept(tmp_path: Path) -> None:
    place = tmp_path / small().id / CHECKPOINT
    place.mkdir(parents=True)
    (place / "mine.txt").write_text("mine")
    updates, [line] = resume(tmp_path)
    assert updates == list(range(1, 21)) and "Is a directory" in line
    [kept] = place.parent.glob("*/mine.txt")
    assert kept.read_text() == "mine"


# Passing errors: the checkpoint may be whole, and stays -----------------------------------------------


def kept(out: Path) -> set[str]:
    return {path.name for path in (out / small().id).iterdir()} & {CHECKPOINT, PREVIOUS, RESULT}


def test_a_disk_that_does_not_answer_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read, broken = leave(tmp_path, 5, 9), Path.read_bytes, [True]

    def stale(path: Path) -> bytes:
        if broken and path == place:
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", stale)
    with pytest.raises(InputError, match=r"pt cannot be read: Stale file handle: run the same command again"):
        execute(small(), Where(out=tmp_path))
    assert kept(tmp_path) == {CHECKPOINT, PREVIOUS}
    broken.clear()
    assert resume(tmp_path) == (list(range(10, 21)), [])


CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize("error", [CPU, MemoryError()])
def test_too_little_memory_costs_no_checkpoint(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    leave(tmp_path, 5, 9)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", full)
        failed = attempt(small(), Where(out=tmp_path))
    assert failed.failure is not None and failed.failure.kind == "out of memory"
    assert kept(tmp_path) == {CHECKPOINT, PREVIOUS}
    assert resume(tmp_path) == (list(range(10, 21)), [])


@pytest.mark.parametrize("error", [CPU, MemoryError(), OSError(errno.EIO, "Input/output error")])
def test_what_fails_while_a_state_is_restored_costs_no_checkpoint(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise error

    leave(tmp_path, 5, 9)
    with monkeypatch.context() as patch:
        patch.setattr(RunState, "load_state_dict", full)
        failed = attempt(small(), Where(out=tmp_path))
    assert failed.failure is not None and failed.failure.kind == failure_of(error).kind
    assert failed.failure.reason == failure_of(error).reason
    assert kept(tmp_path) == {CHECKPOINT, PREVIOUS}
    assert resume(tmp_path) == (list(range(10, 21)), [])


# When they are saved -------------------------------------------------------------------------------


class Clock:
    """A clock that a test sets, and a checkpoint that takes its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
        self.now, self.cost, self.saved = 0.0, cost, 0
        monkeypatch.setattr("engram.engine.checkpoint.time.monotonic", lambda: self.now)
        monkeypatch.setattr(checkpoint, "save_checkpoint", self.save)

    def save(self, place: Path, step: Step) -> None:
        self.now += self.cost
        self.saved += 1


@pytest.mark.parametrize("cost", [0.01, 0.5, 5.0, 60.0])
def test_by_default_checkpoints_take_at_most_three_percent(
    cost: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, cost)
    checkpoints = Checkpoints(tmp_path / CHECKPOINT)
    step = next(run_steps(small()))
    number = 0
    while clock.now < 20_000:
        clock.now += 1
        number += 1
        checkpoints.updated(Step(step.run, number, 10**6, 0, 0.0, snapshot=step.snapshot))
    assert checkpoints.spent == pytest.approx(cost * clock.saved) and clock.saved > 5
    assert checkpoints.spent / clock.now <= 0.03
    if cost <= 0.5:
        assert clock.saved >= 20_000 / 33 * 0.9, "and no more than half a minute of work is lost"


def test_an_interval_that_was_chosen_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 2.0)
    checkpoints = Checkpoints(tmp_path / CHECKPOINT, seconds=5)
    step = next(run_steps(small()))
    for number in range(1, 101):
        clock.now += 1
        checkpoints.updated(Step(step.run, number, 10**6, 0, 0.0, snapshot=step.snapshot))
    assert clock.saved == 100 // 6


def test_a_full_disk_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: Path, state: object) -> None:
        raise InputError(f"cannot write {place}: No space left on device; free some space")

    monkeypatch.setattr(checkpoint, "write_checkpoint", full)
    with pytest.warns(UserWarning, match="no checkpoint: cannot write .* No space left") as warned:
        finished = execute(small(), Where(out=tmp_path, checkpoint_seconds=1e-9))
    assert len(warned) == 1 and finished.updates == 20
