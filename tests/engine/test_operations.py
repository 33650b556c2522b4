"""Operations are counted alike whether or not PyTorch's compiler is loaded."""

import sys
from importlib import import_module

import pytest
import torch

from engram.engine.operations import counting_operations


def counted() -> tuple[str, int]:
    with counting_operations() as counting:
        (torch.ones(5, 4) @ torch.ones(4, 3)).sum()
    return type(counting).__name__, counting.flops


def test_counts_are_the_same_beside_the_compiler() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "torch._dynamo", raising=False)
        assert counted() == ("Operations", 135)
    import_module("torch._dynamo")
    assert counted() == ("_BesideCompiler", 135)
