"""The examples in CONTRIBUTING.md and README.md are complete; the methods among them pass the contract."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import engram
from engram.core.plugins import load_plugin
from engram.methods import METHODS
from engram.testing import CHECKS

ROOT = Path(__file__).parents[2]


def write_example(file: str, folder: Path, *, page: str = "CONTRIBUTING.md") -> Path:
    """The example that names this file in its first line, as that file."""
    text = (ROOT / page).read_text("utf-8")
    [code] = re.findall(rf"```python\n# {file}\n(.*?)```", text, re.DOTALL)
    script = folder / file
    script.write_text(code, "utf-8")
    return script


def command(*arguments: object, folder: Path) -> str:
    """What a fresh interpreter prints: what an example registers is not there for the other tests."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tether(tmp_path_factory: pytest.TempPathFactory) -> str:
    load_plugin(write_example("my_method.py", tmp_path_factory.mktemp("plugin")))
    return "tether"


@pytest.fixture(scope="module")
def sign_step(tmp_path_factory: pytest.TempPathFactory) -> str:
    load_plugin(write_example("my_loop.py", tmp_path_factory.mktemp("plugin")))
    return "sign-step"


@pytest.mark.parametrize("check", CHECKS)
def test_the_example_method_holds_to_the_contract(tether: str, check: str) -> None:
    CHECKS[check](tether)


@pytest.mark.parametrize("check", CHECKS)
def test_the_example_without_a_learner_holds_to_the_contract(sign_step: str, check: str) -> None:
    CHECKS[check](sign_step)


def test_the_example_method_does_something(tether: str) -> None:
    assert tether in METHODS
    pulled = engram.run("split-digits", tether, updates=10, settings={"strength": 0.01})
    free = engram.run("split-digits", tether, updates=10, settings={"strength": 0.0})
    assert pulled.trace != free.trace


@pytest.mark.parametrize(
    ("page", "name"), [("CONTRIBUTING.md", "min-last"), ("README.md", "weakest-task")], ids=["page", "readme"]
)
def test_the_example_metric_is_known_everywhere(page: str, name: str, tmp_path: Path) -> None:
    script = write_example("my_metric.py", tmp_path, page=page)
    engram_command = ("-m", "engram")
    for seed in (0, 1):
        for method in ("finetune", "er"):
            run = engram.run("split-digits", method, updates=3, seed=seed)
            run.save(tmp_path / "runs" / f"{method}-{seed}")
    assert name in command(*engram_command, "list", "metrics", "--plugin", script, folder=tmp_path)
    assert "lowest accuracy" in command(*engram_command, "explain", name, "--plugin", script, folder=tmp_path)
    compared = command(
        *engram_command, "compare", "runs", "--plugin", script, "--metric", name, folder=tmp_path
    )
    assert name in compared


@pytest.mark.slow
def test_the_example_scenario_runs(tmp_path: Path) -> None:
    script = write_example("my_stream.py", tmp_path)
    assert "my-stream" in command("-m", "engram", "list", "scenarios", "--plugin", script, folder=tmp_path)
    arguments = ("run", "my-stream", "finetune", "--plugin", script, "--updates", 3)
    assert "ACC" in command("-m", "engram", *arguments, folder=tmp_path)


@pytest.mark.slow
def test_the_example_data_set_runs(tmp_path: Path) -> None:
    script = write_example("my_data.py", tmp_path)
    assert "my-data" in command("-m", "engram", "list", "datasets", "--plugin", script, folder=tmp_path)
    code = (
        "import engram, my_data; from engram.scenarios import split; "
        "run = engram.run(split('my-data', 1, setting='class'), 'finetune', updates=3); "
        "print(len(run.trace))"
    )
    assert int(command("-c", code, folder=tmp_path)) > 0


@pytest.mark.slow
def test_the_example_tracker_is_told(tmp_path: Path) -> None:
    printed = command(write_example("my_tracker.py", tmp_path), folder=tmp_path).splitlines()
    assert len(printed) > 5 and printed[-1].startswith("done ")
