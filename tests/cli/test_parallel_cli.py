"""`--parallel` as a person types it: evaluator processes, skipped evaluations, reasons, and bad words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.command import Engram
from tests.evaluation.test_crew import alive, wait_until

import engram as front
from engram.core.folder import CHECKPOINT
from engram.record.run import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="evaluators are forked on Linux only")


def test_skipped_runs_are_other_experiments(tmp_path: Path, engram: Engram) -> None:
    command = ["run", "split-digits", "finetune", "--updates", 5, "--out", tmp_path, "--json"]
    whole = engram(*command).json["runs"][0]
    skipped = engram(*command, "--parallel", "skip").json["runs"][0]
    assert skipped["id"] != whole["id"]
    assert whole["evaluations"] == 26
    parallel = skipped["parallel"]
    assert parallel["wanted"] == "skip"
    assert skipped["evaluations"] == 26 - parallel["skipped"]
    assert parallel["period"] == pytest.approx(25 / (skipped["evaluations"] - 1))
    # Each is found again, and neither is taken for the other.
    assert engram(*command, "--parallel", "skip:2").json["runs"][0] == skipped
    again = engram(*command, "--parallel", "2").json["runs"][0]
    assert again["id"] == whole["id"]
    run = Run.load(skipped["folder"])
    assert run.experiment.evaluation.skips
    assert not Run.load(whole["folder"]).experiment.evaluation.skips


def test_verbose_says_what_evaluators_did_or_why_there_were_none(tmp_path: Path, engram: Engram) -> None:
    command = ["run", "split-digits", "finetune", "--updates", 5, "--threads", 1]
    made = engram(*command, "--out", tmp_path / "made", "--parallel", 2, "-v")
    assert made.returncode == 0, made.stderr
    assert "seed 0: 2 evaluators made 15 evaluations, at most" in made.stderr
    chosen = engram(*command, "--out", tmp_path / "chosen", "-v")
    assert "seed 0: evaluated in line: " in chosen.stderr or "evaluators made" in chosen.stderr
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('scenario = "split-digits"\nmethod = "finetune"\nupdates = 5\n')
    swept = engram("sweep", sweep, "--jobs", 1, "--parallel", 1, "--out", tmp_path / "swept", "-v")
    assert swept.returncode == 0, swept.stderr
    assert "1 evaluator made 15 evaluations" in swept.stderr
    emitted = engram("sweep", sweep, "--parallel", "skip:2", "--emit-commands", "--out", tmp_path / "left")
    assert "--parallel skip:2" in emitted.stdout


@pytest.mark.parametrize("word", ["many", "0", "skip:", "65"])
def test_bad_words_are_one_line(word: str, tmp_path: Path, engram: Engram) -> None:
    done = engram("run", "split-digits", "er", "--parallel", word, "--out", tmp_path / "runs")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "parallel must be" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_killed_run_leaves_no_processes_and_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engram", "run", "split-digits", "er", "--updates", "150"]
    command += ["--parallel", "2", "--checkpoint-every", "0.2", "--out", str(tmp_path / "runs"), "--json"]
    learner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(list((tmp_path / "runs").glob(f"*/{CHECKPOINT}"))) == 1, 60.0)
        children = f"/proc/{learner.pid}/task/{learner.pid}/children"
        assert wait_until(lambda: len(Path(children).read_text().split()) == 2)
        pids = [int(pid) for pid in Path(children).read_text().split()]
        time.sleep(0.1)
    finally:
        os.kill(learner.pid, signal.SIGKILL)
        learner.wait()
    assert wait_until(lambda: not any(map(alive, pids)), 5.0)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    run = json.loads(done.stdout)["runs"][0]
    in_line = front.run("split-digits", "er", updates=150)
    assert Run.load(run["folder"]).trace == in_line.trace
