"""Leases between processes whose host names and process numbers really differ, as on two machines."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hosts import need_hosts, on_host

from engram.core import leases
from engram.core.folder import LEASE
from engram.core.leases import Held, holder_of, lease
from engram.core.owner import is_left_over, unique_name

HOLDS = """
import sys, time
from pathlib import Path
from engram.core import leases
from engram.core.owner import unique_name

folder = Path(sys.argv[1])
leases.RENEW_SECONDS, leases.LIMIT_SECONDS = 0.1, float(sys.argv[2])
with leases.lease(folder) as held:
    print(unique_name(), flush=True)
    sys.stdin.readline()
    held.check()
"""
TAKES = """
import sys, time
from pathlib import Path
from engram.core.leases import Held, lease

folder = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    with lease(folder):
        with (folder / "taken.txt").open("a") as file:
            file.write("taken\\n")
        time.sleep(1.0)
except Held:
    print("held", flush=True)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def hosts() -> None:
    need_hosts()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python programs on other hosts; whatever is left of them is ended."""
    started: list[subprocess.Popen[str]] = []

    def program(host: str, text: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            on_host(host, sys.executable, "-c", text, *map(str, arguments)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield program
    for process in started:
        kill(process)
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    """End a process and what it started, without a chance to give anything back."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def short_limit(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(leases, "LIMIT_SECONDS", seconds)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("hosts")
def test_a_host_keeps_its_lease_while_it_renews_it_and_loses_it_when_it_ends(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2.0
    other = start("east", HOLDS, tmp_path, limit)
    assert line(other)
    with short_limit(monkeypatch, limit):
        began = time.monotonic()
        while time.monotonic() < began + 1.5 * limit:
            with pytest.raises(Held, match="is being run by process 1 on east since") as held:
                lease(tmp_path).__enter__()
            time.sleep(0.3)
        assert "\n" not in str(held.value)
        kill(other)
        assert holder_of(tmp_path) is not None, "nobody can see from here whether it has ended"
        time.sleep(limit + 0.5)
        assert holder_of(tmp_path) is None
        with lease(tmp_path):
            assert json.loads((tmp_path / LEASE).read_text())["host"] != "east"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("hosts")
def test_what_one_host_gives_back_another_takes(start: Start, tmp_path: Path) -> None:
    for host in ("east", "west"):
        other = start(host, HOLDS, tmp_path, 60)
        line(other)
        holder = holder_of(tmp_path)
        assert holder is not None and holder.owner is not None and holder.owner.host == host
        go(other)
        assert other.wait(timeout=60) == 0
        assert holder_of(tmp_path) is None and list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("hosts")
def test_who_lost_a_lease_to_another_host_notices(start: Start, tmp_path: Path) -> None:
    other = start("east", HOLDS, tmp_path, 60)
    line(other)
    (tmp_path / LEASE).unlink()
    with lease(tmp_path):
        time.sleep(0.5)
        go(other)
        assert other.wait(timeout=60) != 0
        holder = holder_of(tmp_path)
        assert holder is not None and holder.owner is not None and holder.owner.process == os.getpid()


@pytest.mark.usefixtures("hosts")
def test_of_several_hosts_that_try_at_once_one_succeeds(start: Start, tmp_path: Path) -> None:
    """All have the process number 1, and the lease of a host that is gone is there to be taken over."""
    gone = start("gone", HOLDS, tmp_path, 60)
    line(gone)
    kill(gone)
    long_ago = time.time() - 2 * leases.LIMIT_SECONDS
    os.utime(tmp_path / LEASE, (long_ago, long_ago))
    others = [start(host, TAKES, tmp_path) for host in ("east", "west", "north", "south")]
    assert [line(other) for other in others] == ["ready"] * 4
    for other in others:
        go(other)
    ends = [other.communicate(timeout=60)[0] for other in others]
    assert sorted(end.strip() for end in ends) == ["", "held", "held", "held"]
    assert (tmp_path / "taken.txt").read_text() == "taken\n"


@pytest.mark.usefixtures("hosts")
def test_names_of_files_are_unique_across_hosts(start: Start, tmp_path: Path) -> None:
    names = []
    for host in ("east", "west"):
        (tmp_path / host).mkdir()
        other = start(host, HOLDS, tmp_path / host, 60)
        names.append(line(other))
        kill(other)
    assert len({name.partition("-")[0] for name in [*names, unique_name()]}) == 3, "the same process number"
    assert not any(map(is_left_over, names)), "files of another host are never taken for left over"
