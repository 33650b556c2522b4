"""`dir()` of a package lists what is in it, and what is listed is there."""

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["engram.core", "engram.datasets", "engram.models", "engram.scenarios"])
def test_what_is_listed_is_there(package: str) -> None:
    module = import_module(package)
    names = dir(module)
    assert names == sorted(set(names)) and set(getattr(module, "__all__", ())) <= set(names)
    assert all(hasattr(module, name) for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_what_people_look_for_is_listed() -> None:
    import engram.datasets
    import engram.models
    import engram.scenarios

    assert {"split", "permuted", "benchmark", "Scenario", "scenario"} <= set(dir(engram.scenarios))
    assert {"MODELS", "ModelSpec", "build", "model", "resnet"} <= set(dir(engram.models))
    assert {"arrays", "load", "dataset", "torch_dataset"} <= set(dir(engram.datasets))
