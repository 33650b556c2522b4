"""Processes that work in turns, one at a time, so that other load on the machine affects all of them equally.

A contestant is a process. It prepares itself, and then works in laps: it reports how long a lap took and
waits for its next turn. This file needs only the standard library: contestants import it too, some of them in
a separate environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
_THREADING = ("OMP_", "GOMP_", "KMP_", "MKL_")


@dataclass(frozen=True, slots=True)
class Time:
    """The duration of some work: wall-clock seconds, and CPU seconds of all cores together."""

    wall: float
    cpu: float

    def __add__(self, other: Time) -> Time:
        return Time(self.wall + other.wall, self.cpu + other.cpu)


class Lap:
    """The contestant's side: `lap()` reports the time since its turn began, and waits for the next one."""

    def __init__(self) -> None:
        # What libraries print goes to stderr, so that stdout has only the reports.
        self._reports = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.rehearsing = False
        self.restart()

    def restart(self) -> None:
        """Restart the clock: what was done since the turn began does not count."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __call__(self, *, instead: float | None = None) -> None:
        """End a lap; `instead` is reported if the time was computed rather than measured."""
        if self.rehearsing:
            return
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        report = {"wall": wall if instead is None else instead, "cpu": cpu, "peak": peak_memory()}
        print(json.dumps(report), file=self._reports, flush=True)
        if not sys.stdin.readline():
            sys.exit()
        self.restart()


def peak_memory() -> int:
    """The peak memory of this process in bytes; 0 on platforms that do not report it."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def play(job: Callable[[Lap], None], *, rehearsal: Callable[[Lap], None]) -> NoReturn:
    """Repeat a job until the parent closes the pipe.

    The rehearsal is a short form of the job, for everything that a process does only once.
    """
    lap = Lap()
    lap.rehearsing = True
    rehearsal(lap)
    lap.rehearsing = False
    while True:
        job(lap)


class Contestant:
    """The parent's side: starts a process and gives it its turns.

    Args:
        module: The module of this folder that is run.
        arguments: Its arguments.
        settings: Environment variables, besides those of this process; variables of this process that
            control threads are not inherited.
        python: The interpreter.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        settings: Mapping[str, str],
        python: Path = Path(sys.executable),
    ) -> None:
        self.name = " ".join([module, *arguments])
        self.peak = 0
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed on exit)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_THREADING)}
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.{module}", *arguments],
            cwd=ROOT,
            env={**inherited, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )
        self._waiting = False

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        if kind is not None:
            self._process.terminate()
        self._process.stdout.close()
        self._process.wait()
        self._messages.close()

    def turn(self) -> Time:
        """Let it work until the end of its lap."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._waiting:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._messages.seek(0)
            last = self._messages.read().strip().rpartition("\n")[2]
            raise RuntimeError(f"{self.name} ended: {last or 'no message'}")
        self._waiting = True
        report = json.loads(line)
        self.peak = max(self.peak, report["peak"])
        return Time(report["wall"], report["cpu"])


def race(contestants: Mapping[str, Contestant], *, laps: int, rounds: int) -> dict[str, list[Time]]:
    """The time of every contestant in every round: a job of `laps` laps, in turns lap by lap.

    The first turn of a job is its preparation, which does not count. The order changes from lap to lap.
    """
    times: dict[str, list[Time]] = {name: [] for name in contestants}
    for _ in range(rounds):
        total = dict.fromkeys(contestants, Time(0.0, 0.0))
        for one in contestants.values():
            one.turn()
        for lap in range(laps):
            order = list(contestants)
            first = lap % len(order)
            for name in order[first:] + order[:first]:
                total[name] += contestants[name].turn()
        for name, spent in total.items():
            times[name].append(spent)
    return times
