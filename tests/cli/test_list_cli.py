"""`engram list`."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.command import Engram

from engram.cli.listing import list_
from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.methods import METHODS
from engram.models import MODELS
from engram.scenarios import BENCHMARKS

KINDS = ("scenarios", "models", "methods", "metrics", "datasets", "optimizers")


@pytest.fixture
def listing(capsys: pytest.CaptureFixture[str]) -> Any:
    app = typer.Typer()
    app.command()(list_)

    def run(*arguments: str) -> str:
        app(args=list(arguments), standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_table_and_the_same_names_in_json(listing: Any, kind: str) -> None:
    table = listing(kind)
    entries = json.loads(listing(kind, "--json"))[kind]
    assert entries
    for entry in entries:
        if entry.get("part_of"):
            continue
        assert any(line.startswith(entry["name"]) for line in table.splitlines())


@pytest.mark.parametrize("kind", KINDS)
def test_singular_is_fine(listing: Any, kind: str) -> None:
    assert listing(kind.removesuffix("s"), "--json") == listing(kind, "--json")


def test_everything_registered_is_listed(listing: Any) -> None:
    for kind, names in (("models", MODELS), ("methods", METHODS), ("datasets", DATASETS)):
        assert [entry["name"] for entry in json.loads(listing(kind, "--json"))[kind]] == list(names)
    scenarios = [entry["name"] for entry in json.loads(listing("scenarios", "--json"))["scenarios"]]
    assert scenarios == [*BENCHMARKS, "slt-CODE-DATASET"]


def test_a_scenario_comes_with_settings_size_and_recipe(listing: Any) -> None:
    entries = {entry["name"]: entry for entry in json.loads(listing("scenarios", "--json"))["scenarios"]}
    mnist = entries["split-mnist"]
    assert mnist["settings"] == ["class", "task", "domain"]
    assert (mnist["tasks"], mnist["units"]) == (5, 10)
    assert mnist["recipe"]["batch_size"] == 256
    assert mnist["recipe"]["methods"]["er"]["fields"]["memory"] == 2000
    assert "D5-5a" in entries["slt-CODE-DATASET"]["description"]


def test_a_method_comes_with_its_fields(listing: Any) -> None:
    entries = {entry["name"]: entry for entry in json.loads(listing("methods", "--json"))["methods"]}
    assert {"name", "type", "default", "doc"} == set(entries["er"]["fields"][0])
    assert entries["finetune"]["fields"] == []
    table = listing("methods")
    assert "memory=2000" in table
    assert "distillation" in table and "stored data" in table


def test_offline_is_said_to_need_all_tasks(listing: Any) -> None:
    entries = {entry["name"]: entry for entry in json.loads(listing("methods", "--json"))["methods"]}
    assert entries["offline"]["needs"] == ["all tasks at once"]
    assert entries["finetune"]["needs"] == []


PLUGIN = """
import engram
from torch import nn

@engram.method("test-listed")
class Listed(engram.Learner):
    "Fine-tuning by another name."

@engram.model("test-listed-net", head="1")
def net(shape, n_units):
    "A linear one."
    return nn.Sequential(nn.Flatten(), nn.Linear(64, n_units))
"""


@pytest.mark.parametrize("kind", ["methods", "models"])
def test_ones_own_are_listed_and_explained(kind: str, tmp_path: Path, engram: Engram) -> None:
    script = tmp_path / "mine.py"
    script.write_text(PLUGIN)
    try:
        done = engram("list", kind, "--plugin", script)
        assert done.returncode == 0 and "test-listed" in done.stdout
        done = engram("explain", "test-listed", "--plugin", script)
        assert done.returncode == 0 and "Fine-tuning by another name." in done.stdout
    finally:
        METHODS._entries.pop("test-listed", None)
        MODELS._entries.pop("test-listed-net", None)
    for verb in (("list", kind), ("explain", "ewc")):
        done = engram(*verb, "--plugin", "nowhere.py")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "error: the plugin nowhere.py does not exist: name a Python file\n"


@pytest.mark.filterwarnings("default")
def test_a_broken_or_greedy_package_does_not_break_the_list(
    engram: Engram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    monkeypatch.setattr(METHODS, "_taken", {})
    METHODS.declare("test-gone", "theirs", lambda: import_module("gonepackage"))
    METHODS.declare("ewc", "theirs", lambda: import_module("gonepackage"))
    done = engram("list", "methods", "--json")
    names = [entry["name"] for entry in done.json["methods"]]
    assert "ewc" in names and "test-gone" not in names
    broken, taken = (
        "method 'test-gone' of the package theirs cannot be used: ModuleNotFoundError: No module named "
        "'gonepackage'; fix or uninstall the package",
        "warning: the package theirs declares a method 'ewc', a name that engram has already: that of engram "
        "is used",
    )
    assert done.stderr.splitlines() == [taken, f"left out: {broken}"]
    done = engram("explain", "ewc")
    assert done.returncode == 0 and done.stderr == f"{taken}\n"
    for command in (("explain", "test-gone"), ("run", "split-digits", "test-gone")):
        done = engram(*command)
        assert (done.returncode, done.stderr) == (2, f"error: {broken}\n")
    assert engram("explain", "er").stderr == ""


def test_an_unknown_kind_gets_the_nearest_one(listing: Any) -> None:
    with pytest.raises(InputError, match="unknown kind 'metric5'; did you mean 'metrics'"):
        listing("metric5")


def test_listing_scenarios_does_not_import_torch() -> None:
    code = (
        "import sys; from engram.cli.listing import list_; list_('scenarios'); list_('datasets');"
        "sys.exit(bool({'torch', 'sklearn', 'plotly', 'scipy', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
