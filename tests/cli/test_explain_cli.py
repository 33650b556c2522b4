"""`engram explain`: what a number means."""

import pytest

from engram.cli import main


def run(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["explain", name])
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_a_metric_is_explained_with_its_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("WC-ACC", capsys)
    assert code == 0
    for part in ("worst-case accuracy", "Eq. 6", "divisor", "1/3 · .97 + 2/3 · .40 = 0.590000"):
        assert part in out


def test_a_window_is_part_of_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "windowed plasticity" in run("wp25", capsys)[1]


def test_a_shared_name_shows_all_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("forgetting", capsys)
    for part in ("FORG:", "AF:", "AvgFgt:", "0.1300", "0.1367", "0.1433", "0.1075", "0.0975"):
        assert part in out


def test_a_metric_shows_what_its_name_means_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("BWT", capsys)
    assert "One name, many numbers: 'backward transfer'" in out
    assert "-0.0975" in out


def test_brackets_of_formulas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "acc[k, j]" in run("ACC", capsys)[1]


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("min-AC", capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: unknown name 'min-AC'; did you mean 'min-ACC'")
    assert err.count("\n") == 1


def test_a_method_needs_what_its_usual_fields_need(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("er", capsys)[1]
    [needs] = [line for line in out.splitlines() if line.startswith("needs")]
    assert needs.split(maxsplit=1)[1].strip() == "stored data, boundaries"
