"""`dir()` of every package lists what is in it, and importing a package is light."""

import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules

import pytest

import engram
from engram import datasets, models, scenarios
from engram.interop.libraries import MissingLibrary

# Loading the command line's modules is the business of its own tests.
PACKAGES = ["engram"] + [
    f"engram.{module.name}"
    for module in iter_modules(engram.__path__)
    if module.ispkg and module.name != "cli"
]


def test_every_package_is_looked_at() -> None:
    names = {package.removeprefix("engram.") for package in PACKAGES}
    assert names == {
        *("engram", "core", "record", "metrics", "datasets", "scenarios", "models", "methods"),
        *("evaluation", "engine", "executors", "protocols", "papers", "results", "interop"),
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_listed_can_be_imported(package: str) -> None:
    module = import_module(package)
    names = dir(module)
    assert names and names == sorted(set(names)) and set(module.__all__) <= set(names)
    assert [name for name in names if name.startswith("_")] == (["__version__"] if module is engram else [])
    for name in names:
        # As people write it: `from engram.scenarios import split`. What is for another library needs that.
        with suppress(MissingLibrary):
            exec(f"from {package} import {name}", {})
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "engram"])
def test_modules_are_listed(package: str) -> None:
    module = import_module(package)
    modules = {below.name for below in iter_modules(module.__path__)}
    assert modules and modules <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_hidden_by_a_module(package: str) -> None:
    """An imported module becomes an attribute of its package, in place of a function of the same name."""
    module = import_module(package)
    modules = {below.name for below in iter_modules(module.__path__)}
    # These modules are public themselves.
    public = (
        {"curve", "diversity", "gaps", "joint", "matrix", "samples"} if package == "engram.metrics" else set()
    )
    assert modules & set(module.__all__) == public


def test_importing_a_package_imports_neither_torch_nor_polars() -> None:
    script = f"""
import sys
from importlib import import_module
for package in {PACKAGES}:
    module = import_module(package)
    assert dir(module)
    heavy = {{"torch", "polars"}} & set(sys.modules)
    assert not heavy, f"{{package}} imports {{heavy}}"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_front_door_imports_nothing_heavy() -> None:
    script = """
import sys
import engram
dir(engram)
heavy = {"torch", "numpy", "polars", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_people_look_for_is_listed() -> None:
    assert {"split", "permuted", "benchmark", "Scenario", "scenario"} <= set(dir(scenarios))
    assert {"MODELS", "ModelSpec", "build", "model", "resnet"} <= set(dir(models))
    assert {"arrays", "load", "dataset", "torch_dataset"} <= set(dir(datasets))
