"""The example in CONTRIBUTING.md is complete and passes the contract."""

import re
from pathlib import Path

import pytest

from engram.methods import METHODS, load_plugin
from engram.run.loop import run
from engram.run.recipe import experiment
from engram.testing import CHECKS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tether(tmp_path_factory: pytest.TempPathFactory) -> str:
    code = re.findall(
        r"```python\n# my_method.py\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    assert len(code) == 1
    script = tmp_path_factory.mktemp("plugin") / "my_method.py"
    script.write_text(code[0])
    load_plugin(script)
    return "tether"


@pytest.mark.parametrize("check", CHECKS)
def test_the_example_method_holds_to_the_contract(tether: str, check: str) -> None:
    CHECKS[check](tether)


def test_the_example_method_does_something(tether: str) -> None:
    assert tether in METHODS
    outcome = run(experiment("split-digits", tether, updates=10, settings={"strength": 0.01}))
    free = run(experiment("split-digits", tether, updates=10, settings={"strength": 0.0}))
    assert outcome.evaluator.trace != free.evaluator.trace
