"""`engram explain`: what a number means."""

from pathlib import Path

import pytest
from tests.cli.command import Engram

from engram.cli import main
from engram.models import MODELS


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


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "split-digits",
            ["class (default), task, domain", "5 tasks of 2 classes", "1,442 and 355 in all", "10 epochs"],
        ),
        ("split-digits", ["a run takes  about: finetune", "estimated for one core"]),
        ("slt-D5-5a-mnist", ["2 tasks of 5 classes", "batch size 100"]),
        ("lwta", ["compete in blocks", "--block", "--hidden", "for images of 1×28×28"]),
        ("resnet18", ["11,173,962", "--stem"]),
        (
            "domain",
            ["the same units for every task", "hidden, in training and at test time", "permuted-mnist"],
        ),
        ("task", ["one head per task"]),
        ("mnist", ["MNIST", "60,000 for training and 10,000 for testing", "split-mnist"]),
        ("clear10", ["10 tasks of 10 classes", "clear10-2005, clear10-2006"]),
        ("causality", ["a constraint that applications set", "data of future tasks"]),
        ("passes", ["How many passes over the data?", "engram audit"]),
        ("adam", ["torch.optim.Adam"]),
        ("reproduced", ["within the margin", "two one-sided tests", "1 point", "Welch, p < .01"]),
        ("consistent", ["No difference", "would not have been noticed", "one run", "--power NAME"]),
        ("differs", ["p < .01", "comes before reproduced"]),
        ("not compared", ["scaled down"]),
    ],
)
def test_everything_that_has_a_name_is_explained(name: str, parts: list[str], engram: Engram) -> None:
    done = engram("explain", name)
    assert (done.returncode, done.stderr) == (0, "")
    # Lines are broken where the terminal ends.
    shown = " ".join(done.stdout.split())
    for part in parts:
        assert " ".join(part.split()) in shown


def test_explanations_as_json(engram: Engram) -> None:
    explained = engram("explain", "clear10", "--json").json["explanations"]
    assert [entry["kind"] for entry in explained] == ["scenario", "data set"]
    (metric,) = engram("explain", "BWT", "--json").json["explanations"]
    assert metric["kind"] == "metric" and metric["facts"]["divisor"]
    (method,) = engram("explain", "er", "--json").json["explanations"]
    assert method["facts"]["needs"] == "stored data, boundaries"


def test_a_model_of_ones_own_is_explained(tmp_path: Path, engram: Engram) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import engram\nfrom torch import nn\n\n@engram.model('test-explained', head='1')\n"
        "def net(shape, n_units):\n    'A linear one.'\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, n_units))\n"
    )
    try:
        done = engram("explain", "test-explained", "--plugin", plugin)
        assert done.returncode == 0 and "A linear one." in done.stdout
    finally:
        MODELS._entries.pop("test-explained", None)


@pytest.mark.parametrize(
    ("name", "near"), [("split-minst", "split-mnist"), ("resnet5", "resnet50"), ("domian", "domain")]
)
def test_a_wrong_name_gets_the_nearest_of_all_kinds(name: str, near: str, engram: Engram) -> None:
    done = engram("explain", name)
    assert done.returncode == 2 and f"'{near}'" in done.stderr
    assert "`engram list KIND` shows scenarios, models, methods" in done.stderr


def test_one_matrix_under_every_tools_definition(tmp_path: Path, engram: Engram) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(".98,,,\n.91,.90,,\n.85,.92,.95,\n.70,.94,.80,.96\n")
    answer = engram("explain", "forgetting", "--matrix", file, "--json").json
    values = [round(variant["value"], 4) for variant in answer["variants"]]
    assert values == [0.13, 0.1367, 0.1433, 0.1075, 0.0975, -0.085, -0.13]
    file.write_text(".9,\n.5,.8\n")
    done = engram("explain", "forgetting", "--matrix", file)
    assert done.returncode == 0 and "FORG; Avalanche" in done.stdout and "0.4000" in done.stdout
    wrong = engram("explain", "ewc", "--matrix", file)
    assert wrong.returncode == 2 and "choose from forgetting, backward transfer" in wrong.stderr


@pytest.mark.parametrize("name", ["churn", "dormant units", "effective rank", "score", "score-FORG"])
def test_what_runs_record_besides_metrics_is_explained(engram: Engram, name: str) -> None:
    done = engram("explain", name)
    assert done.returncode == 0 and name in done.stdout
