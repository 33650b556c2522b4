"""Names: what they may be, what they stand for, and what packages declare."""

from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.core.registry import Lazy, Registry, check_name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "a..b", "-a", ".a", "a\n", "ä"])
def test_names_that_cannot_be_typed_or_be_folders_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a method"):
        check_name("method", name)
    with pytest.raises(InputError, match="cannot name a thing"):
        Registry[int]("thing").add_own(name, 3)


@pytest.mark.parametrize("name", ["er", "der++", "split-mnist-002", "a_b.c", "3d"])
def test_names_that_can(name: str) -> None:
    assert check_name("method", name) == name


def test_what_is_lazy_is_made_once_and_when_it_is_asked_for() -> None:
    calls = []
    things = Registry[int]("thing")
    things.add("late", Lazy(lambda: calls.append(1) or len(calls)))  # type: ignore[func-returns-value]
    assert list(things) == ["late"] and not calls
    assert things["late"] == things["late"] == 1


GROUPS = {
    "engram.methods": (
        "METHODS",
        "engram.methods",
        "from dataclasses import dataclass\nfrom engram import Learner\n\n"
        "@dataclass(kw_only=True, eq=False)\nclass Thing(Learner):\n    'Mine.'\n",
    ),
    "engram.models": (
        "MODELS",
        "engram.models",
        "def Thing(shape, n_units, *, width: int = 3):\n    'Mine.'\n",
    ),
    "engram.scenarios": (
        "BENCHMARKS",
        "engram.scenarios",
        "from engram.scenarios import split\ndef Thing(setting):\n    'Mine.'\n"
        "    return split('digits', setting=setting)\n",
    ),
    "engram.datasets": (
        "DATASETS",
        "engram.datasets",
        "import numpy as np\ndef Thing():\n    x = np.zeros((4, 2, 2), np.uint8)\n"
        "    return (x, [0, 1, 0, 1]), (x, [0, 1, 0, 1])\n",
    ),
}


@pytest.mark.parametrize("group", GROUPS)
def test_every_registry_finds_what_packages_declare(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    registry_name, home, code = GROUPS[group]
    package = group.replace(".", "_") + "_theirs"
    (tmp_path / f"{package}.py").write_text(code)
    facts = tmp_path / f"{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\ntest-declared = {package}:Thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = getattr(import_module(home), registry_name)
    try:
        registry.find_declared()
        assert "test-declared" in registry and not registry.is_ours("test-declared")
        assert registry["test-declared"] is registry["test-declared"]
        if group != "engram.datasets":
            assert len(registry.code_of("test-declared")) == 12
    finally:
        registry.remove("test-declared")
