"""`engram zoom` and `--keep-checkpoints` as a person types them."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import Engram

import engram as package
from engram.record.run import Run

SHORT = ["--updates", "8", "--hidden", "16", "--every", "5", "--subset", "10"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that kept checkpoints."""
    out = tmp_path_factory.mktemp("zoom") / "runs"
    run = package.run(
        "split-digits", "er", updates=8, hidden=(16,), every=5, subset=10, out=out, keep_checkpoints="tasks"
    )
    assert run.folder is not None
    return run.folder


def test_the_size_of_checkpoints_is_said(tmp_path: Path, engram: Engram) -> None:
    command = ["run", "split-digits", "er", *SHORT, "--out", tmp_path / "runs", "--keep-checkpoints", "tasks"]
    done = engram(*command)
    assert done.returncode == 0, done.stderr
    assert "kept: 5 checkpoints, " in done.stderr
    size = engram(*command, "--json").json["runs"][0]["checkpoints"]
    assert size["files"] == 5 and size["bytes"] > 1000
    compacted = engram("compact", tmp_path / "runs")
    assert "not in the store, left where they are: 5 checkpoints" in compacted.stderr
    assert engram("verify", "runs", tmp_path / "runs").returncode == 0


def test_a_command_for_a_scheduler_keeps_them_too(tmp_path: Path, engram: Engram) -> None:
    plan = tmp_path / "sweep.toml"
    plan.write_text('scenario = "split-digits"\nmethod = "er"\nupdates = 3\n')
    keep = ["--keep-checkpoints", "50", "--save-weights", "final"]
    done = engram("sweep", plan, "--emit-commands", "--out", tmp_path / "runs", *keep)
    assert done.stdout.endswith("--save-weights final --keep-checkpoints 50\n")


def test_what_a_zoom_prints_and_writes(folder: Path, engram: Engram) -> None:
    done = engram("zoom", folder, "--steps", "16:22", "--samples", "all")
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("learned 6 updates again from the checkpoint at update 16, and evaluated updates")
    assert second.startswith("the same bits as in the run: ")
    place = folder / "zooms" / "16-22-all"
    assert f"wrote {place / 'zoom.html'}" in done.stderr
    assert Run.load(place).curve.step.tolist()[-7:] == [16, 17, 18, 19, 20, 21, 22]
    # The run itself is what it was, and is found alone.
    assert [run.folder for run in package.load(folder.parent)] == [folder]
    assert engram("gaps", place).returncode == 0


def test_json_has_everything(folder: Path, engram: Engram) -> None:
    answer = engram("zoom", folder, "--steps", "9:12", "--every", "2", "--json").json
    assert (answer["first"], answer["last"], answer["start"], answer["learned"]) == (9, 12, 8, 4)
    assert answer["same"] is True
    assert answer["compared"]["different"] == 0
    assert answer["tasks"][0]["task"] == "Task 1 (digits 0/1)"
    assert Path(answer["page"]).is_file() and answer["folder"].endswith("9-12-every-2")


def test_other_samples(folder: Path, tmp_path: Path, engram: Engram) -> None:
    rows = np.random.default_rng(0).integers(0, 17, (6, 64))
    header = ",".join([*(f"p{n}" for n in range(64)), "digit"])
    lines = [",".join(map(str, [*row, label])) for row, label in zip(rows, "010101", strict=True)]
    (tmp_path / "table.csv").write_text("\n".join([header, *lines]) + "\n")
    done = engram("zoom", folder, "--steps", "9:12", "--on", tmp_path / "table.csv", "--label", "digit")
    assert done.returncode == 2
    assert "give samples of the same shape" in done.stderr or "shape" in done.stderr
    np.savez(tmp_path / "new.npz", x=rows.reshape(6, 8, 8).astype(np.uint8), y=[0, 1] * 3)
    answer = engram("zoom", folder, "--steps", "9:12", "--on", tmp_path / "new.npz", "--json").json
    assert [row["samples"] for row in answer["tasks"]] == [6]
    assert answer["on"] == "new.npz" and answer["folder"].endswith("9-12-on-new.npz")


def test_a_run_without_checkpoints_says_how_many_updates_are_learned(tmp_path: Path, engram: Engram) -> None:
    out = tmp_path / "runs"
    made = engram("run", "split-digits", "er", *SHORT, "--out", out, "--json").json
    folder = made["runs"][0]["folder"]
    done = engram("zoom", folder, "--steps", "9:12")
    assert "kept no checkpoints: 12 updates are learned again from the beginning" in done.stderr
    assert "learned 12 updates again from the beginning" in done.stdout
    again = engram("run", "split-digits", "er", *SHORT, "--out", out, "--keep-checkpoints", "tasks")
    assert again.returncode == 2
    assert "kept no checkpoints: run it again with --again" in again.stderr
    engram("compact", out, "-o", tmp_path / "store")
    refused = engram("zoom", tmp_path / "store", "--steps", "9:12")
    assert refused.returncode == 2 and "name one with --out" in refused.stderr
    from_store = engram("zoom", tmp_path / "store", "--steps", "9:12", "-o", tmp_path / "zoom", "--json").json
    assert from_store["start"] == 0 and from_store["same"] is True


def test_other_bits_are_an_exit_code(folder: Path, tmp_path: Path, engram: Engram) -> None:
    run = Run.load(folder)
    trace = run.trace
    row = trace.step.index(20)
    trace.bits[row] = np.packbits(~trace.right(row)).tobytes()
    trace.correct[row] = trace.total[row] - trace.correct[row]
    changed = run.save(tmp_path / "changed")
    done = engram("zoom", changed.folder, "--steps", "17:22")
    assert done.returncode == 1
    assert "not the same bits as in the run: 10 of " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--steps", "9"], "steps must be A:B, the first and the last update, got '9'"),
        (["--steps", "30:50"], "has 40 updates: choose steps up to 40"),
        (["--steps", "3:9", "--samples", "few"], "unknown choice of samples 'few'"),
        (["--steps", "3:9", "--on", "nowhere"], "no such file: nowhere"),
        (["--steps", "3:9", "--label", "kind"], "label and features are columns of a table"),
        (["--steps", "3:9", "--inputs", "smell"], "unknown kind of input 'smell'"),
        (["--steps", "3:9", "--size", "-1"], "size must be at least 1, got -1"),
        (["--steps", "3:9", "--size", "8"], "size is that of images in folders, and none was given"),
        (
            ["--steps", "3:9", "--on", "train", "--inputs", "image"],
            "inputs says what samples of your own are",
        ),
        (["--steps", "3:9", "--test-share", ".5"], "test-share is of files that the run learned from"),
        (["--steps", "3:9", "--data", "nowhere"], "the data folder nowhere is not a folder"),
        (["--steps", "3:9", "--own", "nowhere.npz"], "no such file: nowhere.npz"),
        (["--steps", "3:9", "--plugin", "nowhere.py"], "nowhere.py"),
        (["--steps", "3:9", "--device", "abacus"], "device must be"),
        ([], "missing option '--steps'"),
    ],
)
def test_bad_input(folder: Path, arguments: list[str], problem: str, engram: Engram) -> None:
    before = sorted(folder.rglob("*"))
    done = engram("zoom", folder, *arguments)
    assert done.returncode == 2
    assert problem in done.stderr and done.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
def test_a_run_on_files_of_ones_own(tmp_path: Path, engram: Engram, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import subprocess
    import sys

    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 5)), np.repeat(["a", "b", "c", "d"], 30)
    lines = [",".join([*map(str, row), kind]) for row, kind in zip(x.round(3), y, strict=True)]
    Path("mine.csv").write_text("p,q,r,s,t,kind\n" + "\n".join(lines) + "\n")
    Path("nets.py").write_text(
        "from torch import nn\n\ndef small(shape, n_units):\n"
        "    return nn.Sequential(nn.Linear(shape[0], 7), nn.ReLU(), nn.Linear(7, n_units))\n"
    )

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        # In a process of its own, which knows nothing of the files.
        return subprocess.run(
            [sys.executable, "-m", "engram.cli", *words], capture_output=True, text=True, env=dict(os.environ)
        )

    options = [
        "--classes-per-task",
        "2",
        "--label",
        "kind",
        "--test-share",
        "0.3",
        "--model",
        "nets.py:small",
    ]
    made = command("run", "split:mine.csv", "er", *options, "--updates", "6", "--every", "4", "--json")
    assert made.returncode == 0, made.stderr
    folder = json.loads(made.stdout)["runs"][0]["folder"]
    refused = command("zoom", folder, "--steps", "6:9")
    assert refused.returncode == 2
    assert "your data with --own, your network with --model" in refused.stderr
    known = ["--own", "mine.csv", "--label", "kind", "--test-share", "0.3", "--model", "nets.py:small"]
    done = command("zoom", folder, "--steps", "6:9", *known, "--on", "mine.csv", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["same"] is True
    assert [row["samples"] for row in answer["tasks"]] == [60, 60]
