"""A correction changes the ids of the experiments whose results it changes, and of no others."""

from dataclasses import replace
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.engine.recipe import experiment
from engram.record.description import save_description
from engram.record.experiment import Experiment
from engram.record.revisions import REVISIONS
from engram.record.run import Run
from engram.scenarios import prefix


def names(planned: Experiment) -> list[str]:
    return list(planned.as_json().get("revised", []))


def test_each_revision_applies_where_results_changed() -> None:
    assert names(experiment("split-digits", "imm-mean", setting="task")) == ["own-heads"]
    for other in (
        experiment("split-digits", "imm-mean", setting="class"),
        experiment("split-digits", "imm-mean", setting="domain"),
        experiment("split-digits", "imm-mode", setting="task"),
        replace(
            experiment("split-digits", "imm-mean", setting="task"),
            scenario=prefix(experiment("split-digits", "imm-mean", setting="task").scenario, 1),
        ),
    ):
        assert names(other) == []
    assert names(experiment("split-cifar10-003", "finetune")) == ["black-crops"]
    assert names(experiment("split-cifar10-003", "finetune", augment=False)) == []
    assert names(experiment("split-cifar10-003", "gdumb", augment=True)) == ["black-crops"]
    assert names(experiment("split-digits", "er", augment=True)) == []


def test_ids_before_a_correction_are_known() -> None:
    """The id of the same fields as it was, which records may hold."""
    planned = experiment("split-cifar10-003", "imm-mean", setting="task")
    assert names(planned) == ["own-heads", "black-crops"]
    assert len({planned.id, *planned.earlier_ids}) == 3
    assert experiment("split-digits", "imm-mean", setting="task").earlier_ids == (
        "split-digits-task-imm-mean-s0-1080374f24fc",
    )
    assert experiment("split-digits", "er").earlier_ids == ()
    again = Experiment.of_json(planned.as_json())
    assert again == planned and again.id == planned.id


def test_a_run_from_before_says_what_changed_since(tmp_path: Path) -> None:
    planned = experiment("split-digits", "imm-mean", setting="task")
    written = {**planned.as_json(), "id": planned.earlier_ids[0]}
    del written["revised"]
    save_description(tmp_path, written)
    with pytest.raises(InputError, match="ran before a correction"):
        _ = Run.load(tmp_path).experiment


def test_names_are_given_once() -> None:
    assert len({revision.name for revision in REVISIONS}) == len(REVISIONS)
