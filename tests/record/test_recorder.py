"""The recorder: the same run as an evaluator leaves, and refusal of what does not fit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import engram
from engram import InputError, Recorder
from engram.results.integrity import check_run

X = torch.eye(4)
FIRST, SECOND = (X, torch.tensor([0, 1, 2, 3])), (X, torch.tensor([1, 1, 2, 2]))


class Answering(nn.Module):
    """Answers sample i with the class `table[i]`."""

    def __init__(self, *table: int) -> None:
        super().__init__()
        self.table = torch.tensor(table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.eye(4)[self.table[x.argmax(1)]]


STEPS = [(0, (0, 0, 2, 3)), (0, (0, 1, 2, 3)), (1, (1, 1, 2, 1)), (1, (1, 1, 2, 2))]


def watched() -> engram.Evaluator:
    watch = engram.Evaluator([FIRST, SECOND], answers=True)
    for learning, table in STEPS:
        watch(Answering(*table), learning=learning)
    return watch


def recorded() -> Recorder:
    recorder = Recorder()
    for step, (learning, table) in enumerate(STEPS, start=1):
        for task, (_, y) in enumerate((FIRST, SECOND)[: learning + 1]):
            labels, answers = y.numpy(), np.array(table)
            recorder.record(step, task, answers == labels, learning=learning, labels=labels, answers=answers)
    return recorder


def test_it_leaves_the_same_run_as_an_evaluator(tmp_path: Path) -> None:
    one, other = watched().save(tmp_path / "watched"), recorded().save(tmp_path / "recorded")
    assert one.trace == other.trace and one.answers == other.answers
    assert one.phases == other.phases and one.updates == other.updates == 4
    np.testing.assert_equal(dict(one.metrics), dict(other.metrics))
    for file in ("trace.parquet", "samples.parquet", "answers.parquet"):
        same = pl.read_parquet(tmp_path / "watched" / file).equals(
            pl.read_parquet(tmp_path / "recorded" / file)
        )
        assert same, file
    runs = engram.load(tmp_path)
    assert [check_run(run).status for run in runs] == ["done", "done"]
    assert {path.name for path in (tmp_path / "recorded").iterdir()} == {
        *("experiment.json", "result.json", "trace.parquet", "samples.parquet", "answers.parquet")
    }


def test_samples_may_come_in_any_order() -> None:
    recorder = Recorder()
    recorder.record(1, "a", [True, False, True], ids=["x", "y", "z"], labels=[0, 1, 2])
    recorder.record(2, "a", [False, True, True], ids=["z", "x", "y"], answers=[5, 0, 1])
    assert recorder.trace.right(1).tolist() == [True, True, False]
    assert recorder.answered.at(2, 0).tolist() == [0, 1, 5]


def test_tasks_learned_together_are_one_phase() -> None:
    recorder = Recorder(["a", "b", "c"])
    for step, learning in ((1, ["a", "b"]), (2, "c")):
        for task in ("a", "b", "c")[: 1 + step]:
            recorder.record(step, task, [True, step == 1], learning=learning)
    assert recorder.learned == {1: (0, 1), 2: (2,)}
    assert recorder.metrics()["ACC"] == 0.5


def test_a_score_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.record(3, "a", [True, False], score=[0.5, 1.5])
    run = engram.load(recorder.save(tmp_path / "scored").folder or "")[0]
    assert len(run.scores) == 1 and run.scores.means().tolist() == [1.0]


A = [True, False]
MISTAKES: list[tuple[str, dict[str, object]]] = [
    ("ids must differ, 1 of task 'a' occurs more than once: 'x'", {"ids": ["x", "x"]}),
    (
        "ids of task 'a' are not those of its first evaluation: 1 missing: 'y'; 1 new: 'z'",
        {"ids": ["x", "z"]},
    ),
    ("steps must not fall: task 'a' was recorded at step 4 after step 5", {"step": 4}),
    ("task 'a' was recorded at step 5 already", {"step": 5}),
    ("right must be booleans, one per sample, got int64", {"right": [1, 0]}),
    ("right must have one entry per sample", {"right": []}),
    ("task 'a' has 2 samples, got 3", {"right": [True] * 3}),
    ("step must be a whole number", {"step": 1.5}),
    ("there are several tasks now: say which one is being learned", {"task": "b"}),
    ("slice 'light' must have one value per sample: task 'a' has 2, got 1", {"slices": {"light": ["day"]}}),
    ("a slice cannot be called 'label'", {"slices": {"label": [1, 2]}}),
    ("the labels of task 'a' are not those that were recorded before", {"labels": ["cat", "cat"]}),
    ("labels must have one entry per sample: task 'a' has 2, got 1", {"labels": ["cat"]}),
    ("answers must have one entry per sample: task 'a' has 2, got 3", {"answers": ["cat"] * 3}),
    ("answers must be class numbers throughout, or names throughout", {"answers": [0, 1]}),
    ("answers must be one class per sample", {"answers": [0.5, 1]}),
    ("score must have one number per sample: task 'a' has 2", {"score": [1]}),
    ("score must be finite numbers, task 'a' has nan", {"score": [1, float("nan")]}),
    ("a task is a name, or a number from 0 on", {"task": True}),
    ("there is no task 7", {"task": 7}),
    ("at step 5, task", {"step": 5, "task": "b", "learning": "b"}),
    ("labels must be all whole numbers or all text", {"task": "b", "learning": "b", "labels": [1, "x"]}),
]


@pytest.mark.parametrize(("message", "mistake"), MISTAKES)
def test_what_does_not_fit_is_refused_and_not_recorded(message: str, mistake: dict[str, object]) -> None:
    recorder = Recorder()
    recorder.record(5, "a", A, ids=["x", "y"], labels=["cat", "dog"], answers=["cat", "cat"], score=[1, 2])
    before = state_of(recorder)
    with pytest.raises(InputError, match=message):
        recorder.record(**{"step": 6, "task": "a", "right": A, **mistake})  # type: ignore[arg-type]
    assert state_of(recorder) == before


def state_of(recorder: Recorder) -> list[object]:
    rows = len(recorder.trace), len(recorder.answered), len(recorder.scores)
    return [repr(recorder), recorder.names, recorder.sizes, dict(recorder.learned), rows]


def test_nothing_is_written_where_nothing_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing was"):
        Recorder().save(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


def test_kinds_of_labels_are_the_same_in_all_tasks(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.record(1, "a", A, labels=[0, 1])
    recorder.record(2, "b", A, learning="b", labels=["cat", "dog"])
    with pytest.raises(InputError, match="labels must be of one kind in all tasks"):
        recorder.save(tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()


def test_a_run_is_saved_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    for seed in (1, 2):
        assert recorded().save(".", seed=seed).id == "mine"
        (run,) = engram.load(tmp_path / "mine")
        assert run.id == "mine" and run.seed == seed


def test_a_folder_of_runs_is_made_no_run(tmp_path: Path) -> None:
    """Its other runs would not be found any more."""
    recorded().save(tmp_path / "runs" / "one", seed=1)
    for save in (recorded().save, engram.load(tmp_path / "runs")[0].save):
        with pytest.raises(InputError, match=r"runs is a folder of runs: name one in it .*runs/mine"):
            save(tmp_path / "runs")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]
    assert len(engram.load(tmp_path / "runs")) == 1


def test_saving_again_where_the_disk_is_full_keeps_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, place = recorded(), tmp_path / "mine"
    place.mkdir()
    (place / "weights.pt").write_text("the user's own")
    recorder.save(place, seed=1)
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    recorder.record(9, 0, np.array([True] * 4), learning=1)
    write = Path.write_text

    def full(path: Path, *arguments: object, **options: object) -> int:
        if "result" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched, pytest.raises(InputError, match="free some space"):
        patched.setattr(Path, "write_text", full)
        recorder.save(place, seed=1, label="better")
    assert {file.name: file.read_bytes() for file in place.iterdir()} == before
    recorder.save(place, seed=1, label="better")
    (run,) = engram.load(place)
    assert run.label == "better" and run.trace.step[-1] == 9 and check_run(run).problems == ()
    assert {file.name for file in place.iterdir()} == before.keys()
