"""The pytest plugin: the fixture `engram_gate`, which fails a test if a new model forgot something.

It is there as soon as engram is installed. It is a module of its own, beside the package, so that pytest
imports nothing of engram before a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from engram.results.gate import Gate


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Take engram off the list of packages whose assertions pytest rewrites.

    pytest puts every package of a distribution that has a plugin on it, and would parse and rewrite some 400
    modules of engram in every project that has it installed. There is no public way to say no. Where a later
    pytest keeps its list elsewhere, nothing happens here, and imports take longer.
    """
    marked = vars(pluginmanager.rewrite_hook).get("_must_rewrite")
    if isinstance(marked, set):
        marked.discard("engram")


@pytest.fixture
def engram_gate() -> Callable[..., Gate]:
    """Compare two models, and fail the test unless the new one is shown to keep the limits.

    The arguments are those of `engram.gate`, and so is what it returns:

        def test_new_model_remembers(engram_gate):
            engram_gate("old.csv", "new.csv", max_drop=0.01)
    """

    def check(*models: Any, **options: Any) -> Gate:
        from engram.api import gate
        from engram.results.gate.writing import headline

        outcome = gate(*models, **options)
        if not outcome.passed:
            failed = [f"{one.rule}: {one.reason}" for one in outcome.judgements if not one.passed]
            pytest.fail("; ".join([headline(outcome), *failed]), pytrace=False)
        return outcome

    return check
