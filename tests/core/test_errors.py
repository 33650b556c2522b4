"""Errors carry what happened as fields, also from one process to another."""

import math
import pickle

from engram.core.errors import InputError, NonFinite


def test_a_value_that_is_not_finite_is_told_by_fields() -> None:
    error = NonFinite("loss of the generator", math.inf, hint="lower lr")
    assert (error.what, error.value, error.hint) == ("loss of the generator", math.inf, "lower lr")
    assert str(error) == "loss of the generator became inf: lower lr"
    assert isinstance(error, InputError)


def test_it_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(NonFinite("weights", hint="lower lr")))  # noqa: S301
    assert (error.what, error.value, error.hint) == ("weights", None, "lower lr")
    assert str(error) == "weights became NaN or infinite: lower lr"
