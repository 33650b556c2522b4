"""The experiment of a run that was loaded: rebuilt from its folder, whichever version wrote it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import engram
from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.jsons import JsonObject
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.record.description import save_description
from engram.record.experiment import Experiment
from engram.record.run import Run

# Method, settings, and the end of the id in each setting.
WRITTEN: tuple[tuple[str, JsonObject, dict[str, str]], ...] = (
    (
        "a-gem",
        {"memory": 10, "memory_batch": 32, "policy": "random"},
        {"class": "1e3231a85c8a", "task": "5cc6dc5563cb"},
    ),
    (
        "der++",
        {"memory": 100, "memory_batch": None, "logit_weight": 0.1, "label_weight": 0.5},
        {"class": "5e6f4c3b1b63", "task": "07480f0be1da"},
    ),
    (
        "dgr",
        {"latent": 100, "width": None, "low": None, "high": None},
        {"class": "3c4a21ec78f8", "task": "4a55dad7d9cb"},
    ),
    ("er-ace", {"memory": 100, "memory_batch": None}, {"class": "050d085651f0", "task": "ffa296a74ea6"}),
    (
        "er",
        {"memory": 100, "memory_batch": 32, "weight": 0.5, "policy": "class-balanced"},
        {"class": "e534db99f667", "task": "012de8f1a081"},
    ),
    (
        "ewc",
        {"strength": 30.0, "label": "predicted", "fisher": "sample", "slots": "separate"},
        {"class": "35fb9e008da6", "task": "9ba02eea295f"},
    ),
    ("finetune", {}, {"class": "df2907290de6", "task": "9b67d6c975f6"}),
    (
        "fomaml",
        {"inner_steps": 2, "previous": 1, "inner_lr": None, "memory": 10},
        {"class": "f93cb75829ed", "task": "3f28c79a5734"},
    ),
    (
        "gdumb",
        {
            "memory": 100,
            "epochs": 30,
            "batch": 16,
            "lr": 0.05,
            "lr_min": 0.0005,
            "momentum": 0.9,
            "weight_decay": 1e-06,
            "clip": 10.0,
            "cutmix": 0.0,
            "augment": False,
        },
        {"class": "79017b8cb9b1", "task": "15e3d2a4ca5d"},
    ),
    (
        "gem",
        {"memory": 20, "margin": 0.5, "policy": "random", "ridge": 0.001},
        {"class": "5ac52fee2e89", "task": "785b57c7ae24"},
    ),
    ("icarl", {"memory": 100}, {"class": "6e5551994962", "task": "79d02d57c56c"}),
    (
        "imm-mean",
        {"balance": "equal", "weight_transfer": True, "l2_transfer": 0.0, "drop_transfer": 0.0},
        {"class": "f31180045a04", "task": "494858d2c0e9"},
    ),
    (
        "imm-mode",
        {
            "balance": "equal",
            "weight_transfer": True,
            "l2_transfer": 0.0,
            "drop_transfer": 0.0,
            "fisher": "sample",
            "recent": 256,
        },
        {"class": "364aac6cbdcd", "task": "dc53e73725ff"},
    ),
    ("l2", {"strength": 0.1}, {"class": "729c74cecd69", "task": "e070953906f2"}),
    ("lp-ft", {"probe_epochs": 10}, {"class": "d1bc485558df", "task": "c749d7e84622"}),
    (
        "lwf",
        {
            "temperature": 2.0,
            "weight": 1.0,
            "squared": False,
            "form": "kl",
            "mean_over_units": False,
            "softmax": "known",
            "teacher_mode": "eval",
        },
        {"class": "ccf933bf2f31", "task": "e42eed2b909f"},
    ),
    ("mas", {"strength": 0.1, "gradients": "batch"}, {"class": "7e0f31830e9f", "task": "00a3356a1880"}),
    (
        "multitask",
        {"weight": 1.0, "memory_batch": 64, "previous": "union"},
        {"class": "c819206d7f23", "task": "819f7e0ce9f9"},
    ),
    ("naive-rehearsal-c", {"memory": 400, "mode": "half"}, {"class": "d8f56dbde42c", "task": "d927fccb76a8"}),
    ("naive-rehearsal", {"memory": 100, "mode": "half"}, {"class": "5ac9cdaa169c", "task": "15e7de14b2af"}),
    ("offline", {}, {"class": "b5bd8097a1c4", "task": "babcf2ebaf3f"}),
    (
        "online-ewc",
        {"strength": 30.0, "decay": 1.0, "label": "predicted", "fisher": "sample"},
        {"class": "4334276b3aab", "task": "b6fea3925e89"},
    ),
    (
        "rtf",
        {
            "temperature": 2.0,
            "mean_over_units": True,
            "latent": 100,
            "width": None,
            "low": None,
            "high": None,
        },
        {"class": "f1b9c6a87a68", "task": "0a31c9299dad"},
    ),
    (
        "si",
        {"strength": 1.0, "damping": 0.1, "clip": True},
        {"class": "85c9e79bd899", "task": "1e25f9b1f39f"},
    ),
    ("independent", {"keep": True}, {"task": "042973bb1c6f"}),
    ("packnet", {"prune": 0.75, "retrain": 0.3333333333333333}, {"task": "af2c279949c0"}),
)


def as_written(method: str, settings: JsonObject, setting: str, digest: str) -> JsonObject:
    """What version 0.1 wrote to `experiment.json` of `engram run split-digits METHOD --updates 25`."""
    sgd = {
        **{"name": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.0, "reset": True},
        "schedule": "constant",
    }
    optimizers = {
        "fomaml": {**sgd, "lr": 0.01, "momentum": 0.0},
        "dgr": {**sgd, "name": "adam", "lr": 0.001, "momentum": 0.0},
        "rtf": {**sgd, "name": "adam", "lr": 0.001, "momentum": 0.0},
    }
    knowledge = {"classes_known": True, "mask_evaluation": True, "boundaries": True}
    return {
        "format": 1,
        "id": f"split-digits-{setting}-{method}-s0-{digest}",
        "label": f"{method} on split-digits ({setting})",
        "scenario": {
            "name": "split-digits",
            "tasks": [
                {
                    "source": {"dataset": "digits", "classes": [first, first + 1]},
                    "units": [first, first + 1],
                    "transforms": [{"mean": [0.0], "std": [1.0], "kind": "normalise"}],
                    "name": f"digits {first}/{first + 1}",
                }
                for first in (0, 2, 4, 6, 8)
            ],
            "setting": {"kind": "task"} if setting == "task" else {**knowledge, "kind": setting},
            "phases": [[0, 1, 2, 3, 4]] if method == "offline" else [[0], [1], [2], [3], [4]],
            "passes": None,
        },
        "method": method,
        "settings": settings,
        "model": {
            **{"name": "mlp", "hidden": [64, 64], "dropout_input": 0.0, "dropout_hidden": 0.0, "block": 2},
            **{"stem": "32", "init": "default"},
        },
        "optimizer": optimizers.get(method, sgd),
        "batch_size": 32,
        "epochs": 50 if method == "offline" else 10,
        "updates": 25,
        "evaluation": {
            **{
                "every": 1,
                "per_epoch": False,
                "subset": 1000,
                "redraw": False,
                "tasks": "seen",
                "on": "test",
            },
            **{"before": True, "full_ends": False, "losses": False, "gradients": False},
        },
        "budget_bytes": None,
        "seed": 0,
    }


@pytest.mark.parametrize(("method", "settings", "digests"), WRITTEN)
def test_what_version_0_1_wrote_is_an_equal_experiment(
    method: str, settings: JsonObject, digests: dict[str, str], tmp_path: Path
) -> None:
    for setting, digest in digests.items():
        written = as_written(method, settings, setting, digest)
        write_json(tmp_path / setting / "experiment.json", written)
        run = Run.load(tmp_path / setting)
        planned = experiment("split-digits", method, setting=setting, updates=25)
        if (method, setting) == ("imm-mean", "task"):
            assert planned.earlier_ids == (written["id"],), "its results were corrected since"
            continue
        assert run.planned is None and run.experiment.id == written["id"]
        assert run.experiment == planned


def test_a_run_of_a_training_loop_has_no_experiment(tmp_path: Path) -> None:
    save_description(tmp_path, {"id": "mine", "label": "mine", "tasks": ["a", "b"]})
    with pytest.raises(
        InputError, match=r"^the run mine was recorded in a training loop: it has no experiment$"
    ):
        _ = Run.load(tmp_path).experiment


@dataclass(kw_only=True, eq=False)
class Mine(engram.Learner):
    """Fine-tuning under another name."""


def test_code_that_is_not_loaded_is_not_taken_for_the_same_experiment(tmp_path: Path) -> None:
    try:
        planned = experiment("split-digits", Mine)
        save_description(tmp_path, planned.as_json())
        assert Run.load(tmp_path).experiment == planned
    finally:
        METHODS.remove("Mine")
    with pytest.raises(InputError, match=r"is not loaded, or its code has changed$"):
        _ = Run.load(tmp_path).experiment


def test_what_is_damaged_is_said_with_the_run(tmp_path: Path) -> None:
    written = experiment("split-digits", "er").as_json()
    save_description(tmp_path, {**written, "epochs": "three"})
    with pytest.raises(InputError, match=rf"run {written['id']} cannot be rebuilt: .*epochs must be a whole"):
        _ = Run.load(tmp_path).experiment


def test_a_setting_that_came_later_has_its_default() -> None:
    planned = experiment("split-digits", "dgr", settings={"sure": 0.5})
    assert "sure" not in experiment("split-digits", "dgr").as_json()["settings"]
    assert Experiment.of_json(planned.as_json()) == planned
