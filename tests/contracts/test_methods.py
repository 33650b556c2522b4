"""Every registered method holds to the contract; a new one is found automatically."""

from functools import partial

import pytest

from engram import testing
from engram.methods import METHODS
from engram.scenarios.values import Setting
from engram.testing import CHECKS, settings_of

REGISTERED = [name for name in METHODS if not name.startswith("test-")]


SLOW = (
    "same-seed",
    "gradient-split",
    "resume-batch-norm",
    "hidden-boundaries",
    "batch-norm",
    "single-sample",
)
"""A method that draws anew would also fail to be watched and to resume, and one of the runs that are watched
has batch norm."""


# All checks of a method one after the other: they share its run.
@pytest.mark.parametrize("check", [name for name in CHECKS if name not in SLOW])
@pytest.mark.parametrize("method", REGISTERED)
def test_contract(method: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one of the method's settings, another one for every method; all of them are slow."""
    settings = settings_of(method)
    place = REGISTERED.index(method) % len(settings)
    monkeypatch.setattr(testing, "settings_of", partial(settings_of_one, settings[place]))
    CHECKS[check](method)


def settings_of_one(
    setting: Setting, method: str, among: tuple[Setting, ...] = testing.SETTINGS
) -> list[Setting]:
    """The setting, or all of those with hidden boundaries."""
    return [setting] if among is testing.SETTINGS else settings_of(method, among)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", REGISTERED)
def test_contract_in_all_settings(method: str, check: str) -> None:
    CHECKS[check](method)
