"""What all tests share."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from engram.engine.memory import keep_freed_memory

# The same examples everywhere: a red run says that the code changed, not that the draw did.
settings.register_profile("engram", derandomize=True)
settings.load_profile("engram")

# As `engram run` does, before it trains.
keep_freed_memory()

# Trials of half precision are not remembered: tests leave the user's cache as it is.
os.environ["ENGRAM_TRIALS"] = "off"

# What is started in the background ignores Ctrl-C, and so would all that the tests start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the real data sets, or a skip that says how to provide it."""
    folder = os.environ.get("ENGRAM_DATA", "")
    if not folder or not (Path(folder) / "mnist.npz").is_file():
        pytest.skip("needs real data: set ENGRAM_DATA to a folder with mnist.npz and fashion_mnist.npz")
    return Path(folder)


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of a session share, for runs that several of them need."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


LONG = (
    "cli/test_own_data_cli.py",
    "cli/test_parallel_cli.py",
    "cli/test_protocol_cli.py",
    "cli/test_zoom_cli.py",
    "contracts/test_testing.py",
    "docs/test_contributing.py",
    "engine/test_card.py",
    "engine/test_cheats.py",
    "engine/test_checkpoint.py",
    "engine/test_kept_checkpoints.py",
    "engine/test_observers.py",
    "engine/test_parallel_runs.py",
    "engine/test_zoom.py",
    "evaluation/test_parallel.py",
    "executors/test_contract.py",
    "executors/test_failures.py",
    "interop/test_pytest_plugin.py",
    "methods/test_resume_of_generators_and_mergers.py",
    "papers/test_paper000.py",
    "protocols/test_causal_runs.py",
    "protocols/test_end_to_end.py",
    "results/test_compare.py",
    "test_without_torch.py",
)
"""Files whose tests make many whole runs: together they take half as long as all others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a real browser or takes long is slow; CI runs it, and so do those who change it."""
    here = Path(__file__).parent
    long = {here / file for file in LONG}
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) or item.path in long:
            item.add_marker(pytest.mark.slow)


LONGEST = {
    "behaviour/test_claims.py::test_offline_is_best[task": 500,
    "methods/test_dgr.py::test_replayed": 220,
    "behaviour/test_claims.py::test_with_the_smaller_network": 170,
    "behaviour/test_claims.py::test_offline_is_best[domain": 160,
    "papers/test_planted.py": 80,
    "behaviour/test_claims.py::test_offline_is_best[class": 80,
    "behaviour/test_claims.py::test_priors": 50,
    "behaviour/test_claims.py::test_gem": 50,
    "behaviour/test_claims.py": 5,
}
"""Tests that take long, by how their names begin, and about how many seconds each of them takes."""


def seconds_of(item: pytest.Item) -> int:
    """How long one of the longest tests takes; 0 for the others."""
    name = item.nodeid.removeprefix("tests/")
    return next((seconds for start, seconds in LONGEST.items() if name.startswith(start)), 0)


class LongestFirst:
    """Each test process begins with some of the longest tests, so that none is left alone with one."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put them where the parts begin that the processes are given: parts of equal length, in order."""
        processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        longest = sorted(filter(seconds_of, items), key=seconds_of, reverse=True)
        others = [item for item in items if not seconds_of(item)]
        parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
        for item in longest:
            min(parts, key=lambda part: sum(map(seconds_of, part))).append(item)
        order: list[pytest.Item] = []
        left = len(items)
        for number, part in enumerate(parts):
            size = left // (processes - number)
            rest = max(0, size - len(part))
            order += [*part, *others[:rest]]
            others, left = others[rest:], left - size
        items[:] = [*order, *others]


def pytest_configure(config: pytest.Config) -> None:
    """After tests were chosen by their markers."""
    config.pluginmanager.register(LongestFirst())
