"""Tables as wide as the terminal: no line is longer, and no word is broken."""

from pathlib import Path

import pytest
from tests.cli.command import Engram
from tests.results.simulated import write_run

from engram.cli.output import stdout
from engram.cli.tables import Column, table_lines

LISTS = [["list", kind] for kind in ("scenarios", "methods", "metrics", "models", "datasets", "optimizers")]


def check(command: list[str], width: int, engram: Engram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdout, "width", 1000)
    whole = engram(*command)
    monkeypatch.setattr(stdout, "width", width)
    narrow = engram(*command)
    assert narrow.returncode == 0 and narrow.stdout
    assert max(map(len, narrow.stdout.splitlines())) <= width
    broken = set(narrow.stdout.split()) - set(whole.stdout.split())
    assert not broken


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", [*LISTS, ["list"], ["explain", "split-mnist"], ["explain", "forgetting"]])
def test_lists_fit(command: list[str], width: int, engram: Engram, monkeypatch: pytest.MonkeyPatch) -> None:
    check(command, width, engram, monkeypatch)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("options", [["--power"], ["--done"], ["--done", "--extend"]])
def test_reproductions_fit(
    options: list[str], width: int, engram: Engram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["reproduce", "002-table2", "--cells", "task/(EWC|LwF)", *options, "--out", str(tmp_path)]
    check(command, width, engram, monkeypatch)


@pytest.mark.parametrize("width", [80, 120])
def test_data_fit(width: int, engram: Engram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", "/cache")
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    check(["data"], width, engram, monkeypatch)


@pytest.mark.parametrize("width", [80, 120])
def test_comparisons_fit(width: int, engram: Engram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for method in ("er", "ewc", "finetune"):
        for seed in range(3):
            write_run(tmp_path, method, seed=seed, tasks=3, updates=5, label=f"{method} with memory=50")
    check(["compare", str(tmp_path)], width, engram, monkeypatch)


def test_long_cells_go_below_their_rows() -> None:
    columns = [Column("name"), Column("size", right=True), Column("where", below=True)]
    path = "/a/very/long/path/that/fits/nowhere/mnist.npz"
    lines = [line for _, line in table_lines(columns, [["mnist", "10", path], ["usps", "2", ""]], width=40)]
    assert lines == ["name   size", "mnist    10", f"    {path}", "usps      2"]
    wide = [line for _, line in table_lines(columns, [["mnist", "10", path]], width=80)]
    assert wide == ["name   size  where", f"mnist    10  {path}"]


@pytest.mark.parametrize("command", [["data"], ["explain", "er"]])
def test_a_terminal_without_any_width(
    command: list[str], engram: Engram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdout, "width", 0)
    assert engram(*command).returncode == 0
