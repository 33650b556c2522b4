"""Every registered method holds to the contract; a new one is found automatically."""

from functools import cache, partial

import pytest

from engram import testing
from engram.methods import METHODS
from engram.scenarios.values import Setting
from engram.testing import CHECKS, SETTINGS, settings_of

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


settings_accepted = cache(settings_of)


def chosen(method: str) -> Setting:
    """One of the method's settings, another one for every method."""
    settings = settings_accepted(method)
    return settings[REGISTERED.index(method) % len(settings)]


def only(settings: list[Setting], method: str, among: tuple[Setting, ...] = SETTINGS) -> list[Setting]:
    """These settings, or all of those with hidden boundaries."""
    return settings if among is SETTINGS else settings_of(method, among)


# All checks of a method one after the other: they share its run.
@pytest.mark.parametrize("check", [name for name in CHECKS if name not in SLOW])
@pytest.mark.parametrize("method", REGISTERED)
def test_contract(method: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one of the method's settings."""
    monkeypatch.setattr(testing, "settings_of", partial(only, [chosen(method)]))
    CHECKS[check](method)


def rest(method: str, check: str) -> list[Setting]:
    """The settings that the test above leaves out."""
    return [setting for setting in settings_accepted(method) if check in SLOW or setting != chosen(method)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "check"), [(method, check) for method in REGISTERED for check in CHECKS if rest(method, check)]
)
def test_contract_in_the_other_settings(method: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "settings_of", partial(only, rest(method, check)))
    CHECKS[check](method)


def test_every_check_is_made_in_every_setting() -> None:
    made = {(method, check): rest(method, check) for method in REGISTERED for check in CHECKS}
    for (method, check), settings in made.items():
        first = [] if check in SLOW else [chosen(method)]
        assert sorted(map(repr, [*first, *settings])) == sorted(map(repr, settings_of(method)))
