"""`engram table`: results for papers and programs; bold only where the seeds show it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from tests.cli.command import Engram
from tests.results.simulated import write_run

import engram as package
from engram.core.files import read_json, write_json
from engram.record.run import Run
from engram.results.table import table_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods that differ clearly, seven seeds, three tasks."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("finetune", "er"):
        for seed in range(7):
            write_run(folder, method, seed=seed, tasks=3, updates=10, probes=False)
    return folder


@pytest.fixture(scope="module")
def two_scenarios(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and one method on another scenario."""
    folder = tmp_path_factory.mktemp("other")
    run = write_run(folder, "er", seed=0, tasks=2, updates=10, probes=False)
    description = read_json(run / "experiment.json")
    assert isinstance(description, dict)
    scenario = {**description["scenario"], "name": "split_100%"}
    write_json(run / "experiment.json", {**description, "scenario": scenario})
    return folder


def test_markdown(runs: Path, engram: Engram) -> None:
    done = engram("table", runs, "--metrics", "ACC,forg", "--best", "bold")
    assert (done.returncode, done.stderr) == (0, "")
    head, rule, first, second, said, note, *_ = filter(None, done.stdout.splitlines())
    assert head == "| method | ACC ↑ | FORG ↓ | seeds |"
    assert rule == "|---|---:|---:|---:|"
    value = r"\d\d\.\d\d \(\d\d\.\d\d … \d\d\.\d\d\)"
    assert re.fullmatch(rf"\| er \| \*\*{value}\*\* \| \*\*{value}\*\* \| 7 \|", first)
    assert re.fullmatch(rf"\| finetune \| {value} \| {value} \| 7 \|", second)
    assert said == "mean (95 % interval) over seeds, in percent"
    assert note.startswith("Bold: the best mean of a column")


def test_numbers_are_those_of_the_summary(runs: Path, engram: Engram, tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    assert engram("table", runs, "-o", file, "--metrics", "ACC").returncode == 0
    frame = pl.read_parquet(file)
    assert frame["method"].to_list() == ["er", "finetune"]
    values = [run.metrics["ACC"] for run in package.load(runs) if run.method == "er"]
    over = package.load(runs).compare("ACC").rankings["ACC"].standings[0].over
    row = frame.row(0, named=True)
    assert row["ACC"] == pytest.approx(sum(values) / 7)
    assert (row["ACC low"], row["ACC high"], row["ACC sd"], row["ACC seeds"]) == (*over.ci95, over.sd, 7)
    printed = engram("table", runs, "--format", "csv", "--metrics", "ACC").stdout
    assert pl.read_csv(printed.encode()).equals(frame)
    rows = engram("table", runs, "--json", "--metrics", "ACC").json["rows"]
    assert rows == json.loads(json.dumps(frame.to_dicts()))


def test_latex_has_blocks_and_is_escaped(
    runs: Path, two_scenarios: Path, engram: Engram, tmp_path: Path
) -> None:
    file = tmp_path / "table.tex"
    done = engram("table", runs, two_scenarios, "--metrics", "ACC", "--best", "bold", "-o", file)
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert done.stdout == f"{file}\n"
    assert text.count(r"\midrule") == 2
    assert r"\multicolumn{3}{l}{\emph{split\_100\% (class)}} \\" in text
    assert re.search(
        r"^er & \\textbf\{\d\d\.\d\d \(\d\d\.\d\d \\dots\{\} \d\d\.\d\d\)\} & 7 \\\\$", text, re.M
    )
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in rows} == {2}
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(("seeds", "bold"), [(3, 0), (7, 2)])
def test_bold_needs_enough_seeds(runs: Path, engram: Engram, seeds: int, bold: int) -> None:
    folders = [runs / f"{method}-{seed}" for method in ("er", "finetune") for seed in range(seeds)]
    done = engram("table", *folders, "--metrics", "ACC,FORG", "--best", "bold")
    assert done.stdout.count("**") == 2 * bold
    assert ("nothing is marked as best" in done.stdout) == (bold == 0)


def test_what_cannot_be_told_apart_is_bold_too(engram: Engram, tmp_path: Path) -> None:
    """Two methods that behave alike, and one that is clearly worse."""
    for seed in range(8):
        for label in ("one", "other"):
            shift = 100 if label == "other" else 0
            run = write_run(
                *(tmp_path, "er"), seed=seed + shift, tasks=2, updates=5, label=label, settings={"of": label}
            )
            description = read_json(run / "experiment.json")
            assert isinstance(description, dict)
            write_json(run / "experiment.json", {**description, "seed": seed})
        write_run(tmp_path, "finetune", seed=seed, tasks=2, updates=5)
    done = engram("table", tmp_path, "--metrics", "ACC", "--best", "bold", "--by", "method,settings.of")
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:5]]
    assert {(row[0].strip(), row[1].strip()): "**" in row[2] for row in rows} == {
        ("er", "one"): True,
        ("er", "other"): True,
        ("finetune", ""): False,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metrics", "ACCC"), "unknown metric 'ACCC'; did you mean 'ACC'"),
        (("--by", "methods"), "unknown column 'methods'; did you mean 'method'"),
        (("--format", "tex"), "unknown format 'tex'"),
        (("--format", "parquet"), "name it with -o FILE"),
        (("--best", "italic"), "unknown way to mark the best 'italic'"),
        (("--spread", "se"), "unknown spread 'se'"),
        (("-o", "table.doc"), "--out must end in .csv, .md, .tex, .parquet, got table.doc"),
        (("--by", "scenario"), "two experiments are split-digits: they differ in method"),
    ],
)
def test_mistakes(
    runs: Path,
    engram: Engram,
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = engram("table", runs, *words)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_means_over_other_seeds_than_those_compared_are_not_marked() -> None:
    """The printed mean of the better method may be the lower one, and a metric may be undefined on seeds."""
    values = {"a": [0.9] * 8, "b": [0.91 + seed / 1000 for seed in range(8)] + [0.1] * 4}
    runs = [
        Run(
            description={"method": method, "label": method, "seed": seed},
            stored={"ACC": value, "FORG": float("nan") if method == "a" and seed < 3 else value},
        )
        for method, row in values.items()
        for seed, value in enumerate(row)
    ]
    table = table_of(runs, ["ACC"], best=True)
    reason = "nothing is marked as best: the means are over 8 to 12 seeds, and all rows share 8: "
    assert table.frame()["ACC best"].to_list() == [None, None]
    assert any(note.startswith(reason) for note in table.notes)
    shared = [run for run in runs if run.seed is not None and run.seed < 8]
    table = table_of(shared, ["ACC", "FORG"], best=True)
    assert table.frame()["ACC best"].to_list() == [False, True]
    assert table.frame()["FORG best"].to_list() == [None, None]
    assert any(note.startswith("in FORG, nothing is marked as best: with 5 seeds") for note in table.notes)


def test_from_python(runs: Path) -> None:
    table = package.load(runs).table("ACC", best=True)
    assert table.markdown(spread="sd", digits=1).count("±") == 3
    assert "(" not in table.latex(spread="none").partition(r"\bottomrule")[0]
    assert table.frame()["ACC best"].to_list() == [True, False]
