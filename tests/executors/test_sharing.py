"""Several processes share a folder: each run is made once, and nobody waits for the dead."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hosts import need_hosts, on_host

from engram.core.files import write_json
from engram.core.folder import CHECKPOINT, EXPERIMENT, FAILURE, LEASE, PREVIOUS, PROGRESS, RESULT
from engram.core.leases import Held, holder_of
from engram.core.owner import Owner
from engram.core.values import Batch
from engram.engine.execute import execute
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.serial import Serial
from engram.methods import Learner
from engram.record.experiment import Experiment
from engram.record.run import Run


def planned(seed: int = 0, *, updates: int = 2) -> Experiment:
    return experiment("split-digits", "finetune", updates=updates, evaluation={"every": 100}, seed=seed)


def held_elsewhere(out: Path, one: Experiment) -> Path:
    """The lease of a living process on another machine."""
    owner = Owner("elsewhere", "0123456789", 4711, 99)
    place = out / one.id / LEASE
    write_json(place, {**owner.as_json(), "since": "2026-01-01 00:00:00 UTC", "token": "theirs"})
    return place


class Count(Watcher):
    def __init__(self) -> None:
        self.began_: list[str] = []
        self.ended_: list[str] = []

    def began(self, run: Run) -> None:
        self.began_.append(run.id)

    def ended(self, run: Run) -> None:
        self.ended_.append(run.id)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """What another process does while this one waits."""
    monkeypatch.setattr("engram.executors.queue.time.sleep", lambda _: happens())


def test_a_run_that_another_process_is_making_is_refused(tmp_path: Path) -> None:
    held_elsewhere(tmp_path, planned())
    with pytest.raises(Held, match="is being run by process 4711 on elsewhere since 2026"):
        execute(planned(), Where(out=tmp_path))
    assert Run.find(planned(), tmp_path).status == "running"
    assert not (tmp_path / planned().id / FAILURE).exists()


class Steal(Watcher):
    """After some updates another machine takes the lease over, which the thread has not noticed yet."""

    def __init__(self, out: Path, then: BaseException | None = None) -> None:
        self.out, self.then = out, then

    def updated(self, step: Step) -> None:
        if step.step == 5:
            folder = held_elsewhere(self.out, planned()).parent
            (folder / CHECKPOINT).write_bytes(b"theirs")
            if self.then is not None:
                raise self.then


def check_left_alone(out: Path) -> None:
    """What another process has taken over is as that left it."""
    folder = out / planned().id
    assert (folder / CHECKPOINT).read_bytes() == b"theirs"
    assert {file.name for file in folder.iterdir()} <= {CHECKPOINT, EXPERIMENT, LEASE, PREVIOUS, PROGRESS}


@pytest.mark.parametrize("seconds", [None, 1e-9])
def test_who_loses_a_lease_stops_without_writing(seconds: float | None, tmp_path: Path) -> None:
    """At the next checkpoint, or at its end."""
    where = Where(out=tmp_path, checkpoint_seconds=seconds)
    with pytest.raises(Held, match="by process 4711 on elsewhere"):
        execute(planned(), where, [Steal(tmp_path)])
    check_left_alone(tmp_path)


def test_who_loses_a_lease_and_is_interrupted_writes_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        execute(planned(), Where(out=tmp_path), [Steal(tmp_path, KeyboardInterrupt())])
    check_left_alone(tmp_path)


def test_who_loses_a_lease_and_fails_records_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Learner, batch: Batch) -> None:
        if holder_of(tmp_path / planned().id).token == "theirs":  # type: ignore[union-attr]
            raise LookupError("nothing here")

    monkeypatch.setattr(Learner, "after_step", fail)
    with pytest.raises(Held):
        execute(planned(), Where(out=tmp_path), [Steal(tmp_path)])
    check_left_alone(tmp_path)


def test_it_comes_last_and_is_read_when_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = planned(0), planned(1)
    place, count = held_elsewhere(tmp_path, one), Count()

    def finish() -> None:
        place.unlink()
        execute(one, Where(out=tmp_path))

    meanwhile(monkeypatch, finish)
    with pytest.warns(UserWarning, match="waiting for 1 run being made by process 4711 on elsewhere"):
        runs = Serial(Where(out=tmp_path), [count])([one, other])
    assert [made.id for made in runs] == [one.id, other.id] and all(made.finished for made in runs)
    assert count.began_ == [other.id] and count.ended_ == [other.id, one.id]


def test_what_failed_elsewhere_meanwhile_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, count = held_elsewhere(tmp_path, planned()), Count()

    def fail() -> None:
        place.unlink()
        write_json(place.with_name(FAILURE), {"kind": "crashed", "reason": "no luck"})

    meanwhile(monkeypatch, fail)
    with pytest.warns(UserWarning, match="waiting for 1 run"):
        [failed] = Serial(Where(out=tmp_path), [count])([planned()])
    assert failed.status == "failed" and failed.failure is not None and failed.failure.reason == "no luck"
    assert count.began_ == [] and count.ended_ == [planned().id]
    # The next command tries it.
    [done] = Serial(Where(out=tmp_path))([planned()])
    assert done.finished


def test_what_was_interrupted_elsewhere_is_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, count = held_elsewhere(tmp_path, planned()), Count()

    def stop() -> None:
        place.unlink()
        write_json(place.with_name(FAILURE), {"kind": "interrupted", "reason": "stopped"})

    meanwhile(monkeypatch, stop)
    with pytest.warns(UserWarning, match="waiting for 1 run"):
        [done] = Serial(Where(out=tmp_path), [count])([planned()])
    assert done.finished and count.began_ == [planned().id]


def test_a_lease_lost_in_the_middle_ends_the_run_without_a_trace(tmp_path: Path) -> None:
    class Robbed(Watcher):
        def updated(self, step: Step) -> None:
            if step.step == 3:
                (tmp_path / planned().id / LEASE).unlink()
                held_elsewhere(tmp_path, planned())
                self.lease.renew()  # type: ignore[attr-defined]

    robbed = Robbed()

    def keep(self: object, path: Path, token: str, *, renewed: bool) -> None:
        before(self, path, token, renewed=renewed)  # type: ignore[arg-type]
        robbed.lease = self  # type: ignore[attr-defined]

    from engram.core.leases import Lease

    before = Lease.__init__
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Held, match="on elsewhere"):
        patch.setattr(Lease, "__init__", keep)
        execute(planned(), Where(out=tmp_path), [robbed])
    names = {path.name for path in (tmp_path / planned().id).iterdir()}
    assert LEASE in names and not names & {RESULT, FAILURE}, "the folder is the other's now"


# Damaged runs are run again ----------------------------------------------------------------------


@pytest.mark.parametrize("content", ["null", "{}", "[", ""])
def test_a_damaged_result_is_run_again(content: str, tmp_path: Path) -> None:
    one = planned()
    first = execute(one, Where(out=tmp_path))
    (tmp_path / one.id / RESULT).write_text(content)
    assert Run.find(one, tmp_path).status == "damaged"
    with pytest.warns(UserWarning, match=r"result\.json .*; it is run again now"):
        [again] = Serial(Where(out=tmp_path))([one])
    assert again.finished and again.trace == first.trace
    assert {path.name for path in (tmp_path / one.id).iterdir()} == {
        *("experiment.json", "trace.parquet", "samples.parquet", "result.json")
    }


def test_a_damaged_run_is_kept_until_there_is_a_new_one(tmp_path: Path) -> None:
    class Stop(Watcher):
        def updated(self, step: Step) -> None:
            if step.step == 3:
                raise KeyboardInterrupt

    one = planned()
    first = execute(one, Where(out=tmp_path))
    (tmp_path / one.id / RESULT).write_text("null")
    with pytest.warns(UserWarning, match="it is run again now"), pytest.raises(KeyboardInterrupt):
        execute(one, Where(out=tmp_path), [Stop()])
    assert (tmp_path / one.id / ".damaged" / "trace.parquet").is_file()
    count = Count()
    again = execute(one, Where(out=tmp_path), [count])
    assert again.trace == first.trace and not (tmp_path / one.id / ".damaged").exists()


# Real processes ------------------------------------------------------------------------------------

PLUGIN = """
import os, time
from pathlib import Path
import engram

@engram.method("test-steady")
class Steady(engram.Learner):
    "Takes its time, and says who began which run."
    def setup(self):
        with (Path(__file__).parent / "begun.txt").open("a") as file:
            file.write(f"{os.getpid()}\\n")
    def after_step(self, batch):
        time.sleep(0.02)
"""


GATED = """
import os, time
from pathlib import Path
import engram

PLACE = Path(__file__).parent

def note(name, *words):
    with (PLACE / name).open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@engram.method("test-gated")
class Gated(engram.Learner):
    "Says who begins a run and makes an update; takes its time until there is a file `fast`."
    def setup(self):
        note("begun.txt", os.getpgrp(), self.generator.initial_seed())
    def after_step(self, batch):
        note("updates.txt", os.getpgrp(), self.generator.initial_seed())
        while not (PLACE / "all-began").exists() and not (PLACE / "fast").exists():
            time.sleep(0.05)
        if not (PLACE / "fast").exists():
            time.sleep(0.02)
"""
SWEEP = (
    'scenario = "split-digits"\nmethod = "test-gated"\nupdates = 30\nevery = 10\nsubset = 20\nseeds = 12\n'
)


def gated(place: Path, out: Path, *options: str) -> list[str]:
    """A sweep of twelve runs of that method, as a person types it."""
    words = [sys.executable, "-m", "engram", "sweep", str(place / "sweep.toml"), "--out", str(out)]
    return [*words, "--plugin", str(place / "gated.py"), "--checkpoint-every", "0.1", "--json", *options]


@contextmanager
def eight_sweeps(place: Path, out: Path) -> Iterator[dict[int, "subprocess.Popen[str]"]]:
    """Eight commands on one folder, each in a group of processes with its workers."""
    sweeps = [
        subprocess.Popen(
            gated(place, out, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for options in [("--on", "serial"), ("--jobs", "1")] * 4
    ]
    try:
        yield {sweep.pid: sweep for sweep in sweeps}
    finally:
        for sweep in sweeps:
            if sweep.returncode is None:
                os.killpg(sweep.pid, signal.SIGKILL)
                sweep.communicate()


def kill_one(out: Path, among: Iterable[int]) -> tuple[int, str] | None:
    """Kill a whole sweep, with its workers, in the middle of a run that has a checkpoint; who, and which."""
    for place in out.glob(f"*/{LEASE}"):
        try:
            group = os.getpgid(json.loads(place.read_text())["process"])
        except (OSError, ValueError, KeyError):
            continue
        if group not in among:
            continue
        os.killpg(group, signal.SIGSTOP)
        # It cannot end its run now.
        if place.exists() and (place.parent / CHECKPOINT).exists() and not (place.parent / RESULT).exists():
            os.killpg(group, signal.SIGKILL)
            return group, place.parent.name
        os.killpg(group, signal.SIGCONT)
    return None


def kill_three(place: Path, out: Path, sweeps: Mapping[int, "subprocess.Popen[str]"]) -> dict[int, str]:
    """Wait until all have begun a run, and kill three of them: the run that each was making."""
    killed: dict[int, str] = {}
    deadline = time.monotonic() + 300
    while len(killed) < 3:
        living = sweeps.keys() - killed.keys()
        assert time.monotonic() < deadline and all(sweeps[pid].poll() is None for pid in living)
        if len(list(out.glob(f"*/{LEASE}"))) == len(sweeps):
            (place / "all-began").touch()
        if (place / "all-began").exists() and (one := kill_one(out, living)) is not None:
            killed |= [one]
        time.sleep(0.02)
    return killed


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends signals to groups of processes")
def test_eight_sweeps_share_a_folder_of_which_three_are_killed(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    (tmp_path / "gated.py").write_text(GATED)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    with eight_sweeps(tmp_path, out) as sweeps:
        killed = kill_three(tmp_path, out, sweeps)
        ends = {pid: (*sweep.communicate(timeout=300), sweep.returncode) for pid, sweep in sweeps.items()}

    # Each run was made once, and those that were killed were resumed once by somebody else.
    makers: dict[str, list[int]] = {}
    for line in (tmp_path / "begun.txt").read_text().splitlines():
        group, seed = line.split()
        makers.setdefault(seed, []).append(int(group))
    assert len(makers) == 12 and len(set(killed.values())) == 3
    resumed = [began for began in makers.values() if len(began) > 1]
    assert sorted(began[:-1] for began in resumed) == sorted([group] for group in killed)
    made = Counter(line.split()[1] for line in (tmp_path / "updates.txt").read_text().splitlines())
    for seed, began in makers.items():
        most = 150 if len(began) == 1 else 150 + 50
        assert 150 <= made[seed] <= most, "only the work since the last checkpoint was lost"

    # Those that were not killed know all runs, and say what others made.
    for pid in sweeps.keys() - killed.keys():
        printed, errors, code = ends[pid]
        assert code == 0 and "Traceback" not in errors, errors
        output = json.loads(printed)
        others = 12 - sum(began[-1] == pid for began in makers.values())
        assert output["counts"]["done"] == 12 and output["made_by_others"] == others
        assert f"{others} runs were made by other processes" in " ".join(errors.split())

    # Nothing is left over, and all of it is what a sweep in one process gives.
    (tmp_path / "fast").touch()
    alone = tmp_path / "alone"
    subprocess.run(gated(tmp_path, alone, "--on", "serial"), check=True, capture_output=True, timeout=300)
    names = sorted(folder.name for folder in alone.iterdir())
    assert sorted(folder.name for folder in out.iterdir()) == names and len(names) == 12
    for name in names:
        run, reference = Run.load(out / name), Run.load(alone / name)
        assert run.finished and run.trace == reference.trace and run.stored == reference.stored
        assert sorted(path.name for path in (out / name).iterdir()) == sorted(
            path.name for path in (alone / name).iterdir()
        )


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(), ("east", "west")], ids=["one-host", "two-hosts"])
def test_two_sweeps_started_at_once_make_each_run_once(hosts: tuple[str, ...], tmp_path: Path) -> None:
    if hosts:
        need_hosts()
    plugin, out, file = tmp_path / "steady.py", tmp_path / "runs", tmp_path / "sweep.toml"
    plugin.write_text(PLUGIN)
    file.write_text('scenario = "split-digits"\nmethod = "test-steady"\nupdates = 4\nevery = 100\nseeds = 6')
    command = [sys.executable, "-m", "engram", "sweep", str(file), "--jobs", "1", "--json"]
    options: Sequence[str] = ["--out", str(out), "--plugin", str(plugin)]
    commands = [on_host(host, *command, *options) for host in hosts] or [[*command, *options]] * 2
    sweeps = [
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for line in commands
    ]
    for sweep in sweeps:
        printed, errors = sweep.communicate(timeout=300)
        assert sweep.returncode == 0, errors
        output = json.loads(printed)
        assert output["counts"]["done"] == 6
    assert len((tmp_path / "begun.txt").read_text().split()) == 6


HANGS = """
import time
import engram

@engram.method("test-hangs")
class Hangs(engram.Learner):
    "Stops in the middle."
    def after_step(self, batch):
        if self.task.index == 1:
            while True:
                time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_method_that_hangs_is_ended_and_the_others_are_run(tmp_path: Path) -> None:
    from engram.core.plugins import load_plugin

    plugin = tmp_path / "hangs.py"
    plugin.write_text(HANGS)
    load_plugin(plugin)
    hanging = experiment("split-digits", "test-hangs", updates=3, evaluation={"every": 100})
    where = Where(out=tmp_path / "runs", jobs=1, plugin=plugin, timeout=15, checkpoint_seconds=1e-3)
    late, done = Processes(where)([hanging, planned()])
    assert done.finished and late.failure is not None
    assert late.failure.kind == "timed out" and late.status == "failed"
    assert "was not completed in 15 s (--timeout)" in late.failure.reason and late.failure.task in (0, 1)
    assert (tmp_path / "runs" / hanging.id / "checkpoint.pt").is_file()
    assert not (tmp_path / "runs" / hanging.id / LEASE).exists()
