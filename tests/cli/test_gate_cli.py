"""`engram gate`: exit 0, 1 or 2; a table for people, and files for other programs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import engram
from engram.cli import main
from engram.core.errors import InputError


def run(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["gate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    """Predictions of 1,000 samples; the new model loses 30 of the 500 pictures taken at night."""
    old, new = ["id,label,prediction,light"], ["id,label,prediction"]
    for number in range(1000):
        label, light = number % 4, "night" if number < 500 else "day"
        old.append(f"{number},{label},{label},{light}")
        new.append(f"{number},{label},{(label + (number < 30)) % 4}")
    (tmp_path / "old.csv").write_text("\n".join(old))
    (tmp_path / "new.csv").write_text("\n".join(new))
    return tmp_path / "old.csv", tmp_path / "new.csv"


def test_forgetting_exits_1_and_is_explained(
    models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run([*models, "--max-worst-slice-drop", "5pp"], capsys)
    assert (code, err) == (1, "")
    assert "1,000 samples: accuracy 100.00 % before, 97.00 % after; 30 lost, 0 gained" in out
    rows = out.splitlines()
    assert rows[3].split()[:6] == ["light=night", "500", "100.00", "94.00", "30", "0"]
    assert "failed  max-worst-slice-drop 5pp (safe): the drop may be as large as" in out
    assert "slice light=night" in out


def test_no_forgetting_exits_0(models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run([models[0], models[0]], capsys)
    assert code == 0
    assert "passed  max-drop 1pp (safe)" in out
    code, _, _ = run([*models, "--max-drop", "10pp", "--max-flips", "1%:harm"], capsys)
    assert code == 1
    code, _, _ = run([*models, "--max-drop", "10pp", "--max-flips", "5%:harm"], capsys)
    assert code == 0


def test_files_for_other_programs(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "out" / name for name in ("g.xml", "g.md", "g.html")]
    options = [item for pair in zip(("--junit", "--markdown", "--html"), files, strict=True) for item in pair]
    code, out, _ = run([*models, *options, "--json"], capsys)
    assert code == 1
    answer = json.loads(out)
    assert answer["passed"] is False
    assert answer["overall"]["lost"] == 30
    assert {change["name"] for change in answer["slices"]} >= {"light=night", "class=0"}
    assert all(file.stat().st_size > 200 for file in files)


def test_bad_input_exits_2_and_writes_nothing(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    for arguments in (
        [models[0], tmp_path / "nowhere.csv"],
        [*models, "--max-drop", "1%"],
        [*models, "--level", "0.7"],
        [*models, "--slices", "wether"],
        [tmp_path, models[1]],
    ):
        code, out, err = run([*arguments, "--html", page], capsys)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
    assert not page.exists()


def test_networks_are_compared_on_test_sets() -> None:
    x = torch.eye(4).repeat(100, 1)
    y = torch.arange(4).repeat(100)
    old, new = torch.nn.Identity(), torch.nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        new.weight.copy_(torch.eye(4))
        new.weight[3] = 0
        new.weight[2, 3] = 1
    outcome = engram.gate(old, new, {"first": (x[:200], y[:200]), "second": (x[200:], y[200:])})
    assert (outcome.overall.lost, outcome.passed) == (100, False)
    assert {change.name for change in outcome.slices} == {
        *("data=first", "data=second"),
        *(f"class={label}" for label in range(4)),
    }
    assert outcome.slices[0].name == "class=3"
    with pytest.raises(InputError, match="model is for weights in files"):
        engram.gate({"id": [1], "correct": [1]}, {"id": [1], "correct": [1]}, model="mlp")
    with pytest.raises(InputError, match="networks need test sets"):
        engram.gate(old, new)
    with pytest.raises(InputError, match="must be a file, a run, a table"):
        engram.gate(3, 4)


def test_prediction_files_need_no_torch(models: tuple[Path, Path]) -> None:
    code = (
        "import sys, engram; "
        f"print(engram.gate({str(models[0])!r}, {str(models[1])!r}).overall.lost, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("30 False\n", "")


def test_a_limit_of_everything_is_taken_for_a_slip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "a.csv"
    table.write_text("id,correct\n" + "".join(f"{n},1\n" for n in range(400)))
    for option, meant in (("--max-drop", "1pp"), ("--max-flips", "1%")):
        with pytest.raises(SystemExit) as stopped:
            main(["gate", str(table), str(table), option, "1"])
        assert stopped.value.code == 2 and f"did you mean {meant}?" in capsys.readouterr().err
