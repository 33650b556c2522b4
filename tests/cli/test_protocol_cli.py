"""`engram protocol` as a person types it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.cli.command import Done, Engram
from tests.protocols.made_up import Recorder, failed, with_curve, with_metrics

from engram.cli.protocol.running import again_at_most_once
from engram.core.errors import InputError, NonFinite
from engram.core.files import write_json
from engram.core.folder import RESULT, Reading
from engram.datasets.stream import Stream
from engram.engine.probing import probe_name
from engram.engine.recipe import experiment
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run
from engram.record.tables import Tables

NO_OPTION = "no such option {}; see `engram protocol {} --help`"
MakeUp = Callable[[Callable[[Experiment], Run]], Recorder]


@pytest.fixture
def protocol(engram: Engram, tmp_path: Path) -> Engram:
    def call(*arguments: object) -> Done:
        return engram("protocol", *arguments, "--out", tmp_path / "runs")

    return call


@pytest.fixture
def make_up(monkeypatch: pytest.MonkeyPatch) -> MakeUp:
    """Lets the command make results up instead of training."""

    def with_results(make: Callable[[Experiment], Run]) -> Recorder:
        execute = Recorder(make)
        monkeypatch.setattr("engram.cli.protocol.running.executor", lambda _: execute)
        return execute

    return with_results


def learned(planned: Experiment) -> Run:
    """Each task is known while it is learned, and half known afterwards."""
    points = [
        (step, tasks[-1], {task: 0.9 if task in tasks else 0.5 for task in range(max(tasks) + 1)})
        for step, tasks in enumerate(planned.scenario.phases, start=1)
    ]
    return with_curve(planned, points)


def test_grid(protocol: Engram) -> None:
    command = ["grid", "split-digits", "er", "--updates", 20, "--seeds", 2, "--json"]
    output = protocol(*command, "--grid", "lr=.1,.0001", "--grid", "weight=.5").json
    assert [c["fields"] for c in output["candidates"]] == [
        {"lr": 0.1, "weight": 0.5},
        {"lr": 0.0001, "weight": 0.5},
    ]
    assert output["choice"] == {"lr": 0.1, "weight": 0.5} and output["metric"] == "ACC"
    assert output["candidates"][0]["score"] == pytest.approx(output["summary"]["ACC"]["mean"])
    assert len(output["candidates"][0]["scores"]) == len(output["runs"]) == 2


def test_grid_by_a_metric_of_the_curve_looks_after_every_update(protocol: Engram, tmp_path: Path) -> None:
    command = ["grid", "split-digits", "er", "--updates", 6, "--subset", 20, "--grid", "lr=.1,.05"]
    output = protocol(*command, "--metric", "WC-ACC", "--select-on", "validation", "--json").json
    assert output["selected_on"] == "validation"
    result = json.loads((tmp_path / "runs" / output["runs"][0] / "result.json").read_text())
    assert result["evaluations"] == 31


def test_causal(protocol: Engram) -> None:
    command = ["causal", "slt-D5-5a-digits", "finetune", "--epochs", 2, "--grid", "lr=.01,.001", "--json"]
    output = protocol(*command, "--later-lr", ".1,.001").json
    assert {"best", "last", "baseline", "omega_all", "forgets", "candidates", "choice"} <= output.keys()
    assert output["omega_all"] == pytest.approx(output["best"] / output["baseline"])
    assert output["choice"]["later_lr"] in ([0.1], [0.001]) and isinstance(output["forgets"], bool)


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
    def interrupted(_: Experiment) -> Run:
        raise KeyboardInterrupt

    make_up(interrupted)
    done = protocol("grid", "split-digits", "er")
    assert done.returncode == 130
    assert done.stderr.startswith(
        "error: interrupted: finished runs are kept; run the same command again to resume"
    )


def test_candidates_of_a_type_name_their_stream_and_rates_are_shown(
    protocol: Engram, make_up: MakeUp
) -> None:
    make_up(learned)
    command = ["causal", "slt-D9-1-digits", "finetune", "--grid", "lr=.1,.01", "--later-lr", ".02,.003"]
    shown = protocol(*command).stdout
    for letter in "abc":
        for row in ("lr=0.1 ", "lr=0.01 "):
            assert f"slt-D9-1{letter}-digits: {row}" in shown
        for rate in (0.02, 0.003):
            assert f"slt-D9-1{letter}-digits, task 2: later_lr={rate} " in shown
    single = protocol("causal", "slt-D9-1a-digits", *command[2:]).stdout
    assert "task 2: later_lr=0.02 " in single and "slt-D9-1a-digits: " not in single


@pytest.mark.parametrize(
    ("kind", "reason", "code"),
    [
        (FailureKind.DIVERGED, "weights became NaN or infinite at step 3", 0),
        (FailureKind.CRASHED, "its process was killed by SIGKILL", 1),
    ],
)
def test_runs_that_failed_are_told_and_change_the_exit_code(
    kind: FailureKind, reason: str, code: int, protocol: Engram, make_up: MakeUp
) -> None:
    def make(planned: Experiment) -> Run:
        diverges = planned.optimizer.lr == 0.1
        return failed(planned, reason, kind=kind) if diverges else with_metrics(planned, {"ACC": 0.5})

    make_up(make)
    command = ["grid", "split-digits", "er", "--grid", "lr=.1,.01"]
    done = protocol(*command)
    assert done.returncode == code and reason in done.stdout and f": {reason}" in done.stderr
    assert protocol(*command, "--json").returncode == code
    assert protocol(*command[:-1], "lr=.01").returncode == 0


def test_values_of_a_field_may_be_given_one_by_one(protocol: Engram, make_up: MakeUp) -> None:
    execute = make_up(lambda planned: with_metrics(planned, {"ACC": 0.5}))
    protocol("grid", "split-digits", "er", "--grid", "lr=.1", "--grid", "lr=.01,.1", "--metric", "acc")
    assert [planned.optimizer.lr for planned in execute.rounds[0]] == [0.1, 0.01]


def test_more_shots_than_there_are_samples_are_told(protocol: Engram, make_up: MakeUp) -> None:
    def make(planned: Experiment) -> Run:
        probe = planned.evaluation.transfer
        readings: list[Reading] = [(9, 0, 1, probe_name(k), 0.5) for k in (probe.shots if probe else ())]
        metrics = {"AvgFgt": -0.2, "AvgAcc": 0.7, "AvgLAcc": 0.9}
        return Run(planned=planned, finished=True, stored=metrics, tables=Tables(readings=readings))

    make_up(make)
    done = protocol("forward-transfer", "split-digits", "er", "--shots", "5,1000", "--json")
    stream = Stream(experiment("split-digits", "er").scenario)
    least = min(int(stream.train(task).y.unique(return_counts=True)[1].min()) for task in range(1, 5))
    assert done.json["fewer_samples"] == {"1000": least}
    assert f"the smallest class has {least} training samples: with 1000 shots" in done.stderr
    assert protocol("forward-transfer", "split-digits", "er", "--shots", "5").stderr == ""


def test_causal_with_merged_networks(protocol: Engram) -> None:
    output = protocol("causal", "slt-D9-1b-digits", "imm-mean", "--epochs", 1, "--lr", ".05", "--json").json
    assert len(output["runs"][0]["balances"]) == 101 and output["choice"] == {"later_lr": [None]}


def test_causal_over_all_streams_of_a_type(protocol: Engram) -> None:
    command = ["causal", "slt-D9-1-digits", "finetune", "--updates", 5, "--later-lr", "first", "--json"]
    output = protocol(*command).json
    assert sorted(output["streams"]) == [f"slt-D9-1{letter}-digits" for letter in "abc"]
    assert output["best"] == min(stream["best"] for stream in output["streams"].values())


def test_forward_transfer(protocol: Engram) -> None:
    command = ["forward-transfer", "split-digits", "finetune", "--setting", "task", "--updates", 10]
    output = protocol(*command, "--shots", "2,5", "--json").json
    assert set(output["AvgFwt"]) == {"2", "5"}
    for name in ("AvgFDiv", "AvgFgt", "AvgAcc", "AvgLAcc"):
        assert isinstance(output[name], float)
    quick = protocol(*command, "--shots", "2,5", "--json")
    assert set(quick.json["far_from_converged"]) == {"2", "5"}
    assert "the probes with 2 and 5 shots are far from converged" in quick.stderr
    assert "with learning rate 0.01 and 100 passes" in quick.stderr
    fitted = protocol(*command, "--shots", "2,5", "--probe-lr", 1, "--probe-epochs", 500, "--json")
    assert fitted.json["far_from_converged"] == {} and "converged" not in fitted.stderr
    assert fitted.json["AvgFwt"]["5"] > quick.json["AvgFwt"]["5"] + 0.1
    assert max(fitted.json["runs"][0]["probe_loss"].values()) < 0.3
    assert fitted.json["runs"][0]["run"] != quick.json["runs"][0]["run"]
    several = protocol(
        "forward-transfer", "split-digits", "finetune,er", *command[3:], "--shots", "2", "--seeds", 2
    )
    assert "er AvgFwt" in several.stdout and "Spearman's ρ of AvgFgt" in several.stdout


def test_online_and_queue(protocol: Engram) -> None:
    once = protocol("online", "split-digits", "er", "--json").json
    assert set(once["curves"]) == {"AA", "AF", "RAA", "RAF"} and len(once["curves"]["AA"]) == 5
    assert once["curves"]["AF"][0] is None and "candidates" in once and "choice" in once
    (rows,) = once["matrix"].values()
    assert list(once["matrix"]) == once["runs"] and [len(row) for row in rows] == [5] * 5
    averages = [sum(cell for cell in row if cell is not None) / (k + 1) for k, row in enumerate(rows)]
    assert averages == pytest.approx(once["curves"]["AA"])
    command = ["queue", "split-digits", "ewc", "--updates", 5, "--grid", "strength=1,100"]
    output = protocol(*command, "--report-every", 2, "--json").json
    assert output["tasks"] == [1, 3, 5] and len(output["best"]["averages"]) == 3
    assert protocol(*command).stdout.count("averages=") == 2


def test_online_has_no_passes_to_choose(protocol: Engram) -> None:
    done = protocol("online", "split-digits", "er", "--epochs", 3)
    assert done.returncode == 2 and NO_OPTION.format("--epochs", "online") in done.stderr


def test_people_get_a_table_and_the_choice(protocol: Engram) -> None:
    done = protocol("grid", "split-digits", "finetune", "--updates", 3, "--grid", "hidden=8,8x8")
    assert done.returncode == 0, done.stderr
    assert (
        "hidden=[8, 8]" in done.stdout and "chosen: hidden=" in done.stdout and "ACC on test" in done.stdout
    )


def test_what_exists_is_run_again_only_when_asked(protocol: Engram, tmp_path: Path) -> None:
    command = ["grid", "split-digits", "finetune", "--updates", 2, "--losses", "--json"]
    output = protocol(*command).json
    place = tmp_path / "runs" / output["runs"][0] / "result.json"
    stamp = place.stat().st_mtime_ns
    assert (place.parent / "probes.parquet").is_file()
    assert protocol(*command).json == output and place.stat().st_mtime_ns == stamp
    with patch("engram.engine.execute.run_steps", side_effect=InputError("the data are gone")):
        assert protocol(*command, "--again").returncode == 2
    assert place.stat().st_mtime_ns == stamp
    assert protocol(*command, "--again").json["summary"]["ACC"] == output["summary"]["ACC"]
    assert place.stat().st_mtime_ns != stamp
    assert [folder.name for folder in place.parent.parent.iterdir()] == [place.parent.name]


@pytest.mark.parametrize(
    ("error", "restored"), [(RuntimeError("no luck"), True), (NonFinite("no luck"), False)]
)
def test_what_fails_when_it_is_run_again_has_failed(
    error: Exception, restored: bool, protocol: Engram, tmp_path: Path
) -> None:
    """The result that was there stays, unless the run would always fail in this way."""
    command = ["grid", "split-digits", "finetune", "--updates", 2, "--grid", "lr=.1,.01", "--json"]
    output = protocol(*command).json
    with patch("engram.engine.execute.run_steps", side_effect=error):
        done = protocol(*command, "--again")
    assert done.returncode == 2 and "no luck" in done.stderr
    folder = tmp_path / "runs" / output["runs"][0]
    assert (folder / "result.json").exists() == restored
    assert (folder / "failure.json").exists() != restored
    assert not list(folder.glob(".*"))


def test_a_run_whose_repetition_failed_is_repeated_when_it_is_asked_for_again(tmp_path: Path) -> None:
    planned = experiment("split-digits", "finetune", updates=2)
    finished = Run(planned=planned, folder=tmp_path / planned.id, finished=True)
    write_json(tmp_path / planned.id / RESULT, {})
    outcomes = [replace(finished, finished=False, failure=Failure(FailureKind.CRASHED, "killed")), finished]

    def execute(experiments: Sequence[Experiment]) -> Sequence[Run]:
        assert not (tmp_path / planned.id / RESULT).exists()
        return [outcomes.pop(0)]

    repeat = again_at_most_once(execute, tmp_path, again=True)
    assert not repeat([planned])[0].finished and (tmp_path / planned.id / RESULT).exists()
    assert repeat([planned])[0].finished and not outcomes


@pytest.mark.parametrize("more", [("--jobs", "1"), ("--jobs", "2"), ("--again",)])
def test_a_folder_that_cannot_be_is_one_line(more: tuple[str, ...], engram: Engram, tmp_path: Path) -> None:
    command = ["protocol", "grid", "split-digits", "finetune", "--updates", 2, *more]
    done = engram(*command, "--out", tmp_path / ("x" * 300))
    assert done.returncode == 2 and "File name too long" in done.stderr.splitlines()[-1]


def test_a_queue_tells_of_its_choice_beside_its_best_and_its_worst(protocol: Engram, tmp_path: Path) -> None:
    command = ["queue", "split-digits", "ewc", "--updates", 2, "--grid", "strength=0,1,10", "--json"]
    output = protocol(*command).json
    chosen = {run for end in ("best", "worst") for run in output[end]["runs"]}
    assert {file.parent.name for file in (tmp_path / "runs").glob("*/selection.json")} == chosen


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gird", "split-digits", "er"], "unknown protocol 'gird'; did you mean 'grid'"),
        (["grid", "split-digit", "er"], "did you mean 'split-digits'"),
        (["grid", "split-digits", "err"], "did you mean"),
        (["grid", "split-digits", "er", "--grid", "lr"], "must look like FIELD=a,b,c, got 'lr'"),
        (["grid", "split-digits", "er", "--grid", "lr="], "must look like FIELD=a,b,c, got 'lr='"),
        (["grid", "split-digits", "er", "--grid", "lrr=1"], "unknown field 'lrr'; did you mean 'lr'"),
        (["grid", "split-digits", "er", "--grid", "lr=1,x"], "lr must be a number, got 'x'"),
        (
            ["grid", "split-digits", "er", "--grid", "lr=.1", "--lr", ".2"],
            "--lr sets as well: use one of them",
        ),
        (
            ["grid", "split-digits", "er", "--grid", "memory=5", "--set", "memory=3"],
            "--grid memory tries values that --set memory sets as well",
        ),
        (
            ["grid", "split-digits", "er", "--grid", "updates=1,2", "--updates", "1"],
            "--grid updates tries values that --updates sets as well",
        ),
        (["queue", "split-digits", "er", "--grid", "epochs=1,2", "--updates", "1"], "that --updates sets"),
        (["grid", "split-digits", "er", "--grid", "every=1,2", "--every", "3"], "that --every sets as well"),
        (["grid", "split-digits", "er", "--on", "serial", "--jobs", "2"], "leave one of the two out"),
        (["grid", "split-digits", "er", "--data", "nowhere"], "the data folder nowhere is not a folder"),
        (["grid", "split-digits", "er", "--select-on", "train"], "unknown data to select on 'train'"),
        (["grid", "split-digits", "er", "--every", "0"], "every must be at least 1, got 0"),
        (["grid", "split-digits", "er", "--per-epoch"], "add --every N"),
        (["grid", "split-digits", "er", "--tasks", "some"], "tasks must be seen or all, got 'some'"),
        (
            ["grid", "split-digits", "er", "--held-out", "1.5", "--select-on", "validation"],
            "held-out must be above 0 and below 1, got 1.5",
        ),
        (
            ["grid", "split-digits", "er", "--held-out", "1.5"],
            "held-out must be above 0 and below 1, got 1.5",
        ),
        (
            ["grid", "split-digits", "er", "--held-out", "-0.5"],
            "held-out must be above 0 and below 1, got -0.5",
        ),
        (
            ["grid", "split-digits", "er", "--held-out", "nan"],
            "held-out must be above 0 and below 1, got nan",
        ),
        (["grid", "split-digits", "er", "--held-out", "0"], "held-out must be above 0 and below 1, got 0"),
        (["grid", "split-digits", "er", "--held-out", ".1"], "add --select-on validation"),
        (["forward-transfer", "split-digits", "er", "--held-out", ".1"], "leave it out"),
        (["grid", "split-digits", "er", "--metric", "ACCC"], "unknown metric 'ACCC'; did you mean 'ACC'"),
        (["grid", "split-digits", "er", "--metric", "fwt"], "FWT needs"),
        (["forward-transfer", "split-digits", "er", "--metric", "FOO"], "unknown metric 'FOO'"),
        (["grid", "split-digits", "er", "--later-lr", ".1"], NO_OPTION.format("--later-lr", "grid")),
        (
            ["grid", "split-digits", "er", "--report-every", "0"],
            "no such option --report-every; did you mean",
        ),
        (["grid", "split-digits", "er", "--shots", "5"], NO_OPTION.format("--shots", "grid")),
        (
            ["queue", "split-digits", "er", "--select-on", "validation"],
            NO_OPTION.format("--select-on", "queue"),
        ),
        (["queue", "split-digits", "er", "--metric", "ACC"], NO_OPTION.format("--metric", "queue")),
        (
            ["queue", "split-digits", "er", "--search-seeds", "99"],
            NO_OPTION.format("--search-seeds", "queue"),
        ),
        (["causal", "split-digits", "er", "--metric", "FOO"], NO_OPTION.format("--metric", "causal")),
        (["online", "split-digits", "er"], NO_OPTION.format("--updates", "online")),
        (
            ["causal", "split-digits", "er", "--later-lr", ""],
            "later-lr must be `first` or numbers with commas",
        ),
        (["causal", "split-digits", "er", "--later-lr", "-1"], "lr must be above 0 and finite, got -1"),
        (["causal", "split-digits", "er", "--later-lr", "0"], "lr must be above 0 and finite, got 0"),
        (["causal", "split-digits", "er", "--later-lr", "nan"], "lr must be above 0 and finite, got nan"),
        (["causal", "slt-D5-5a-digits", "er", "--tie-strength"], "unknown field 'strength'"),
        (["causal", "slt-D5-5a-digits", "gdumb"], "--later-lr first"),
        (["forward-transfer", "split-digits", "er", "--upstream", "imagnet"], "did you mean 'imagenet'"),
        (
            ["causal", "split-digits", "er", "--later-lr", "a"],
            "numbers with commas, such as .01,.001, got 'a'",
        ),
        (["causal", "split-digits", "er", "--choose-by", "old"], "unknown way to choose a rate 'old'"),
        (["causal", "split-digits", "er", "--start", "first"], "unknown start 'first'"),
        (["forward-transfer", "split-digits", "er", "--shots", "0"], "of probes must be at least 1, got 0"),
        (
            ["forward-transfer", "split-digits", "er", "--probe-lr", "0"],
            "lr of probes must be above 0, got 0",
        ),
        (
            ["forward-transfer", "split-digits", "er", "--probe-epochs", "0"],
            "epochs and batch size of probes",
        ),
        (
            ["forward-transfer", "split-digits", "er", "--shots", "a"],
            "shots must be whole numbers with commas, such as 5,10, got 'a'",
        ),
        (["queue", "split-digits", "er", "--report-every", "0"], "every must be at least 1 task, got 0"),
        (["queue", "split-digits", "er", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["queue", "split-digits", "er", "--jobs", "0"], "jobs must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, protocol: Engram, tmp_path: Path) -> None:
    done = protocol(*arguments, "--updates", 2)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and words in last
    assert not list(tmp_path.glob("runs/*/result.json"))
