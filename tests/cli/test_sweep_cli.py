"""`engram sweep` as a person types it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tests.cli.command import Engram

from engram.cli.sweep import run_all
from engram.core.folder import CHECKPOINT, EXPERIMENT, FAILURE, RESULT
from engram.core.trace import Trace
from engram.engine.loop import run
from engram.engine.observers import Observer
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors import Execute, Machines
from engram.protocols.sweep_file import expand, read_sweep
from engram.record.experiment import Experiment
from engram.record.run import Run

SHORT = 'scenario = "split-digits"\nupdates = 4\nsubset = 20\n'
NONE = dict.fromkeys(("done", "running", "failed", "damaged", "unfinished", "missing"), 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sweep.toml"


def test_a_dry_run_shows_and_runs_nothing(file: Path, tmp_path: Path, engram: Engram) -> None:
    file.write_text(SHORT + 'setting = ["task", "class"]\nmethod = ["er", "independent", "er"]\nseeds = 2')
    done = engram("sweep", file, "--dry-run", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert "6 runs, 0 done; time left: unknown until the first runs are done" in done.stderr
    assert (
        "left out: independent on split-digits (class): method independent needs task identity" in done.stderr
    )
    assert "repeated combinations, run once: 4" in done.stderr
    output = json.loads(engram("sweep", file, "--dry-run", "--out", tmp_path / "runs", "--json").stdout)
    assert output["counts"] == {**NONE, "missing": 6} and output["seconds_left"] is None
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("on", "library"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_library_that_is_missing_is_one_line(
    on: str, library: str, file: Path, tmp_path: Path, engram: Engram
) -> None:
    if find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    file.write_text(SHORT + 'method = "er"')
    done = engram("sweep", file, "--on", on, "--out", tmp_path / "runs")
    assert done.returncode == 2
    assert f"--on {on} needs {library}, which is not installed: pip install" in done.stderr


@pytest.mark.slow
def test_failures_are_shown_and_the_same_command_runs_what_is_missing(
    file: Path, tmp_path: Path, engram: Engram
) -> None:
    file.write_text(SHORT + 'setting = "class"\nmethod = "finetune"\nlr = [0.1, 1e9]\nseeds = 2')
    command = ("sweep", file, "--jobs", 1, "--out", tmp_path / "runs")
    done = engram(*command)
    assert done.returncode == 1
    assert done.stdout.count("try a learning rate smaller") == 2
    assert "2 of 4 runs failed; run the same command again to retry them" in done.stdout
    assert "ACC" in done.stdout and "±" in done.stdout
    assert "failed: finetune on split-digits (class), seed 0: the loss became" in done.stderr

    file.write_text(file.read_text().replace("1e9", "0.2"))
    again = engram(*command, "--json")
    assert again.returncode == 0, again.stderr
    output = json.loads(again.stdout)
    assert output["counts"] == {**NONE, "done": 4} and output["seconds_left"] == 0
    first = output["runs"][0]
    assert first.keys() == {
        *("id", "scenario", "setting", "method", "seed", "folder", "status", "metrics", "failure")
    }
    assert first["status"] == "done" and 0 <= first["metrics"]["ACC"] <= 1 and first["failure"] is None
    assert all((Path(run["folder"]) / RESULT).is_file() for run in output["runs"])
    # The two that failed are no part of the sweep any more, and what they left is still there to be read.
    assert len(list((tmp_path / "runs").glob(f"*/{FAILURE}"))) == 2


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (None, [], "cannot read"),
        ("scenario", [], "is not TOML"),
        (
            SHORT + '[[run]]\nmethod = "er"\n[[run]]\nmethod = "ewcc"',
            [],
            "[[run]] 2: unknown method 'ewcc'; did you",
        ),
        (SHORT + 'method = "er"', ["--jobs", "0"], "jobs must be at least 1, got 0"),
        (SHORT + 'method = "er"', ["--plugin", "nowhere.py"], "nowhere.py does not exist"),
        (SHORT + 'method = "er"', ["--device", "tpu"], "on this machine, got 'tpu'"),
        ('scenario = "split-kmnist"\nmethod = "er"', ["--data", "nowhere"], "nowhere"),
        (SHORT + 'method = "er"', ["--on", "dask"], "unknown executor 'dask'"),
        (SHORT + 'method = "er"', ["--address", "auto"], "address is for --on ray, got --on processes"),
        (
            SHORT + 'method = "er"',
            ["--on", "slurm", "--runs-per-job", "0"],
            "runs-per-job must be at least 1",
        ),
        (SHORT + 'method = "er"', ["--on", "ray", "--cpus-per-run", "0"], "cpus-per-run must be above 0"),
        (SHORT + 'method = "er"', ["--done", "--dry-run"], "cannot be used together"),
        (SHORT + 'method = "er"', ["--on", "serial", "--jobs", "3"], "leave one of the two out"),
        (SHORT + 'method = "er"', ["--data", "nowhere"], "the data folder nowhere is not a folder"),
        *(
            (SHORT + 'method = "er"', [idle, "--track", "nope"], f"{idle} runs nothing: omit --track")
            for idle in ("--done", "--dry-run", "--emit-commands")
        ),
        (
            SHORT + 'method = "er"\nper_epoch = true\nevery = 2',
            ["--emit-commands"],
            "cannot be written as one",
        ),
    ],
)
def test_bad_input_is_one_line(
    text: str | None, arguments: list[str], words: str, file: Path, tmp_path: Path, engram: Engram
) -> None:
    if text is not None:
        file.write_text(text)
    done = engram("sweep", file, *arguments, "--out", tmp_path / "runs")
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and words in last
    assert not list((tmp_path / "runs").glob("*"))


def test_emitted_commands_give_the_same_folder(file: Path, tmp_path: Path, engram: Engram) -> None:
    file.write_text(
        SHORT + 'lr = 0.1\nhidden = [20, 20]\n[[run]]\nmethod = "er"\nset.memory = [20, 30]\n'
        '[[run]]\nmethod = "l2"\nfirst_seed = 3\n'
    )
    there, here = tmp_path / "there", tmp_path / "here"
    emitted = engram("sweep", file, "--emit-commands", "--out", there)
    assert emitted.returncode == 0, emitted.stderr
    lines = emitted.stdout.splitlines()
    assert len(lines) == 3 and not there.exists()
    assert lines[0] == (
        "engram run split-digits er --first-seed 0 --updates 4 --subset 20 --lr 0.1 --hidden 20,20 "
        f"--set memory=20 --threads 1 --out {there}"
    )
    assert engram("sweep", file, "--done", "--out", there).returncode == 1, "nothing is done yet"
    for line in lines:
        done = engram(*shlex.split(line)[1:], "--json")
        assert done.returncode == 0, done.stderr
    collected = engram("sweep", file, "--done", "--out", there, "--json").json
    swept = engram("sweep", file, "--on", "serial", "--out", here, "--json").json
    assert collected["counts"] == swept["counts"] == {**NONE, "done": 3}
    for name in [planned["id"] for planned in swept["runs"]]:
        one, other = (Trace.load(out / name / "trace.parquet") for out in (there, here))
        assert one == other
    again = engram("sweep", file, "--emit-commands", "--out", there, "--json").json
    assert again == {"commands": [], "done": 3}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals a group of processes")
def test_interrupt_stops_in_seconds_and_the_same_command_goes_on(file: Path, tmp_path: Path) -> None:
    """Ctrl-C reaches every process of a terminal, as it does here."""
    out = tmp_path / "runs"
    file.write_text('scenario = "split-digits"\nmethod = "er"\nsubset = 20\nupdates = 80\nseeds = 2')
    command = [sys.executable, "-m", "engram", "sweep", str(file), "--jobs", "1", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    first, second = expand(read_sweep(file)).experiments
    deadline = time.monotonic() + 60
    # The folder of a run is made when it begins.
    while not (out / second.id).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    stopped = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - stopped < 10
    assert process.returncode == 130, errors
    assert errors.strip().splitlines()[-1].startswith("error: interrupted: 1 of 2 runs are finished")
    assert "Traceback" not in errors
    assert {path.name for path in (out / second.id).iterdir()} == {CHECKPOINT, EXPERIMENT, FAILURE}
    assert json.loads((out / second.id / FAILURE).read_text())["kind"] == "interrupted"
    assert torch.load(out / second.id / CHECKPOINT, weights_only=True)["place"]["step"] > 0
    stamp = (out / first.id / RESULT).stat().st_mtime_ns

    again = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["counts"] == {**NONE, "done": 2}
    assert (out / first.id / RESULT).stat().st_mtime_ns == stamp
    assert Trace.load(out / second.id / "trace.parquet") == run(second).trace


def test_emitted_commands_say_the_precision(file: Path, tmp_path: Path, engram: Engram) -> None:
    file.write_text(SHORT + 'method = ["er", "l2"]\n')
    emitted = engram("sweep", file, "--emit-commands", "--precision", "auto", "--out", tmp_path / "there")
    assert emitted.returncode == 0, emitted.stderr
    assert all("--precision auto" in line for line in emitted.stdout.splitlines())
    refused = engram("sweep", file, "--precision", "half", "--out", tmp_path / "there")
    assert refused.returncode == 2 and "unknown precision 'half'" in refused.stderr
    assert not (tmp_path / "there").exists()


def test_an_interrupted_sweep_says_which_runs_start_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = [experiment("split-digits", "er", seed=seed) for seed in range(4)]
    for one, file in zip(planned, (CHECKPOINT, RESULT), strict=False):
        (tmp_path / one.id).mkdir()
        (tmp_path / one.id / file).touch()

    def interrupted(_where: Where, observers: Sequence[Observer], *, machines: Machines) -> Execute:
        def begin(experiments: Sequence[Experiment]) -> Sequence[Run]:
            for one in experiments[:3]:
                observers[0].began(Run(planned=one))
            raise KeyboardInterrupt

        return begin

    monkeypatch.setattr("engram.executors.executor_for", interrupted)
    with pytest.raises(SystemExit):
        run_all(planned, Where(out=tmp_path), Machines())
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        f"error: interrupted: 0 of 4 runs are finished and kept in {tmp_path}; run the same command again to "
        "resume; 1 of 3 runs under way has no checkpoint, and starts from the beginning"
    )
