"""Methods of one's own: decorated in a script, or declared by an installed package."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drained import drained

from engram.core.errors import InputError
from engram.core.plugins import load_plugin
from engram.engine.observers import Step
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.methods.fields import fields_of
from engram.methods.traits import Traits
from engram.record.run import Run
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
        (
            "import engram\n@engram.method('test-plain')\nclass Plain: pass",
            "test-plain: Plain is not a valid method; it is missing",
        ),
        ("import engram\n@engram.method('test-function')\ndef no(): pass", "no is not a valid method"),
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
    ids = []
    try:
        for text in (FUTURE, FUTURE, FUTURE + "# edited"):
            script.write_text(text)
            load_plugin(script)
            ids.append(experiment("split-digits", "test-future").id)
    finally:
        METHODS._entries.pop("test-future", None)
    assert ids[0] == ids[1] != ids[2]
    assert "code" not in experiment("split-digits", "er").as_json()


@pytest.fixture
def as_before() -> Iterator[None]:
    """What a test registers is forgotten."""
    names, taken = set(METHODS), dict(METHODS._taken)
    yield
    for name in set(METHODS) - names:
        METHODS.remove(name)
    METHODS._taken = taken


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


def learn(script: Path, text: str) -> tuple[Run, Step]:
    script.write_text(text)
    load_plugin(script)
    return drained(experiment("split-digits", "test-four", updates=3, evaluation={"every": 100}))


@pytest.mark.usefixtures("as_before")
def test_the_four_verbs_are_enough(tmp_path: Path) -> None:
    outcome, last = learn(tmp_path / "four.py", FOUR)
    assert outcome.account is not None and last.method is not None
    assert traits_of("test-four") == Traits(family="own", paper="", needs=(), learner=False)
    assert traits_of("test-four").usual_needs == ()
    assert [field.name for field in fields_of(METHODS["test-four"])] == ["knob"]
    # A batch of each task: its inputs and its labels. The network and the optimiser do not count.
    assert outcome.account.kept_bytes == tuple(32 * (64 * 4 + 8) * tasks for tasks in range(1, 6))
    assert last.method.kept_bytes() == outcome.account.kept_bytes[-1]
    # It is put down and taken up to the same bits; the example in CONTRIBUTING.md passes all checks.
    CHECKS["resume"]("test-four")


@pytest.mark.usefixtures("as_before")
def test_what_a_method_says_of_itself_stays(tmp_path: Path) -> None:
    attributes = """
    needs = ("boundaries",)
    family = "rehearsal"

    def kept_bytes(self):
        return 1_000_000
"""
    outcome, _ = learn(tmp_path / "four.py", FOUR + attributes)
    assert outcome.account is not None
    traits = traits_of("test-four")
    assert (traits.family, traits.paper, traits.needs) == ("rehearsal", "", ("boundaries",))
    assert set(outcome.account.kept_bytes) == {1_000_000}


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return loss", "pass", "method test-four: observe must return the loss as a number, got NoneType"),
        (
            "return self.network",
            "pass",
            "method test-four: predictor must return the network that answers, got NoneType",
        ),
    ],
)
def test_a_verb_that_gives_nothing_is_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        learn(tmp_path / "four.py", FOUR.replace(old, new))


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@dataclass", "", "it is missing @dataclass, the field network. Make it"),
        ("def observe", "def watch", "it is missing observe. Make it"),
        ("    network: Any\n", "", "it is missing the field network. Make it"),
        ("def predictor", "def state_dict", "it is missing predictor, load_state_dict. Make it"),
        ("@dataclass", "@dataclass(frozen=True)", "remove frozen and slots"),
        ("@dataclass", "@dataclass(slots=True)", "remove frozen and slots"),
        ("int = 3", "list = field(default_factory=list)", "method test-four: Four: the field 'knob' needs"),
    ],
)
def test_what_is_missing_is_named_at_once(old: str, new: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "four.py"
    script.write_text(FOUR.replace(old, new))
    with pytest.raises(InputError, match=message) as error:
        load_plugin(script)
    assert "\n" not in str(error.value)
    assert f"({script}, line " in str(error.value)
    assert "test-four" not in METHODS


@pytest.mark.usefixtures("as_before")
def test_fields_of_a_class_that_is_no_dataclass_itself_do_not_vanish(tmp_path: Path) -> None:
    script = tmp_path / "forgotten.py"
    script.write_text(FUTURE.replace("@dataclass\n", ""))
    with pytest.raises(
        InputError, match="Future has the fields strength, but is not a dataclass itself: decor"
    ):
        load_plugin(script)
    facts = "family: ClassVar[str] = 'x'"
    text = FUTURE.replace("import engram\n", "import engram\nfrom typing import ClassVar\n")
    script.write_text(text.replace("@dataclass\n", "").replace("strength: float = 1.0", facts))
    load_plugin(script)
    assert traits_of("test-future").family == "x"


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
        ("gone", "ModuleNotFoundError: No module named 'gonepackage'; fix or uninstall"),
        ("plain", "method plain: Plain is not a valid method; it is missing @dataclass"),
    ):
        with pytest.raises(InputError, match=f"method '{name}' of the package theirs .*{reason}") as error:
            METHODS[name]
        assert "\n" not in str(error.value)
    METHODS._taken.clear()
    loaded, broken = METHODS.loaded()
    assert "ours" in loaded and "ewc" in loaded and "gone" not in loaded
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


DECLARED = """
from dataclasses import dataclass
import engram

@engram.method("test-future", family="prior", paper="Doe (2026)", needs=("boundaries",), joint=True)
@dataclass(kw_only=True, eq=False)
class Declared(engram.Learner):
    "Fine-tuning that declares what it is."
"""


@pytest.mark.usefixtures("as_before")
def test_what_is_declared_at_the_decorator_is_what_everybody_asks_for(tmp_path: Path) -> None:
    script = tmp_path / "declared.py"
    script.write_text(DECLARED)
    load_plugin(script)
    wanted = Traits(family="prior", paper="Doe (2026)", needs=("boundaries",), joint=True, learner=True)
    assert traits_of("test-future") == traits_of(METHODS["test-future"]) == wanted
    assert len(experiment("split-digits", "test-future").scenario.phases) == 1


@pytest.mark.usefixtures("as_before")
def test_a_class_below_a_method_inherits_its_traits_unless_it_says_otherwise(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "from dataclasses import dataclass\nimport engram\nfrom engram.methods.er import ER\n"
        "@engram.method('test-child')\n@dataclass(kw_only=True, eq=False)\nclass Child(ER): ...\n"
        "@engram.method('test-other', needs=('stored data',))\n@dataclass(kw_only=True, eq=False)\n"
        "class Other(ER): ...\n"
    )
    load_plugin(script)
    assert traits_of("test-child") == traits_of("er")
    assert traits_of("test-other").needed({"policy": "class-balanced"}) == ("stored data",)


RULE = """
from dataclasses import dataclass
from typing import ClassVar
import engram

@engram.method("test-future")
@dataclass(kw_only=True, eq=False)
class Rule(engram.Learner):
    "Says what it needs in class attributes, as methods did before the decorator took it."

    needs: ClassVar[tuple[str, ...]] = ("stored data",)
    bytes_per_value: ClassVar[int] = 2
    told: bool = True

    @classmethod
    def needs_with(cls, settings):
        return (*cls.needs, "boundaries") if settings["told"] else cls.needs

    def curve(self, batches):
        return []
"""


@pytest.mark.usefixtures("as_before")
def test_class_attributes_of_older_plugins_are_still_read(tmp_path: Path) -> None:
    script = tmp_path / "rule.py"
    script.write_text(RULE)
    load_plugin(script)
    traits = traits_of("test-future")
    assert traits.needs == ("stored data", "boundaries") and traits.stores_data
    assert traits.needed({"told": False}) == ("stored data",)
    assert traits.bytes_per_value == 2 and traits.bytes_beside == 32 and traits.merges


@pytest.mark.usefixtures("as_before")
def test_a_method_that_says_that_it_merges_must_have_a_curve(tmp_path: Path) -> None:
    script = tmp_path / "declared.py"
    script.write_text(DECLARED.replace("joint=True", "merges=True"))
    with pytest.raises(InputError, match="it is missing curve"):
        load_plugin(script)


def test_a_file_is_called_like_its_method() -> None:
    for name in METHODS:
        if METHODS.is_ours(name) and not name.startswith("test-"):
            file = METHODS[name].__module__.removeprefix("engram.methods.")
            assert file == name.replace("-", "_").replace("++", "_pp")


def test_looking_a_method_up_registers_nothing_new(tmp_path: Path) -> None:
    script = tmp_path / "looks.py"
    script.write_text("from engram.methods import METHODS\nMETHODS['packnet']")
    program = (
        "from pathlib import Path; from engram.core.plugins import load_plugin\n"
        f"try: load_plugin(Path({str(script)!r}))\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "registers nothing" in done.stdout, done.stderr
