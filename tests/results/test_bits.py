"""What the bits of a run say: flips, gaps, samples, the autopsy, equal compute, loss of plasticity."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engram
from engram.cli import main
from engram.core.errors import InputError
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.plasticity import plasticity, while_learned
from engram.record.run import Run
from engram.results.autopsy import NO_ANSWERS, NO_PROBES, examine
from engram.results.compute import at_compute, compute_curve
from engram.results.moments import flips_between
from engram.results.runs import find_runs, group_runs
from engram.results.sample_table import sample_table


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {"epochs": 1, "out": out}
    engram.run("split-digits", "er", answers=True, losses=True, gradients=True, **common)
    engram.run("split-digits", "finetune", **common)
    return out


@pytest.fixture(scope="module")
def er(runs: Path) -> Run:
    return Run.load(next(runs.glob("*-er-*")))


def exit_code(*command: str | Path) -> object:
    with pytest.raises(SystemExit) as exited:
        main([str(part) for part in command])
    return exited.value.code or 0


def printed(capsys: pytest.CaptureFixture[str], *command: str | Path) -> Any:
    assert exit_code(*command) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *command: str | Path) -> str:
    assert exit_code(*command) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def test_flips_are_counted_between_two_moments(er: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert er.folder is not None
    result = printed(capsys, "flips", er.folder, "task2", "end", "--json")
    rows = {row["task"]: row for row in result["tasks"]}
    end, last = result["from"], result["to"]
    before = er.trace.right(
        next(n for n in range(len(er.trace)) if (er.trace.step[n], er.trace.task[n]) == (end, 1))
    )
    after = er.trace.right(
        next(n for n in range(len(er.trace)) if (er.trace.step[n], er.trace.task[n]) == (last, 1))
    )
    row = rows[er.task_name(1)]
    assert (row["lost"], row["gained"]) == (int((before & ~after).sum()), int((after & ~before).sum()))
    assert row["churn"] == pytest.approx((before != after).mean())
    assert row["answer_churn"] >= row["churn"]
    assert rows["all"]["samples"] == sum(row["samples"] for name, row in rows.items() if name != "all")
    (table, _) = flips_between(er, "task1", "end")
    assert table[0].negative_flip_rate == pytest.approx(er.measure(only=["SF"]).by_task["SF"][0])


@pytest.mark.parametrize(
    ("moments", "message"),
    [
        (("task9", "end"), "a moment must be start, end, task1 to task5, or a number of updates from 0"),
        (("end", "start"), "the second moment must be after the first"),
        (("yesterday", "end"), "got 'yesterday'"),
    ],
)
def test_wrong_moments_are_refused(
    er: Run, moments: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert er.folder is not None
    assert message in refused(capsys, "flips", er.folder, *moments)


def test_gaps_are_listed(er: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert er.folder is not None
    gaps = printed(capsys, "gaps", er.folder, "--json")["gaps"]
    assert len(gaps) == 1 + 2 + 3 + 4
    by_task = [np.mean([gap["depth"] for gap in gaps if gap["task"] == task]) for task in range(4)]
    assert er.metric("gap-depth") == pytest.approx(np.mean(by_task))
    assert "tolerance must be at least 0" in refused(capsys, "gaps", er.folder, "--tolerance", "-1")


def test_samples_have_ids_and_events(er: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = sample_table(er)
    assert er.folder is not None
    assert er.samples is not None
    assert table["id"].to_list()[:3] == er.samples.of_task(0)["id"].to_list()[:3]
    shares = [(own["kind"] == "never known").mean() for own in table.partition_by("task")]
    assert er.metric("never-known") == pytest.approx(np.mean([share or 0.0 for share in shares]))
    assert exit_code("samples", er.folder, "-o", tmp_path / "samples.csv") == 0
    assert "forgotten most often" in capsys.readouterr().out
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == 1 + len(table)
    assert "must end in .csv or .parquet" in refused(capsys, "samples", er.folder, "-o", "table.xls")


def test_the_autopsy_takes_the_deepest_dip_apart(
    er: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert er.folder is not None
    page = tmp_path / "autopsy.html"
    result = printed(capsys, "autopsy", er.folder, "-o", page, "--json")
    gaps = printed(capsys, "gaps", er.folder, "--json")["gaps"]
    assert result["gap"]["depth"] == max(gap["depth"] for gap in gaps)
    lost = sum(row["before"] - row["lowest"] for row in result["classes"])
    samples = sum(row["samples"] for row in result["classes"])
    assert lost / samples == pytest.approx(result["gap"]["depth"])
    assert len(result["fallen"]) >= lost
    assert sum(row["samples"] for row in result["taken_for"]) == len(result["fallen"])
    assert all(row["label"] != row["answer"] for row in result["taken_for"])
    assert {"stability-gradient", "plasticity-gradient"} <= {row["name"] for row in result["probes"]}
    assert result["lacking"] == []
    text = page.read_text()
    assert 'id="classes"' in text
    assert 'data-figure="probe-0"' in text
    assert "http://" not in text.split("<script")[0]
    other = sorted(gaps, key=lambda gap: -gap["depth"])[1]
    chosen = examine(er, task=other["task"] + 1, step=other["end"])
    assert (chosen.gap.task, chosen.gap.phase) == (other["task"], other["phase"])


def test_the_autopsy_says_what_was_not_recorded(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = Run.load(next(runs.glob("*-finetune-*")))
    examined = examine(plain)
    assert examined.lacking == (NO_ANSWERS, NO_PROBES)
    assert examined.fallen
    assert not examined.taken_for
    assert plain.folder is not None
    assert "task must be between 1 and 5" in refused(capsys, "autopsy", plain.folder, "--task", "6")
    assert "there is no dip after 1 updates" in refused(capsys, "autopsy", plain.folder, "--step", "1")


def test_methods_are_compared_at_equal_compute(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = printed(capsys, "compute", runs, "--json", "-o", tmp_path / "compute.html")
    rows = {row["label"]: row for row in result["methods"]}
    assert result["flops"] == min(row["total_flops"] for row in rows.values())
    assert rows["finetune"]["accuracy"] == rows["finetune"]["final_accuracy"]
    assert rows["er"]["tasks"] < rows["finetune"]["tasks"] == 5
    assert (tmp_path / "compute.html").stat().st_size > 1_000_000
    er = Run.load(next(runs.glob("*-er-*")))
    flops, accuracy = compute_curve(er)
    assert (np.diff(flops) > 0).all()
    assert er.account is not None
    done = sum(phase.in_updates.flops + phase.at_boundaries.flops for phase in er.account.work)
    assert flops[-1] == pytest.approx(done + er.account.work[-1].answer_flops)
    assert accuracy[-1] == pytest.approx(er.metric("ACC"))
    start = at_compute(group_runs(find_runs(runs)), 10)[1]
    assert {row.tasks for row in start} == {1}
    assert "--at must be above 0" in refused(capsys, "compute", runs, "--at", "0")


def test_old_accounts_count_boundaries_at_the_end_of_a_task(runs: Path) -> None:
    er = Run.load(next(runs.glob("*-er-*")))
    assert er.account is not None
    assert all(phase.begin_flops is not None for phase in er.account.work)
    value = er.account.as_json()
    for phase in value["work"]:
        del phase["begin_flops"]
    assert all(phase.begin_flops is None for phase in type(er.account).of_json(value).work)


def test_a_fresh_network_shares_the_first_task(tmp_path: Path) -> None:
    base = engram.experiment("split-digits", "finetune", setting="task", epochs=1, every=5)
    outcome = drive(plasticity([base], after=[5]), Serial(Where(out=tmp_path)))
    assert outcome.after == (5, None)
    np.testing.assert_array_equal(outcome.learned[:, :, 0], outcome.fresh[:, :, 0])
    assert not np.array_equal(outcome.learned[:, :, 1:], outcome.fresh[:, :, 1:])
    own, anew = outcome.probes["effective rank"]
    assert own[0] == anew[0]
    assert all(1 <= value <= 64 for value in (*own, *anew))
    learned = Run.load(tmp_path / outcome.runs[0])
    diagonal = np.diag(learned.matrix)
    np.testing.assert_allclose(while_learned(learned, None), diagonal)
    with pytest.raises(InputError, match="at least 1, got 0"):
        next(plasticity([base], after=[0]))
