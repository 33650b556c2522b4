"""`engram data`: the list, and one data set fetched and checked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from engram.cli.data import data
from engram.cli.output import stdout
from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    monkeypatch.setattr(stdout, "width", 200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a little MNIST."""
    x, y = np.zeros((20, 28, 28), np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "mnist.npz", allow_pickle=False, x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    return tmp_path


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(data)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def run_json(*arguments: str) -> dict[str, Any]:
    value = json.loads(run(*arguments, "--json"))
    assert isinstance(value, dict)
    return value


def test_the_list_says_where_each_is_or_what_is_missing(folder: Path) -> None:
    lines = {line.split()[0]: line for line in run("--data", str(folder)).splitlines() if line.strip()}
    assert str(folder / "mnist.npz") in lines["mnist"]
    assert "embedded" in lines["digits"]
    assert "`engram data kmnist` downloads it" in lines["kmnist"]
    assert "needs notmnist.npz; or notMNIST_large and notMNIST_small" in lines["notmnist"]
    assert "697,932 / 116,323" in lines["emnist"]
    assert {name for name in DATASETS if not DATASETS[name].part_of} <= set(lines)


def test_the_list_as_json_has_every_name(folder: Path) -> None:
    value = run_json("--data", str(folder))
    entries = {entry["name"]: entry for entry in value["datasets"]}
    assert set(entries) == set(DATASETS)
    assert entries["mnist"]["found"] == str(folder / "mnist.npz")
    assert entries["mnist"]["missing"] is None
    assert entries["svhn"]["found"] is None
    assert entries["svhn"]["missing"] == "svhn.npz; or train_32x32.mat and test_32x32.mat"
    assert (entries["svhn"]["fetchable"], entries["imagenet"]["fetchable"]) == (True, False)
    assert entries["clear10-2005"]["part_of"] == "clear10"
    assert value["searched"][0] == str(folder)


def test_one_is_checked_and_counted(folder: Path) -> None:
    text = run("mnist", "--data", str(folder))
    assert "train: 20 samples, 2 per class" in text
    assert "10 classes, 1×28×28, in memory" in text
    assert "differs from the published data set, which has 10 classes, 60,000 / 10,000 samples" in text
    value = run_json("mnist", "--data", str(folder))
    assert (value["train"], value["test"], value["complete"]) == (20, 10, False)
    assert value["per_class"]["test"] == [1] * 10


def test_a_complete_one_says_nothing_more() -> None:
    assert "published" not in run("digits")
    assert run_json("digits")["complete"] is True


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(InputError, match="unknown data set 'minst'; did you mean 'mnist'"):
        run("minst")


def test_the_list_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from engram.cli.data import data; "
        f"data(folder=Path({str(folder)!r})); print({{'torch', 'sklearn', 'scipy'}} & set(sys.modules))"
    )
    lines = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert lines[-1] == "set()"
