"""Plugins: one decorator in one file is enough, and mistakes are told with their line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import engram
from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.core.plugins import load_plugin
from engram.core.registry import OPEN
from engram.engine.loop import run
from engram.models import MODELS, build
from engram.scenarios import BENCHMARKS

SCENARIO = """
import engram
from engram.scenarios import Recipe, split

recipe = Recipe(epochs=2, model_options={"hidden": (8,)})

@engram.scenario("test-odd", recipe=recipe, settings=("task", "class"))
def odd(setting):
    "The odd digits, one at a time."
    return split("digits", 1, setting=setting, order=(1, 3, 5, 7, 9))
"""
DATASET = """
import engram
import numpy as np

@engram.dataset("test-stripes", classes=("across", "down"))
def stripes():
    draw = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = draw.integers(0, 90, (40, 6, 6)).astype(np.uint8)
    x[y == 0, ::2] += 150
    x[y == 1, :, ::2] += 150
    return (x[:30], y[:30]), (x[30:], y[30:])
"""
MODEL = """
from typing import Annotated

import engram
from pydantic import Field
from torch import nn

@engram.model("test-narrow", head="2")
def narrow(shape, n_units, *, width: Annotated[int, Field(ge=2, description="Units before the head")] = 5):
    "A narrow one."
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, n_units))
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A place for a plugin; what it registers is forgotten."""
    yield tmp_path / "mine.py"
    for registry in OPEN:
        for name in [name for name in registry if name.startswith("test-")]:
            registry.remove(name)


def test_only_a_scenario(script: Path) -> None:
    script.write_text(SCENARIO)
    load_plugin(script)
    named = BENCHMARKS["test-odd"]
    assert (named.description, named.setting_names) == ("The odd digits, one at a time", ("task", "class"))
    planned = engram.experiment("test-odd", "finetune")
    assert (planned.epochs, planned.model.hidden, len(planned.scenario.tasks)) == (2, (8,), 5)
    assert engram.experiment("test-odd", "er", setting="class").scenario.setting.kind == "class"


def test_only_a_data_set(script: Path) -> None:
    script.write_text(DATASET)
    load_plugin(script)
    info = DATASETS["test-stripes"]
    assert (info.classes, info.shape, info.train, info.test) == (2, (1, 6, 6), 30, 10)
    assert engram.datasets.load("test-stripes").classes == ("across", "down")
    stream = engram.scenarios.split("test-stripes", 1, setting="class")
    planned = engram.experiment(stream, "finetune", hidden=(8,), batch_size=10)
    assert run(planned).updates == 4
    assert planned.as_json()["code"] == {"data set test-stripes": info.digest}
    before = planned.id
    # Other data under the same name are another experiment, and are what is loaded.
    script.write_text(DATASET.replace("default_rng(0)", "default_rng(1)"))
    load_plugin(script)
    other = engram.experiment(stream, "finetune", hidden=(8,), batch_size=10)
    assert DATASETS["test-stripes"].digest != info.digest and other.id != before


def test_only_a_model_with_an_option(script: Path) -> None:
    script.write_text(MODEL)
    load_plugin(script)
    usual = engram.experiment("split-digits", "finetune", model="test-narrow")
    wide = engram.experiment("split-digits", "finetune", model="test-narrow", width=7, updates=2)
    assert (usual.model.width, wide.model.width) == (5, 7) and usual.id != wide.id
    assert "model" in usual.as_json()["code"] and wide.as_json()["model"]["width"] == 7
    assert build(wide.model, shape=(1, 8, 8), n_units=10, seed=0).width == 7 and run(wide)
    assert [option.name for option in MODELS["test-narrow"].declared] == ["width"]
    with pytest.raises(InputError, match="width must be at least 2, got 1"):
        engram.experiment("split-digits", "finetune", model="test-narrow", width=1)
    with pytest.raises(InputError, match="model mlp has no option width: it has hidden, dropout_input"):
        engram.experiment("split-digits", "finetune", width=3)
    with pytest.raises(InputError, match="model test-narrow has no option hidden: it belongs to mlp, lwta"):
        engram.experiment("split-digits", "finetune", model="test-narrow", hidden=(3,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import engram\n\n\nundefined_name", r"mine\.py, line 4: NameError: name 'undefined_name'"),
        ("def broken(:\n    pass", r"mine\.py, line 1: SyntaxError"),
        ("def deep():\n    return 1 / 0\n\n\ndeep()", r"mine\.py, line 2: ZeroDivisionError"),
        ("import json\njson.loads('{')", r"mine\.py, line 2: JSONDecodeError"),
        (
            "import engram\n@engram.model('a/b')\ndef f(shape, n_units): ...",
            "line 2: 'a/b' cannot name",
        ),
        (
            "import engram\n@engram.model('test-x')\ndef f(): ...",
            "line 2: model test-x: the function",
        ),
        ("import engram\n@engram.scenario('split-digits')\ndef f(): ...", "'split-digits' is engram's own"),
        ("import engram\n@engram.dataset('mnist')\ndef f(): ...", "data set 'mnist' is engram's own"),
        ("x = 1", "registers nothing: write a decorator above .* or @engram.scenario"),
    ],
)
def test_mistakes_are_told_with_their_line(text: str, message: str, script: Path) -> None:
    script.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_plugin(script)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "must return \\(x_train, y_train\\), \\(x_test, y_test\\)"),
        ("return 1 / 0", r"data set test-broken: .*mine\.py, line 4: ZeroDivisionError"),
    ],
)
def test_a_data_set_that_cannot_be_made(body: str, message: str, script: Path) -> None:
    script.write_text(f"import engram\n@engram.dataset('test-broken')\ndef f():\n    {body}\n")
    load_plugin(script)
    with pytest.raises(InputError, match=message):
        DATASETS["test-broken"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(): return 3", "scenario test-broken: the function returns int, not a Scenario"),
        ("def f(setting, size): ...", "has a parameter 'size': only setting and seed are passed"),
    ],
)
def test_a_scenario_that_cannot_be_made(text: str, message: str, script: Path) -> None:
    script.write_text(f"import engram\n@engram.scenario('test-broken')\n{text}\n")
    load_plugin(script)
    with pytest.raises(InputError, match=message):
        engram.experiment("test-broken", "er")


@pytest.mark.parametrize("text", ["import engram\n\nx = undefined", "import engram\n\ndef"])
def test_a_plugin_named_by_a_relative_path_is_told_with_its_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^the plugin mine\.py, line 3: (Name|Syntax)Error"):
        load_plugin(Path("mine.py"))
