"""Methods of one's own: decorated in a script, or declared by an installed package."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.core.plugins import load_plugin
from engram.engine.loop import Outcome, run
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.methods.base import fields_of, usual_needs
from engram.testing import CHECKS

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
        ("x = 1", "registers nothing: write a decorator"),
        ("def", "broken.py, line 1: SyntaxError"),
        ("import nothing_of_this_name", "broken.py, line 1: ModuleNotFoundError"),
        ("undefined", "broken.py, line 1: NameError"),
        ("1 / 0", "broken.py, line 1: ZeroDivisionError"),
        ("raise SystemExit(3)", "broken.py, line 1: SystemExit"),
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
    with pytest.raises(InputError, match=r"taken\.py, line 7: method 'finetune' is engram's own"):
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


@pytest.fixture
def as_before() -> Iterator[None]:
    """What a test registers is forgotten."""
    entries, taken = dict(METHODS._entries), dict(METHODS._taken)
    yield
    METHODS._entries, METHODS._taken = entries, taken


FOUR = """
from dataclasses import dataclass, field
from typing import Any
import torch
import engram
from engram.methods.base import cross_entropy

@engram.method("test-four")
@dataclass
class Four:
    network: Any
    optimizer_spec: Any
    knob: int = 3

    def __post_init__(self):
        self.steps = torch.optim.SGD(self.network.parameters(), lr=self.optimizer_spec.lr, momentum=0.5)
        self.first = []

    def begin_task(self, task):
        self.task = task

    def observe(self, batch):
        self.network.train()
        self.steps.zero_grad()
        loss = cross_entropy(self.network(batch.x), batch)
        loss.backward()
        self.steps.step()
        return loss

    def end_task(self, batches):
        self.first.append(next(iter(batches)))

    def predictor(self):
        return self.network
"""


def learn(script: Path, text: str) -> Outcome:
    script.write_text(text)
    load_plugin(script)
    return run(experiment("split-digits", "test-four", updates=3, evaluation={"every": 100}))


@pytest.mark.usefixtures("as_before")
def test_the_four_verbs_are_enough(tmp_path: Path) -> None:
    outcome = learn(tmp_path / "four.py", FOUR)
    found = METHODS["test-four"]
    assert (found.family, found.paper, found.needs) == ("own", "", ())
    assert usual_needs("test-four", found) == ()
    assert [each.name for each in fields_of(found)] == ["knob"]
    # A batch of each task: its inputs and its labels. The network and the optimiser do not count.
    assert outcome.account.kept_bytes == tuple(32 * (64 * 4 + 8) * tasks for tasks in range(1, 6))
    assert outcome.method.kept_bytes() == outcome.account.kept_bytes[-1]
    # It is put down and taken up to the same bits; the example in CONTRIBUTING.md passes all checks.
    CHECKS["resume"]("test-four")


@pytest.mark.usefixtures("as_before")
def test_what_a_method_says_of_itself_stays(tmp_path: Path) -> None:
    said = """
    needs = ("boundaries",)
    family = "rehearsal"

    def kept_bytes(self):
        return 1_000_000
"""
    outcome = learn(tmp_path / "four.py", FOUR + said)
    found = METHODS["test-four"]
    assert (found.family, found.paper, found.needs) == ("rehearsal", "", ("boundaries",))
    assert set(outcome.account.kept_bytes) == {1_000_000}


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return loss", "pass", "method test-four: observe gives a NoneType: let it return the loss"),
        ("return self.network", "pass", "method test-four: predictor gives a NoneType: let it return"),
    ],
)
def test_a_verb_that_gives_nothing_is_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        learn(tmp_path / "four.py", FOUR.replace(old, new))


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@dataclass", "", "it lacks @dataclass, the field network: make it"),
        ("def observe", "def watch", "it lacks observe: make it"),
        ("    network: Any\n", "", "it lacks the field network: make it"),
        ("def predictor", "def state_dict", "it lacks predictor, load_state_dict: make it"),
        ("@dataclass", "@dataclass(frozen=True)", "leave frozen and slots out"),
        ("@dataclass", "@dataclass(slots=True)", "leave frozen and slots out"),
        ("int = 3", "list = field(default_factory=list)", "method test-four: Four: the field 'knob' needs"),
    ],
)
def test_what_is_missing_is_named_at_once(old: str, new: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "four.py"
    script.write_text(FOUR.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        load_plugin(script)
    assert "\n" not in str(error.value)
    assert "test-four" not in METHODS


@pytest.mark.usefixtures("as_before")
def test_fields_of_a_class_that_is_no_dataclass_itself_do_not_vanish(tmp_path: Path) -> None:
    script = tmp_path / "forgotten.py"
    script.write_text(FUTURE.replace("@dataclass\n", ""))
    with pytest.raises(InputError, match="Future has the fields strength, but is no dataclass itself: decor"):
        load_plugin(script)
    facts = "family: ClassVar[str] = 'x'"
    text = FUTURE.replace("import engram\n", "import engram\nfrom typing import ClassVar\n")
    script.write_text(text.replace("@dataclass\n", "").replace("strength: float = 1.0", facts))
    load_plugin(script)
    assert METHODS["test-future"].family == "x"


def declare(folder: Path, package: str, *points: str) -> None:
    """Install a package that declares methods, as far as Python can tell."""
    facts = folder / f"{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("\n".join(["[engram.methods]", *points]))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_before: None) -> Iterator[None]:
    """A package with a good method, one that is not there, one that is none, and one with a taken name."""
    (tmp_path / "theirpackage.py").write_text(MODULE + "\nclass Plain: ...\n")
    declare(
        tmp_path,
        "theirs",
        "ours = theirpackage:Ours",
        "gone = gonepackage:Gone",
        "plain = theirpackage:Plain",
        "ewc = theirpackage:Ours",
    )
    declare(tmp_path, "unluckier", "ours = gonepackage:Gone")
    monkeypatch.syspath_prepend(str(tmp_path))
    METHODS.find_declared()
    yield
    sys.modules.pop("theirpackage", None)


@pytest.mark.usefixtures("installed")
def test_a_packages_method_is_loaded_and_checked_when_it_is_used() -> None:
    for name, reason in (
        ("gone", "ModuleNotFoundError: No module named 'gonepackage'; mend or uninstall"),
        ("plain", "method plain: Plain is no method, it lacks @dataclass"),
    ):
        with pytest.raises(InputError, match=f"method '{name}' of the package theirs .*{reason}") as error:
            METHODS[name]
        assert "\n" not in str(error.value)
    METHODS._taken.clear()
    found, broken = METHODS.loaded()
    assert "ours" in found and "ewc" in found and "gone" not in found
    assert len(broken) == 2 and all("package theirs cannot be used" in line for line in broken)


@pytest.mark.usefixtures("installed")
def test_names_that_are_taken_stay_what_they_are() -> None:
    from engram.methods.ewc import EWC

    with pytest.warns(UserWarning, match="package theirs declares a method 'ewc', a name that engram has"):
        assert METHODS["ewc"] is EWC
    with pytest.warns(
        UserWarning, match="unluckier declares a method 'ours', a name that the package theirs"
    ):
        assert METHODS["ours"].__name__ == "Ours"
        assert "code" in experiment("split-digits", "ours").as_json()
    assert METHODS["er"].__name__ == "ER"
