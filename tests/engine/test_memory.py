"""Freed memory stays with the process, so that the next update does not get it back page by page."""

import os
import platform
import subprocess
import sys

import pytest

PAGES = """
import resource
import sys

import numpy as np

if sys.argv[1] == "keep":
    from engram.engine.memory import keep_freed_memory

    assert keep_freed_memory() == (sys.argv[2] == "ours")


def work() -> None:
    [np.ones(3 * 2**19) for _ in range(4)]


work()
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    work()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5)
"""
"""Four arrays of 12 MB are made and freed, again and again: how many pages the system had to provide."""

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only the GNU C library allocates in this way"
)


def pages(*words: str, **environment: str) -> float:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PAGES, *words]
    printed = subprocess.run(
        command, env=clean | environment, check=True, capture_output=True, text=True
    ).stdout
    return float(printed)


@needs_glibc
def test_freed_memory_is_kept() -> None:
    assert pages("leave") > 1000
    assert pages("keep", "ours") < 100


@needs_glibc
def test_what_the_users_environment_says_is_respected() -> None:
    assert pages("keep", "theirs", MALLOC_TRIM_THRESHOLD_="131072") > 1000
