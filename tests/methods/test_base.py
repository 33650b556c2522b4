"""What the functions that a method overrides must return."""

from typing import Any

import pytest
from tests.methods.toy import learn, make

from engram.core.errors import InputError
from engram.core.values import Batch
from engram.methods.base import Learner


class BareLoss(Learner):
    def loss(self, batch: Batch) -> Any:
        return super().loss(batch).total()


class Forgetful(Learner):
    def rehearse(self, batch: Batch) -> Any:
        """It lacks a return."""


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (BareLoss, r"method BareLoss: loss must return Terms, got Tensor: return engram.Terms\(loss\)"),
        (Forgetful, "method Forgetful: rehearse must return a Batch, got NoneType: return the samples"),
    ],
)
def test_what_must_be_returned_is_one_line(kind: type[Learner], message: str) -> None:
    with pytest.raises(InputError, match=message):
        learn(make(kind), 0)
