"""Leases: one writer per folder, and dead owners lose theirs."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engram.core import leases
from engram.core.errors import InputError
from engram.core.files import checksum, temporary_path
from engram.core.folder import LEASE
from engram.core.leases import LIMIT_SECONDS, Held, holder_of, lease
from engram.core.owner import Owner, is_left_over, unique_name
from engram.record.aside import recover


def leave(folder: Path, owner: Owner, *, age: float = 0.0) -> Path:
    """Leave the lease of another process."""
    content = {**owner.as_json(), "since": "2026-01-01 00:00:00 UTC", "token": "theirs"}
    place = folder / LEASE
    place.write_text(json.dumps(content))
    os.utime(place, (time.time() - age, time.time() - age))
    return place


def dead() -> Owner:
    """A process of this machine that has ended."""
    process = subprocess.Popen(["true"])
    here = Owner.here()
    process.wait()
    return Owner(here.host, here.machine, process.pid, 1)


ELSEWHERE = Owner("elsewhere", "0123456789", 4711, 99)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with lease(tmp_path):
        with pytest.raises(Held, match=rf"by process {os.getpid()} on .*: wait for it, or stop") as held:
            lease(tmp_path).__enter__()
        assert "\n" not in str(held.value) and isinstance(held.value, InputError)
    assert list(tmp_path.iterdir()) == []
    with lease(tmp_path):
        pass


def test_it_is_given_back_when_something_is_raised(tmp_path: Path) -> None:
    with pytest.raises(LookupError), lease(tmp_path):
        raise LookupError
    assert holder_of(tmp_path) is None and list(tmp_path.iterdir()) == []


def test_a_process_that_ended_has_lost_its_lease(tmp_path: Path) -> None:
    leave(tmp_path, dead())
    assert holder_of(tmp_path) is None
    with lease(tmp_path):
        holder = holder_of(tmp_path)
        assert holder is not None and holder.owner == Owner.here()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="when a process began is read from /proc")
def test_another_process_with_the_same_number_is_another_process(tmp_path: Path) -> None:
    here = Owner.here()
    leave(tmp_path, Owner(here.host, here.machine, here.process, (here.started or 0) - 1))
    assert holder_of(tmp_path) is None


@pytest.mark.parametrize(
    ("age", "holds"), [(1, True), (LIMIT_SECONDS - 20, True), (LIMIT_SECONDS + 20, False)]
)
def test_on_another_machine_the_time_of_its_last_sign_counts(age: float, holds: bool, tmp_path: Path) -> None:
    leave(tmp_path, ELSEWHERE, age=age)
    assert (holder_of(tmp_path) is not None) == holds
    if holds:
        with pytest.raises(Held, match="process 4711 on elsewhere since 2026-01-01"):
            lease(tmp_path).__enter__()
    else:
        with lease(tmp_path):
            pass


def test_clocks_of_machines_need_not_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of a lease is that which the disk gives, whatever the time is here."""
    leave(tmp_path, ELSEWHERE, age=10)
    monkeypatch.setattr("engram.core.leases.time.time", lambda: 0.0)
    assert holder_of(tmp_path) is not None
    monkeypatch.setattr("engram.core.leases.time.time", lambda: 1e12)
    assert holder_of(tmp_path) is not None


def test_a_lease_that_says_nothing_counts_for_a_while(tmp_path: Path) -> None:
    """On disks without links it is empty for a moment."""
    place = tmp_path / LEASE
    place.touch()
    with pytest.raises(Held, match="a process that did not leave its name"):
        lease(tmp_path).__enter__()
    os.utime(place, (0, 0))
    with lease(tmp_path):
        pass


def test_who_loses_a_lease_notices_and_leaves_the_new_one_alone(tmp_path: Path) -> None:
    with lease(tmp_path) as held:
        held.renew()
        held.check()
        (tmp_path / LEASE).unlink()
        place = leave(tmp_path, ELSEWHERE)
        held.renew()
        with pytest.raises(Held, match="on elsewhere"):
            held.check()
    assert place.exists()


def test_renewing_makes_it_young_again(tmp_path: Path) -> None:
    with lease(tmp_path) as held:
        os.utime(tmp_path / LEASE, (0, 0))
        held.renew()
        assert (tmp_path / LEASE).stat().st_mtime > 1e9 and not held.lost


def test_disks_without_links_have_leases_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("engram.core.leases.os.link", no_links)
    with lease(tmp_path), pytest.raises(Held):
        lease(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_link_whose_answer_was_lost_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk tries again then, and finds the link that it made."""
    link = os.link

    def twice(*names: Path) -> None:
        link(*names)
        link(*names)

    monkeypatch.setattr("engram.core.leases.os.link", twice)
    with lease(tmp_path):
        monkeypatch.undo()
        with pytest.raises(Held):
            lease(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [None, "dead"])
def test_of_many_that_try_at_once_one_succeeds(left: str | None, tmp_path: Path) -> None:
    """Threads have one owner, but every attempt makes a lease of its own."""
    for _ in range(5):
        if left:
            leave(tmp_path, dead())
        barrier, release = threading.Barrier(8), threading.Event()
        won: list[int] = []

        def attempt(barrier: threading.Barrier, release: threading.Event, won: list[int]) -> None:
            barrier.wait()
            try:
                with lease(tmp_path):
                    won.append(1)
                    release.wait(10)
            except Held:
                pass

        threads = [threading.Thread(target=attempt, args=(barrier, release, won)) for _ in range(8)]
        for thread in threads:
            thread.start()
        while sum(thread.is_alive() for thread in threads) > 1:
            time.sleep(0.005)
        release.set()
        for thread in threads:
            thread.join()
        assert won == [1] and list(tmp_path.iterdir()) == []


def test_a_claim_of_a_killed_process_is_no_obstacle_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, dead())
    claim = tmp_path / f".{LEASE}.{checksum(b'theirs')[:12]}.taken"
    claim.touch()
    monkeypatch.setattr(leases, "_TRIES", 3)
    with pytest.raises(Held):
        lease(tmp_path).__enter__()
    os.utime(claim, (0, 0))
    with lease(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_who_holds_a_lease_leaves_the_attempts_of_others_alone(tmp_path: Path) -> None:
    """Else their links would fail, and they would take that for a disk that cannot be written to."""
    attempt, clock = (temporary_path(tmp_path / LEASE, ending=".trial") for _ in range(2))
    described = temporary_path(tmp_path / "experiment.json")
    for file in (attempt, clock, described):
        file.touch()
    with lease(tmp_path):
        recover(tmp_path)
        assert attempt.exists() and clock.exists() and described.exists()


def test_names_of_temporary_files_tell_their_owner() -> None:
    mine = unique_name()
    assert not is_left_over(mine) and mine != unique_name()
    machine, _, token = mine.split("-")
    assert is_left_over(f"{machine}-{dead().process}-{token}")
    assert not is_left_over(f"0123456789-{dead().process}-{token}"), "nobody can see other machines from here"
