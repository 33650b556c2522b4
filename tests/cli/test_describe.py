"""What `engram run` says it is about to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from engram.cli.describe import Forecast, describe_run, evaluations_of, forecast, updates_of
from engram.engine.execute import execute
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.record.experiment import Experiment


def planned(seeds: int = 1, **options: Any) -> list[Experiment]:
    return [experiment("split-digits", "finetune", seed=seed, **options) for seed in range(seeds)]


@pytest.mark.parametrize("options", [{"updates": 6}, {"updates": 6, "evaluation": {"every": 4}}])
def test_counts_are_those_of_the_run(options: dict[str, Any], tmp_path: Path) -> None:
    (run,) = planned(**options)
    made = execute(run, Where(out=tmp_path))
    assert (updates_of(run), evaluations_of(run)) == (made.updates, made.evaluations)


def test_finished_runs_tell_how_long_the_others_take(tmp_path: Path) -> None:
    first, *others = planned(3, updates=6)
    assert not forecast([first, *others], tmp_path).measured
    execute(first, Where(out=tmp_path))
    file = tmp_path / first.id / "result.json"
    result = json.loads(file.read_text())
    result["seconds"] = {"train": 60.0, "evaluate": 31.0, "total": 91.0}
    file.write_text(json.dumps(result))
    plan = forecast([first, *others], tmp_path)
    assert (plan.runs, plan.finished, plan.updates, plan.evaluations) == (2, 1, 60, 62)
    assert plan.measured and plan.seconds == pytest.approx(182)
    assert "about 3 min (as finished runs took); 1 run is finished already" in plan.text()
    assert "about 91 s" in plan.text(jobs=2)
    # A run with another network says nothing about these.
    assert not forecast(planned(3, updates=6, hidden=(8,)), tmp_path).measured


def test_finished_runs_that_are_made_again_are_to_do(tmp_path: Path) -> None:
    (run,) = planned(updates=6)
    execute(run, Where(out=tmp_path))
    assert describe_run([run], tmp_path)["to do"] == "nothing: 1 run is finished already"
    assert describe_run([run], tmp_path, again=True)["to do"].startswith("30 updates, 31 evaluations, about ")


def test_updates_that_follow_from_sizes_are_not_promised() -> None:
    text = describe_run(planned(epochs=1))["to do"]
    assert text.startswith("about 45 updates, about 46 evaluations, about ")
    assert not describe_run(planned(updates=9))["to do"].startswith("about")


def test_singular_and_plural() -> None:
    one = describe_run(planned(epochs=1))
    assert one["training"].endswith("1 epoch") and one["seeds"] == "1 seed, 0"
    assert one["evaluation"].startswith("every update, on ")
    many = describe_run(planned(2, updates=30, evaluation={"every": 10, "subset": None}))
    assert many["training"].endswith("30 updates per task") and many["seeds"] == "2 seeds, 0 to 1"
    assert many["evaluation"] == "every 10 updates, on all test samples of each task, about 71"
    assert many["to do"].startswith("300 updates, 32 evaluations, about ")
    assert Forecast(1, 0, 1, 1, None, measured=False).text() == "1 update, 1 evaluation"


def test_no_more_samples_are_promised_than_there_are() -> None:
    def samples(scenario: str, **options: Any) -> str:
        return describe_run([experiment(scenario, "finetune", **options)])["evaluation"].partition(", on ")[2]

    assert samples("split-digits") == "all test samples of each task, about 71"
    assert samples("split-digits", subset=20) == "20 test samples per task"
    assert samples("split-digits", subset=70) == "at most 70 test samples per task"
    assert samples("split-mnist") == "1,000 test samples per task"
    assert samples("split-mnist", subset=0) == "all test samples of each task, about 2,000"
    assert samples("split-digits", on="train") == "all train samples of each task, about 288"


def test_options_that_change_nothing_are_named() -> None:
    rows = describe_run([experiment("split-digits", "offline", tasks="all")], chosen={"tasks": "all"})
    assert rows["no effect"] == "tasks: all tasks are learned at once"
    assert "no effect" not in describe_run(
        [experiment("split-digits", "er", tasks="all")], chosen={"tasks": "all"}
    )


def test_no_larger_batches_are_promised_than_there_are_samples() -> None:
    """A batch is never larger than a task, and takes no longer."""
    every: dict[str, Any] = {"evaluation": {"every": 100}, "epochs": 1}
    rows = describe_run(planned(batch_size=99_999_999_999, **every))
    assert "batches of all samples of a task, about 288, 1 epoch" in rows["training"]
    huge, whole = (forecast(planned(batch_size=size, **every)).seconds for size in (99_999_999_999, 300))
    assert huge == whole
