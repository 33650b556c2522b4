"""Methods of one's own: decorated in a script, or declared by an installed package."""

import subprocess
import sys
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.methods import METHODS, load_plugin
from engram.methods.base import fields_of
from engram.run.recipe import experiment

MODULE = """
from dataclasses import dataclass
from engram import Learner

@dataclass(kw_only=True, eq=False)
class Ours(Learner):
    "Fine-tuning, by a package."
"""


@pytest.mark.slow
def test_a_packages_entry_point_is_a_method(tmp_path: Path) -> None:
    (tmp_path / "ourpackage.py").write_text(MODULE)
    facts = tmp_path / "ourpackage-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: ourpackage\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[engram.methods]\nours = ourpackage:Ours\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + (
        "from engram.methods import METHODS; assert METHODS['ours'].__name__ == 'Ours'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "registers no method"),
        ("def", "does not run: SyntaxError"),
        ("import nothing_of_this_name", "does not run: ModuleNotFoundError"),
        ("undefined", "does not run: NameError"),
        ("1 / 0", "does not run: ZeroDivisionError"),
        ("raise SystemExit(3)", "does not run: SystemExit"),
        ("import engram\n@engram.method('test-plain')\nclass Plain: pass", "test-plain: Plain is no method"),
        ("import engram\n@engram.method('test-function')\ndef no(): pass", "no is no method"),
    ],
)
def test_a_broken_plugin_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        load_plugin(script)
    assert "\n" not in str(error.value)


FUTURE = """
from __future__ import annotations
from dataclasses import dataclass
import engram
from engram.methods.base import Learner

@engram.method("test-future")
@dataclass
class Future(Learner):
    "Fine-tuning with annotations that are text."

    strength: float = 1.0
"""


def test_annotations_may_be_text(tmp_path: Path) -> None:
    script = tmp_path / "future.py"
    script.write_text(FUTURE)
    try:
        load_plugin(script)
        assert [field.name for field in fields_of(METHODS["test-future"])] == ["strength"]
    finally:
        METHODS._entries.pop("test-future", None)


def test_names_of_the_package_are_taken(tmp_path: Path) -> None:
    script = tmp_path / "taken.py"
    script.write_text(FUTURE.replace("test-future", "finetune"))
    ours = METHODS["finetune"]
    with pytest.raises(InputError, match="does not run: method 'finetune' is engram's own"):
        load_plugin(script)
    assert METHODS["finetune"] is ours


def test_an_edited_plugin_is_another_experiment(tmp_path: Path) -> None:
    script = tmp_path / "future.py"
    found = []
    try:
        for text in (FUTURE, FUTURE, FUTURE + "# edited"):
            script.write_text(text)
            load_plugin(script)
            found.append(experiment("split-digits", "test-future").id)
    finally:
        METHODS._entries.pop("test-future", None)
    assert found[0] == found[1] != found[2]
    assert "code" not in experiment("split-digits", "er").as_json()
