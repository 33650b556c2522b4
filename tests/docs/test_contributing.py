"""The examples in CONTRIBUTING.md are complete and pass the contract."""

import re
from pathlib import Path

import pytest

from engram.core.plugins import load_plugin
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.testing import CHECKS

ROOT = Path(__file__).parents[2]


def load_example(file: str, folder: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = re.findall(rf"```python\n# {file}\n(.*?)```", text, re.DOTALL)
    assert len(code) == 1
    script = folder / file
    script.write_text(code[0])
    load_plugin(script)


@pytest.fixture(scope="module")
def tether(tmp_path_factory: pytest.TempPathFactory) -> str:
    load_example("my_method.py", tmp_path_factory.mktemp("plugin"))
    return "tether"


@pytest.fixture(scope="module")
def sign_step(tmp_path_factory: pytest.TempPathFactory) -> str:
    load_example("my_loop.py", tmp_path_factory.mktemp("plugin"))
    return "sign-step"


@pytest.mark.parametrize("check", CHECKS)
def test_the_example_method_holds_to_the_contract(tether: str, check: str) -> None:
    CHECKS[check](tether)


@pytest.mark.parametrize("check", CHECKS)
def test_the_example_without_a_learner_holds_to_the_contract(sign_step: str, check: str) -> None:
    CHECKS[check](sign_step)


def test_the_example_method_does_something(tether: str) -> None:
    assert tether in METHODS
    outcome = run(experiment("split-digits", tether, updates=10, settings={"strength": 0.01}))
    free = run(experiment("split-digits", tether, updates=10, settings={"strength": 0.0}))
    assert outcome.evaluator.trace != free.evaluator.trace
