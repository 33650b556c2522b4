"""`engram compare`: tables in percent for people, one JSON object for programs, one line for mistakes."""

import json
import shutil
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
    # ACC decides; FORG is exploratory: it has neither letters nor the words.
    assert "FORG, in percent: lower is better; 7 seeds; exploratory" in out
    assert out.count("told apart") == 2 and out.count("below 0.05") == 1
    assert out.count("group") == 1
    assert "0.016" in out
    for stated in ("sign-flip permutation test, exact", "symmetric about 0", "Holm", "80 % power at 5 %"):
        assert stated in " ".join(out.split())
    for stated in ("divisor n − 1", "logit scale", "about 15 % of cases"):
        assert stated in " ".join(out.split())
    assert "extended" not in out and "too few" not in out
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
    # Said first, and once; nothing has a letter.
    few = "too few seeds: with 2 seeds the smallest possible p of a sign-flip test is 0.5"
    assert out.splitlines()[1].startswith(few) and out.count("too few") == 1
    assert "group" not in out and "letter" not in out
    _, out, _ = run([tmp_path], capsys)
    assert out.splitlines()[1].startswith(few) and out.count("too few") == 1
    assert "at least 7 seeds are needed" in " ".join(out.split())
    code, out, _ = run([tmp_path, "--baseline", "ewc"], capsys)
    assert (code, out.count(" − ewc")) == (0, 8) and "er − finetune" not in out
    code, out, err = run([tmp_path, "--metric", "ACC"], capsys)
    assert f"left out: {begun}: it is not finished" in err
    code, out, _ = run([tmp_path, "--metric", "ACC", "--test", "t"], capsys)
    assert "paired t test" in out
    assert "too few" not in out


def test_six_methods_need_fewer_seeds_with_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(6):
        for seed in range(2):
            settings = {"memory": number}
            write_run(tmp_path, "er", seed=seed, tasks=2, updates=4, label=f"m{number}", settings=settings)
    _, out, _ = run([tmp_path, "--metric", "ACC"], capsys)
    assert out.count(" − ") >= 15
    assert "at least 10 seeds are needed (8 with --baseline METHOD, which tests 5 pairs)" in " ".join(
        out.split()
    )
    _, out, _ = run([tmp_path, "--metric", "ACC", "--baseline", "m3"], capsys)
    assert out.count(" − m3") == 5 and "at least 8 seeds are needed" in " ".join(out.split())


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
        ([runs / "er-0", other], "cannot be compared: scenario.tasks is 3 in one and 2 in the other"),
        ([runs, "--baseline", "gem"], "unknown baseline 'gem'"),
        ([runs, "--bootstrap"], "a bootstrap interval needs at least 10 seeds, got 7"),
        ([runs, "--more-seeds", "many"], "--more-seeds must be ascending numbers of seeds, such as 6,12"),
        ([runs, "--more-seeds", "12"], "a plan must name at least two ascending numbers of seeds"),
        ([runs, "--more-seeds", "6,12"], "the plan is to look with 6 and 12 seeds, got 7"),
        ([other], "nothing to compare"),
        ([tmp_path / "absent"], "no such run"),
    ]
    for arguments, message in mistakes:
        code, out, err = run(arguments, capsys)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: ")
        assert message in err


def test_a_comparison_that_was_extended_after_a_look_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(seeds: range) -> None:
        for method in ("finetune", "er"):
            for seed in seeds:
                write_run(tmp_path, method, seed=seed, tasks=2, updates=4, probes=False)

    # Five seeds can find nothing, so looking at them spends nothing.
    add(range(5))
    _, out, _ = run([tmp_path], capsys)
    add(range(5, 6))
    for _ in range(2):
        _, out, _ = run([tmp_path], capsys)
        assert "extended" not in out
    add(range(6, 8))
    _, out, _ = run([tmp_path], capsys)
    said = " ".join(out.split())
    assert "extended after a look: this comparison was looked at before with 6 seeds." in said
    assert "--more-seeds 6,8" in said
    _, out, _ = run([tmp_path, "--json"], capsys)
    (look,) = json.loads(out)["extended"]
    assert (look["seeds"], look["test"]) == ([0, 1, 2, 3, 4, 5], "sign-flip")
    # A plan that is made afterwards does not help.
    _, out, _ = run([tmp_path, "--more-seeds", "6,8"], capsys)
    said = " ".join(out.split())
    assert "planned looks with 6, 8 seeds: the level of this one is 0.0264, that of all of them 0.05" in said
    assert "looked at before with 6 seeds outside of this plan" in said


def test_planned_looks_are_no_extension(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seeds in (range(7), range(7, 9)):
        for method in ("finetune", "er"):
            for seed in seeds:
                write_run(tmp_path, method, seed=seed, tasks=2, updates=4, probes=False)
        _, out, _ = run([tmp_path, "--more-seeds", "7,9"], capsys)
        assert "planned looks with 7, 9 seeds" in out and "extended" not in out


def test_a_folder_that_cannot_be_written_is_compared_all_the_same(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(runs, tmp_path / "runs", ignore=shutil.ignore_patterns("*.json*"))
    shutil.copytree(runs, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("compared.json"))
    # Nobody can write a file in the place of a folder, not even root.
    (folder / "compared.json").mkdir()
    code, out, err = run([folder], capsys)
    assert (code, err) == (0, "") and "told apart" in out
    code, _, err = run([folder, "--more-seeds", "7,9"], capsys)
    assert code == 0 and "this look is not recorded" in err


def test_several_scenarios_have_a_table_each(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("finetune", "er"):
        for seed in range(6):
            write_run(tmp_path, method, seed=seed, tasks=2, updates=4, probes=False)
    code, out, _ = run([runs, tmp_path, "--metric", "ACC"], capsys)
    assert code == 0
    assert "split-digits (class), tasks 3" in out and "split-digits (class), tasks 2" in out
    assert out.count("ACC, in percent") == 2 and out.count("Holm's correction") == 1
    code, out, _ = run([runs, tmp_path, "--json"], capsys)
    output = json.loads(out)
    assert (code, output["left_out"]) == (0, {})
    assert [len(scenario["seeds"]) for scenario in output["scenarios"]] == [7, 6]
    alone = write_run(tmp_path / "more", "ewc", seed=0, tasks=4, updates=4, probes=False)
    code, out, err = run([runs, tmp_path, alone, "--json"], capsys)
    assert code == 0 and "left out: split-digits (class), tasks 4" in err
    assert list(json.loads(out)["left_out"]) == ["split-digits (class), tasks 4, phases [[0], [1], [2], [3]]"]


def test_many_pairs_are_cut_down_to_those_with_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engram.cli.compare.MOST_PAIRS", 2)
    for method in ("finetune", "er", "ewc"):
        for seed in range(2):
            write_run(tmp_path, method, seed=seed, tasks=2, updates=4, probes=False)
    _, out, _ = run([tmp_path, "--metric", "ACC"], capsys)
    assert "er − ewc" in out and "er − finetune" in out and "ewc − finetune" not in out
    assert "the 2 pairs with er are shown, of 3: --json has all of them" in " ".join(out.split())


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
