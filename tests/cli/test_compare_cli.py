"""`engram compare`: tables in percent for people, one JSON object for programs, one line for mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.results.simulated import write_run

from engram.cli import main


def run(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods that differ clearly, seven seeds, three tasks."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("finetune", "er"):
        for seed in range(7):
            write_run(folder, method, seed=seed, tasks=3, updates=10, probes=False)
    return folder


def test_tables_for_people(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run([runs, "--metric", "ACC", "--metric", "forg"], capsys)
    assert (code, err) == (0, "")
    assert "split-digits (class), 7 seeds: 0, 1, 2, 3, 4, 5, 6" in out
    assert "ACC, in percent: higher is better; 7 seeds" in out
    assert "FORG, in percent: lower is better; 7 seeds" in out
    assert out.count("er − finetune") == 2
    assert out.count("told apart") == 3
    assert "0.016" in out
    for stated in ("sign-flip permutation test, exact", "Holm", "80 % power at 5 %", "divisor n − 1", "BCa"):
        assert stated in out
    assert "nan" not in out


def test_one_json_object(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run([runs, "--json"], capsys)
    output = json.loads(out)
    assert code == 0
    assert list(output["metrics"]) == ["ACC", "FORG", "min-ACC", "WC-ACC"]
    acc = output["metrics"]["ACC"]
    assert [place["method"] for place in acc["ranking"]] == ["er", "finetune"]
    assert 0 < acc["ranking"][0]["mean"] < 1
    assert acc["groups"] == [["er"], ["finetune"]]
    assert acc["pairs"][0]["p"] == acc["pairs"][0]["p_holm"] == 2 / 2**7
    assert acc["too_few_seeds"] is None


def test_too_few_seeds_and_unfinished_runs_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("finetune", "er", "ewc"):
        for seed in range(2):
            write_run(tmp_path, method, seed=seed, tasks=2, updates=5, probes=False)
    begun = write_run(tmp_path, "er", seed=2, tasks=2, updates=5, probes=False)
    (begun / "result.json").unlink()
    code, out, err = run([tmp_path, "--metric", "ACC"], capsys)
    assert code == 0
    assert "too few seeds: with 2 seeds the smallest possible p of a sign-flip test is 0.5" in out
    assert f"left out: {begun}: it is not finished" in err
    code, out, _ = run([tmp_path, "--metric", "ACC", "--test", "t"], capsys)
    assert "paired t test" in out
    assert "too few" not in out


def test_a_single_seed_has_dashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("finetune", "er"):
        write_run(tmp_path, method, seed=0, tasks=2, updates=5, probes=False)
    write_run(tmp_path, "er", seed=1, tasks=2, updates=5, probes=False)
    code, out, _ = run([tmp_path, "--metric", "ACC"], capsys)
    assert code == 0
    assert "left out, because not every method has them: er, seeds 1" in out
    assert "–" in out
    assert "nan" not in out


def test_mistakes_are_one_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_run(tmp_path, "ewc", seed=0, tasks=2, updates=5, probes=False)
    mistakes: list[tuple[list[object], str]] = [
        ([runs, "--metric", "AC"], "unknown metric 'AC'; did you mean"),
        ([runs, "--test", "z"], "unknown test 'z'"),
        ([runs, other], "cannot be compared: scenario.tasks is 3 in one and 2 in the other"),
        ([other], "nothing to compare"),
        ([tmp_path / "absent"], "no such run"),
    ]
    for arguments, message in mistakes:
        code, out, err = run(arguments, capsys)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: ")
        assert message in err


def test_comparing_needs_no_torch(runs: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from engram.results.compare import compare_runs\nfrom engram.results.runs import find_runs\n"
        f"compare_runs(find_runs([Path({str(runs)!r})]))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_runs_on_other_test_data_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs of a training loop, with the same seed and labels, on inputs that are scaled differently."""
    import torch

    from engram import Evaluator

    x, y = torch.eye(4), torch.tensor([0, 1, 2, 3])
    for name, scale in (("plain", 1.0), ("scaled", 2.0)):
        watch = Evaluator([(scale * x, y)])
        watch(torch.nn.Linear(4, 4), learning=0)
        watch.save(tmp_path / name)
    code, out, err = run([tmp_path], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert (
        "plain and scaled cannot be compared: with seed 0 they were evaluated on different test data" in err
    )
    assert "task 0: as many samples, with other inputs" in err


def test_what_could_not_be_checked_is_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run([runs, "--metric", "ACC"], capsys)
    assert "note: the test data of er, finetune are not recorded" in " ".join(out.split())
