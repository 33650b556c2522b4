"""`engram protocol` as a person types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import Done, Engram
from tests.protocols.made_up import Recorder, with_curve

from engram.datasets.stream import Stream
from engram.protocols.drive import Failure, Result
from engram.run.experiment import Experiment

MakeUp = Callable[[Callable[[Experiment], Result | Failure]], Recorder]


@pytest.fixture
def protocol(engram: Engram, tmp_path: Path) -> Engram:
    def call(*arguments: object) -> Done:
        return engram("protocol", *arguments, "--out", tmp_path / "runs")

    return call


@pytest.fixture
def make_up(monkeypatch: pytest.MonkeyPatch) -> MakeUp:
    """Lets the command make results up instead of training."""

    def with_results(make: Callable[[Experiment], Result | Failure]) -> Recorder:
        execute = Recorder(make)
        monkeypatch.setattr("engram.cli.protocol.executor", lambda *_, **__: execute)
        return execute

    return with_results


def learned(each: Experiment) -> Result:
    """Each task is known while it is learned, and half known afterwards."""
    points = [
        (step, tasks[-1], {task: 0.9 if task in tasks else 0.5 for task in range(max(tasks) + 1)})
        for step, tasks in enumerate(each.scenario.phases, start=1)
    ]
    return with_curve(each, points)


def test_grid(protocol: Engram) -> None:
    command = ["grid", "split-digits", "er", "--updates", 20, "--seeds", 2, "--json"]
    found = protocol(*command, "--grid", "lr=.1,.0001", "--grid", "weight=.5").json
    assert [c["fields"] for c in found["candidates"]] == [
        {"lr": 0.1, "weight": 0.5},
        {"lr": 0.0001, "weight": 0.5},
    ]
    assert found["choice"] == {"lr": 0.1, "weight": 0.5} and found["metric"] == "ACC"
    assert found["candidates"][0]["score"] == pytest.approx(found["summary"]["ACC"]["mean"])
    assert len(found["candidates"][0]["scores"]) == len(found["runs"]) == 2


def test_grid_by_a_metric_of_the_curve_looks_after_every_update(protocol: Engram, tmp_path: Path) -> None:
    command = ["grid", "split-digits", "er", "--updates", 6, "--subset", 20, "--grid", "lr=.1,.05"]
    found = protocol(*command, "--metric", "WC-ACC", "--select-on", "validation", "--json").json
    assert found["selected_on"] == "validation"
    result = json.loads((tmp_path / "runs" / found["runs"][0] / "result.json").read_text())
    assert result["evaluations"] == 31


def test_causal(protocol: Engram) -> None:
    command = ["causal", "slt-D5-5a-digits", "finetune", "--epochs", 2, "--grid", "lr=.01,.001", "--json"]
    found = protocol(*command, "--later-lr", ".1,.001").json
    assert {"best", "last", "baseline", "omega_all", "forgets", "candidates", "choice"} <= found.keys()
    assert found["omega_all"] == pytest.approx(found["best"] / found["baseline"])
    assert found["choice"]["later_lr"] in ([0.1], [0.001]) and isinstance(found["forgets"], bool)


def test_causal_measures_short_tasks_as_often_as_long_ones(protocol: Engram, make_up: MakeUp) -> None:
    execute = make_up(learned)
    done = protocol("causal", "slt-D9-1a-digits", "finetune", "--epochs", 100, "--batch-size", 1, "--json")
    assert done.returncode == 0, done.stderr
    whole, together = execute.rounds[-1]
    stream = Stream(whole.scenario)
    for planned, phase in ((whole, 0), (whole, 1), (together, 0)):
        steps = planned.steps(len(Stream(planned.scenario).phase(phase)))
        assert 90 <= steps / planned.evaluation.every_in(steps) < 92
    assert len(stream.phase(0)) > 7 * len(stream.phase(1))


def test_ctrl_c_says_what_is_kept(protocol: Engram, make_up: MakeUp) -> None:
    def interrupted(_: Experiment) -> Result:
        raise KeyboardInterrupt

    make_up(interrupted)
    done = protocol("grid", "split-digits", "er")
    assert done.returncode == 130
    assert done.stderr == "error: interrupted: what was finished is kept; the same command goes on from there\n"


def test_causal_with_merged_networks(protocol: Engram) -> None:
    found = protocol("causal", "slt-D9-1b-digits", "imm-mean", "--epochs", 1, "--lr", ".05", "--json").json
    assert len(found["runs"][0]["balances"]) == 101 and found["choice"] == {"later_lr": [None]}


def test_causal_over_all_streams_of_a_type(protocol: Engram) -> None:
    command = ["causal", "slt-D9-1-digits", "finetune", "--updates", 5, "--later-lr", "first", "--json"]
    found = protocol(*command).json
    assert sorted(found["streams"]) == [f"slt-D9-1{letter}-digits" for letter in "abc"]
    assert found["best"] == min(stream["best"] for stream in found["streams"].values())


def test_forward_transfer(protocol: Engram) -> None:
    command = ["forward-transfer", "split-digits", "finetune", "--setting", "task", "--updates", 10]
    found = protocol(*command, "--shots", "2,5", "--json").json
    assert set(found["AvgFwt"]) == {"2", "5"}
    for name in ("AvgFDiv", "AvgFgt", "AvgAcc", "AvgLAcc"):
        assert isinstance(found[name], float)
    several = protocol(
        "forward-transfer", "split-digits", "finetune,er", *command[3:], "--shots", "2", "--seeds", 2
    )
    assert "er AvgFwt" in several.stdout and "Spearman's ρ of AvgFgt" in several.stdout


def test_online_and_queue(protocol: Engram) -> None:
    once = protocol("online", "split-digits", "er", "--json").json
    assert set(once["curves"]) == {"AA", "AF", "RAA", "RAF"} and len(once["curves"]["AA"]) == 5
    assert once["curves"]["AF"][0] is None and "candidates" in once and "choice" in once
    command = ["queue", "split-digits", "ewc", "--updates", 5, "--grid", "strength=1,100"]
    found = protocol(*command, "--report-every", 2, "--json").json
    assert found["tasks"] == [1, 3, 5] and len(found["best"]["averages"]) == 3
    assert protocol(*command).stdout.count("averages=") == 2


def test_people_get_a_table_and_the_choice(protocol: Engram) -> None:
    done = protocol("grid", "split-digits", "finetune", "--updates", 3, "--grid", "hidden=8,8x8")
    assert done.returncode == 0, done.stderr
    assert (
        "hidden=[8, 8]" in done.stdout and "chosen: hidden=" in done.stdout and "ACC on test" in done.stdout
    )


def test_what_exists_is_run_again_only_when_asked(protocol: Engram, tmp_path: Path) -> None:
    command = ["grid", "split-digits", "finetune", "--updates", 2, "--losses", "--json"]
    found = protocol(*command).json
    place = tmp_path / "runs" / found["runs"][0] / "result.json"
    stamp = place.stat().st_mtime_ns
    assert (place.parent / "probes.parquet").is_file()
    assert protocol(*command).json == found and place.stat().st_mtime_ns == stamp
    assert protocol(*command, "--again").json["summary"]["ACC"] == found["summary"]["ACC"]
    assert place.stat().st_mtime_ns != stamp


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gird", "split-digits", "er"], "unknown protocol 'gird': did you mean 'grid'"),
        (["grid", "split-digit", "er"], "did you mean 'split-digits'"),
        (["grid", "split-digits", "err"], "did you mean"),
        (["grid", "split-digits", "er", "--grid", "lr"], "write FIELD=a,b,c"),
        (["grid", "split-digits", "er", "--grid", "lr="], "write FIELD=a,b,c"),
        (["grid", "split-digits", "er", "--grid", "lrr=1"], "unknown field 'lrr': did you mean 'lr'"),
        (["grid", "split-digits", "er", "--grid", "lr=1,x"], "lr='x' cannot be used in a grid"),
        (["grid", "split-digits", "er", "--select-on", "train"], "unknown data to select on 'train'"),
        (["grid", "split-digits", "er", "--every", "0"], "every=0"),
        (["grid", "split-digits", "er", "--per-epoch"], "give --every as well"),
        (["grid", "split-digits", "er", "--tasks", "some"], "unknown tasks 'some'"),
        (["grid", "split-digits", "er", "--held-out", "1.5", "--select-on", "validation"], "holds out 1.5"),
        (["causal", "split-digits", "er", "--later-lr", "a"], "later-lr='a'"),
        (["causal", "split-digits", "er", "--choose-by", "old"], "unknown way to choose a rate 'old'"),
        (["causal", "split-digits", "er", "--start", "first"], "unknown start 'first'"),
        (["forward-transfer", "split-digits", "er", "--shots", "0"], "cannot be used to probe"),
        (["forward-transfer", "split-digits", "er", "--shots", "a"], "shots='a'"),
        (["queue", "split-digits", "er", "--report-every", "0"], "every=0"),
        (["online", "split-digits", "er", "--seeds", "0"], "seeds=0"),
        (["online", "split-digits", "er", "--jobs", "0"], "jobs=0"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, protocol: Engram, tmp_path: Path) -> None:
    done = protocol(*arguments, "--updates", 2)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and words in last
    assert not list(tmp_path.glob("runs/*/result.json"))
