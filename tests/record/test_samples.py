"""Samples and answers are kept with a run, with checksums, and read on first use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import engram
from engram import Evaluator, InputError
from engram.core.errors import Damaged
from engram.engine.recipe import experiment
from engram.record.answers import Answers
from engram.results.integrity import check_run

TASK = torch.eye(4), torch.tensor([0, 1, 2, 3])
IDS: list[list[object]] = [["a", "b", "c", "d"], [7, 8, 9, 10]]


def saved(folder: Path, **options: object) -> engram.Run:
    watch = Evaluator([TASK, TASK], tasks="all", **options)  # type: ignore[arg-type]
    watch(nn.Identity(), learning=0)
    watch(nn.Linear(4, 4), learning=1)
    watch.save(folder)
    return engram.Run.load(folder)


def test_ids_labels_and_slices_are_kept(tmp_path: Path) -> None:
    run = saved(tmp_path / "r", ids=IDS, slices=[{"dark": [True, False, True, False]}, {}])
    assert run.samples is not None
    assert run.samples.frame.select("task", "position", "id", "label", "drawn", "dark").rows() == [
        (0, 0, "a", 0, True, True),
        (0, 1, "b", 1, True, False),
        (0, 2, "c", 2, True, True),
        (0, 3, "d", 3, True, False),
        *((1, place, str(7 + place), place, True, None) for place in range(4)),
    ]
    assert not len(run.answers)


def test_samples_are_those_that_were_drawn(tmp_path: Path) -> None:
    big = torch.randn(50, 4), torch.arange(50) % 4
    watch = Evaluator([big], subset=10, full_ends=True, seed=3)
    watch(nn.Linear(4, 4), learning=0, last=True)
    samples = watch.samples()
    assert samples is not None and len(samples) == 50
    drawn = samples.of_task(0)["position"].to_list()
    assert drawn == watch.index[0].tolist() and len(drawn) == watch.trace.total[0]
    assert len(samples.of_task(0, whole=True)) == watch.ends.total[0]
    only = Evaluator([big], subset=10, seed=3)
    only(nn.Linear(4, 4), learning=0)
    kept = only.samples()
    assert kept is not None and kept.frame["position"].to_list() == drawn


def test_samples_that_are_drawn_again_are_not_kept() -> None:
    with pytest.warns(UserWarning, match="redraw"):
        watch = Evaluator([TASK], subset=2, redraw=True)
    watch(nn.Identity(), learning=0)
    assert watch.samples() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ids": [["a"] * 4, IDS[1]]}, "ids must differ, 1 of .* occurs more than once: 'a'"),
        ({"ids": [IDS[0][:3], IDS[1]]}, "ids must have one entry per sample: .* has 4, got 3"),
        ({"ids": IDS[:1]}, "ids must have one entry per test set, got 1 for 2"),
        ({"ids": {"0": IDS[0]}}, "ids must be given for every test set by its name"),
        ({"ids": [[0.5, 1, 2, 3], IDS[1]]}, "ids must be whole numbers or text"),
        ({"slices": [{"dark": [True]}, {}]}, "slice 'dark' must have one value per sample: .* has 4, got 1"),
        ({"slices": [{"id": [1, 2, 3, 4]}, {}]}, "a slice cannot be called 'id'"),
    ],
)
def test_bad_identities_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Evaluator([TASK, TASK], **options)  # type: ignore[arg-type]


def test_damaged_samples_and_answers_are_noticed(tmp_path: Path) -> None:
    saved(tmp_path / "r", answers=True)
    for name in ("samples", "answers"):
        file = tmp_path / "r" / f"{name}.parquet"
        content = file.read_bytes()
        file.write_bytes(content[:-9] + b"x" * 9)
        run = engram.Run.load(tmp_path / "r")
        assert run.trace.step[-1] == 2
        with pytest.raises(Damaged, match=f"{name}.parquet is damaged"):
            getattr(run, name)
        assert check_run(engram.Run.load(tmp_path / "r")).status == "damaged"
        file.write_bytes(content)
    assert check_run(engram.Run.load(tmp_path / "r")).status == "done"


def test_answers_agree_with_the_bits(tmp_path: Path) -> None:
    run = saved(tmp_path / "r", answers=True, units=[None, (1, 2)])
    for row, (step, task) in enumerate(zip(run.trace.step, run.trace.task, strict=True)):
        answers = run.answers.at(step, task)
        assert np.array_equal(answers == TASK[1].numpy(), run.trace.right(row))
        assert task == 0 or set(answers.tolist()) <= {1, 2}
    classes, counts = run.confusion(task=0, step=1)
    assert np.array_equal(counts, np.eye(4)) and classes.tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="no answers were recorded for task 0 at step 9"):
        run.answers.churn(1, 9, task=0)
    with pytest.raises(InputError, match="no answers were recorded"):
        saved(tmp_path / "other").confusion()


def test_answers_survive_a_checkpoint() -> None:
    watch = Evaluator([TASK], answers=True)
    watch(nn.Identity(), learning=0)
    again = Evaluator([TASK], answers=True)
    again.load_state_dict(watch.state_dict())
    again(nn.Identity(), learning=0)
    assert again.answered.step == [1, 2] and again.answered.at(1, 0).tolist() == [0, 1, 2, 3]
    old = watch.state_dict()
    del old["answered"]
    again.load_state_dict(old)
    assert not len(again.answered)


@pytest.mark.parametrize("highest", [200, 60_000, 100_000])
def test_any_class_fits(tmp_path: Path, highest: int) -> None:
    answers = Answers()
    answers.add(step=1, learning=0, task=0, answers=np.array([0, highest]))
    answers.save(tmp_path / "a.parquet")
    assert Answers.load(tmp_path / "a.parquet").at(1, 0).tolist() == [0, highest]


def test_a_run_keeps_its_samples_and_answers_do_not_change_its_id(tmp_path: Path) -> None:
    plain = engram.run("split-digits", "finetune", updates=3, out=tmp_path)
    assert plain.samples is not None and not len(plain.answers)
    # The ids of samples are their places in the data set, which no two tasks share here.
    assert plain.samples.frame["id"].n_unique() == len(plain.samples) == sum(plain.trace.total[-5:])
    asked = engram.run("split-digits", "finetune", updates=3, out=tmp_path, answers=True)
    assert asked.id == plain.id and asked.folder == plain.folder and asked.trace == plain.trace
    assert asked.answers.step == asked.trace.step
    again = engram.run("split-digits", "finetune", updates=3, out=tmp_path)
    assert again.answers == asked.answers, "what is there already is not run once more"
    assert experiment("split-digits", "er", answers=True).id == experiment("split-digits", "er").id
