"""Commands that look at results, on every kind of run: named tasks, scores alone, compact stores."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.command import Engram

import engram as package

TASKS = ("dogs", "cats")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods and two seeds, with right and wrong answers in `bits` and with losses in `scores`."""
    out = tmp_path_factory.mktemp("kinds")
    draw = torch.Generator().manual_seed(0)
    tests = {
        name: (torch.randn(20, 4, generator=draw), torch.randint(0, 2, (20,), generator=draw))
        for name in TASKS
    }
    for method in ("plain", "better"):
        for seed in (0, 1):
            torch.manual_seed(seed + 10 * len(method))
            net = torch.nn.Linear(4, 2)
            bits = package.Evaluator(tests, answers=True)
            scores = package.Evaluator(tests, score=package.score.cross_entropy())
            for watch, kind in ((bits, "bits"), (scores, "scores")):
                for name in (*TASKS[:1] * 2, *TASKS[1:] * 2):
                    with torch.no_grad():
                        net.weight += torch.randn(2, 4, generator=draw)
                    watch(net, learning=name)
                watch.save(out / kind / f"{method}-{seed}", label=method, seed=seed)
    return out


@pytest.fixture(scope="module")
def store(runs: Path) -> Path:
    from engram.results.store import compact

    compact(package.load(runs / "bits"), runs / "store")
    return runs / "store"


def test_metrics_of_a_run_name_its_tasks(engram: Engram, runs: Path) -> None:
    printed = engram("metrics", runs / "bits" / "plain-0").stdout
    assert "Task 1 (dogs)" in printed and "Task 2 (cats)" in printed


def test_metrics_of_scores_are_shown_as_they_are(engram: Engram, runs: Path) -> None:
    run = package.load(runs / "scores" / "plain-0")[0]
    shown = engram("metrics", runs / "scores" / "plain-0")
    assert shown.returncode == 0 and "in percent" not in shown.stdout
    assert f"{run.metrics['score']:.4g}" in shown.stdout and "(cats)" in shown.stdout
    assert engram("metrics", runs / "scores" / "plain-0", "--json").json["final"] == pytest.approx(
        run.metrics
    )


def test_scores_are_compared_and_laid_out_in_their_own_unit(engram: Engram, runs: Path) -> None:
    losses = [package.load(runs / "scores" / f"plain-{seed}")[0].metrics["score"] for seed in (0, 1)]
    compared = engram("compare", runs / "scores", "--metric", "score", "--metric", "score-FORG")
    assert compared.returncode == 0, compared.stderr
    assert "score: lower is better" in compared.stdout and f"{np.mean(losses):.2f}" in compared.stdout
    table = engram("table", runs / "scores", "--metrics", "score", "--spread", "none").stdout
    assert f"| plain | {np.mean(losses):.2f} | 2 |" in table and "percent" not in table


@pytest.mark.parametrize("verb", ["gate", "history", "report", "samples", "gaps", "flips", "autopsy"])
def test_what_needs_answers_refuses_scores(engram: Engram, runs: Path, tmp_path: Path, verb: str) -> None:
    first = runs / "scores" / "plain-0"
    arguments = {
        "gate": (first, runs / "scores" / "plain-1"),
        "history": (runs / "scores", "-o", tmp_path / "page.html"),
        "report": (runs / "scores", "-o", tmp_path / "page.html"),
        "flips": (first, "start"),
        "autopsy": (first, "-o", tmp_path / "page.html"),
    }
    done = engram(verb, *arguments.get(verb, (first,)))
    assert done.returncode == 2 and "has only scores, no right and wrong answers" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_runs_with_scores_alone_are_not_damaged(engram: Engram, runs: Path) -> None:
    done = engram("verify", "runs", runs / "scores")
    assert (done.returncode, done.stdout.strip()) == (0, "4 done")


@pytest.mark.parametrize(
    ("verb", "more"), [("metrics", ()), ("samples", ()), ("gaps", ()), ("flips", ("start",))]
)
def test_a_run_in_a_store_is_named_by_its_id(
    engram: Engram, runs: Path, store: Path, verb: str, more: tuple[str, ...]
) -> None:
    stored = engram(verb, store / "plain-0", *more, "--json").json
    assert stored == engram(verb, runs / "bits" / "plain-0", *more, "--json").json


def test_gate_and_history_read_stores(engram: Engram, runs: Path, store: Path, tmp_path: Path) -> None:
    gate = engram("gate", store / "plain-0", store / "plain-1", "--max-drop", "100pp", "--json").json
    folders = [runs / "bits" / f"plain-{seed}" for seed in (0, 1)]
    assert gate["slices"] == engram("gate", *folders, "--max-drop", "100pp", "--json").json["slices"]
    history = engram("history", store, "-o", tmp_path / "page.html", "--json").json
    assert history["versions"] == ["better-0", "better-1", "plain-0", "plain-1"]


def test_stores_are_verified_and_counted(engram: Engram, store: Path) -> None:
    assert engram("verify", "runs", store).stdout.strip() == "4 done"
    assert engram("status", store, "--json").json["counts"]["done"] == 4


def test_a_store_in_place_of_a_run_is_one_line(engram: Engram, store: Path) -> None:
    several = engram("gaps", store)
    assert several.returncode == 2 and f"name one, as in {store}/better-0" in several.stderr
    unknown = engram("samples", store / "plain-7")
    assert unknown.returncode == 2 and "unknown run 'plain-7'; did you mean" in unknown.stderr


def test_only_finished_runs_are_looked_at(engram: Engram, runs: Path, tmp_path: Path) -> None:
    from shutil import copytree

    begun = copytree(runs / "bits" / "plain-0", tmp_path / "begun")
    (begun / "result.json").unlink()
    for verb in (("samples", begun), ("gaps", begun), ("flips", begun, "start"), ("gate", begun, begun)):
        done = engram(*verb)
        assert done.returncode == 2 and "cannot be used: it is not finished" in done.stderr


def test_recording_more_does_not_stop_a_comparison(engram: Engram, tmp_path: Path) -> None:
    package.run("split-digits", "er", updates=2, out=tmp_path, answers=True, plasticity=True)
    package.run("split-digits", "finetune", updates=2, out=tmp_path)
    done = engram("compare", tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_report_shows_scores_as_they_are_and_folds_most_metrics(
    engram: Engram, runs: Path, tmp_path: Path
) -> None:
    x, y = torch.eye(2), torch.tensor([0, 1])
    watch = package.Evaluator([(x, y)], right=package.right.arg_max(), score=package.score.cross_entropy())
    with torch.no_grad():
        net = torch.nn.Linear(2, 2)
        net.weight.copy_(torch.tensor([[0.0, 3.0], [3.0, 0.0]]))
        net.bias.zero_()
    watch(net, learning=0)
    saved = watch.save(tmp_path / "both")
    assert engram("report", tmp_path / "both", "-o", tmp_path / "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    row = page[page.index(">score<") :]
    assert f"{saved.metrics['score']:.1f}" == "3.0" and "<td>3.0" in row[:300]
    # The metrics that are read first are in a table of their own.
    assert page.index(">ACC<") < page.index("more metrics") < page.index(">score<")
