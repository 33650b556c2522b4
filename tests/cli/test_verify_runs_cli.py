"""`engram verify runs`, and what other verbs say of runs that are not done."""

import json
from pathlib import Path

import pytest
from tests.cli.command import Engram
from tests.results.simulated import write_run

from engram.core.files import write_json
from engram.core.owner import Owner
from engram.record.run import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sound runs of each of two methods, and one that is damaged, failed, running and killed."""
    for method in ("er", "ewc"):
        for seed in range(2):
            Run.load(write_run(tmp_path, method, seed=seed, tasks=2, updates=5)).save()
    for seed, state in enumerate(("damaged", "failed", "running", "killed"), start=2):
        run = write_run(tmp_path, "er", seed=seed, tasks=2, updates=5)
        (run / "result.json").unlink()
        if state == "damaged":
            (run / "result.json").write_text("null")
        elif state == "failed":
            write_json(run / "failure.json", {"kind": "crashed", "reason": "KeyError: 'gone'"})
        elif state == "running":
            lease = {**Owner.here().as_json(), "since": "2026-01-01 00:00:00 UTC", "token": "mine"}
            write_json(run / "lease.json", lease)
    return tmp_path


WHY = {
    "er-2": "it is damaged: ",
    "er-3": "it failed: KeyError: 'gone'; run it again",
    "er-4": "it is running: process ",
    "er-5": "it is not finished: it was killed, or its process ended; run the same command again",
}


@pytest.mark.parametrize(("verb", "code"), [(("compare",), 0), (("report", "-o", "page.html"), 0)])
def test_every_run_that_is_not_done_is_named(
    verb: tuple[str, ...], code: int, folder: Path, engram: Engram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = engram(*verb, folder)
    assert done.returncode == code, done.stderr
    lines = {line.partition(": ")[2].partition(": ")[0]: line for line in done.stderr.splitlines()}
    for name, why in WHY.items():
        assert f"{folder / name}: {why}" in lines[str(folder / name)]
    if verb[0] == "report":
        page = (folder / "page.html").read_text()
        assert "Left out: er-2 (damaged), er-3 (failed), er-4 (running), er-5 (unfinished)." in page


def test_json_names_them_as_well(folder: Path, engram: Engram) -> None:
    output = engram("compare", folder, "--json").json
    states = {run["id"]: run["status"] for run in output["incomplete"]}
    assert states == {"er-2": "damaged", "er-3": "failed", "er-4": "running", "er-5": "unfinished"}


def test_everything_is_checked(folder: Path, engram: Engram) -> None:
    done = engram("verify", "runs", folder)
    assert done.returncode == 1
    assert "4 done, 1 damaged, 1 failed, 1 running, 1 unfinished" in done.stdout
    assert f"damaged: {folder / 'er-2'}: it is damaged: " in done.stdout
    (folder / "er-2" / "result.json").unlink()
    assert engram("verify", "runs", folder).returncode == 0
    changed = bytearray((folder / "ewc-1" / "trace.parquet").read_bytes())
    changed[len(changed) // 2] ^= 1
    (folder / "ewc-1" / "trace.parquet").write_bytes(changed)
    done = engram("verify", "runs", folder, "--json")
    assert done.returncode == 1
    output = json.loads(done.stdout)
    assert output["counts"] == {"done": 3, "unfinished": 2, "failed": 1, "running": 1, "damaged": 1}
    [problem] = [run["problems"][0] for run in output["runs"] if run["status"] == "damaged"]
    assert "its checksum is not the recorded one" in problem


def test_a_folder_without_runs_is_one_line(tmp_path: Path, engram: Engram) -> None:
    done = engram("verify", "runs", tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: no run found in ")
