"""Runs against each other: paired by seed, within one scenario, and refused in one line otherwise."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.results.simulated import write_own_loop

from engram.core.errors import InputError
from engram.core.jsons import Json, JsonObject
from engram.core.trace import Trace
from engram.metrics.summary import missing
from engram.record.run import Run
from engram.record.seal import sealed
from engram.record.tables import Tables
from engram.results.compare import RunComparison, compare_runs
from engram.results.runs import find_runs

NOISE = np.random.default_rng(0).normal(0, 0.02, 8)


def place(folder: Path, method: str, *, seed: int, acc: float | None, draw: int = 0, **changes: Json) -> Path:
    """A finished run with an accuracy of our choice, on tasks that were drawn by `draw`."""
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True]))
    experiment = {
        "format": 1,
        "id": f"{method}-{seed}",
        "label": f"{method} on permuted-digits (domain)",
        "scenario": {
            "name": "permuted-digits",
            "tasks": [{"name": "1", "transforms": [{"kind": "permute", "seed": draw}]}],
            "setting": {"kind": "domain", "boundaries": True},
            "phases": [[0]],
        },
        "method": method,
        "settings": {},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "evaluation": {"every": 1, "subset": 100, "losses": False},
        "seed": seed,
    } | changes
    run = folder / f"{method}-{seed}"
    acc = math.nan if acc is None else acc
    metrics = {"ACC": acc, "FORG": 0.9 - acc, "FWT": math.nan}
    why = dict.fromkeys(missing(metrics), "left out of made-up runs")
    Run(description=experiment, finished=True, stored=metrics, why=why, tables=Tables(trace)).save(run)
    return run


def fill(folder: Path, levels: dict[str, float], *, seeds: int = 8, **changes: Json) -> Path:
    """Runs of several methods that share the noise of each seed, and have a little of their own."""
    for number, (method, level) in enumerate(levels.items()):
        own = np.random.default_rng(1 + number).normal(0, 0.002, 8)
        for seed in range(seeds):
            place(folder, method, seed=seed, acc=level + NOISE[seed] + own[seed], draw=seed, **changes)
    return folder


def compared(*folders: Path, **options: Json) -> RunComparison:
    return compare_runs(find_runs(folders), **options)


def refused(*folders: Path, **options: Json) -> str:
    with pytest.raises(InputError) as caught:
        compared(*folders, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_methods_are_paired_by_seed_though_every_seed_draws_its_own_tasks(tmp_path: Path) -> None:
    comparison = compared(fill(tmp_path, {"ewc": 0.60, "er": 0.65, "finetune": 0.60}))
    assert (comparison.scenario, comparison.setting, comparison.seeds) == (
        "permuted-digits",
        "domain",
        tuple(range(8)),
    )
    assert set(comparison.methods) == {"er", "ewc", "finetune"}
    assert set(comparison.rankings) == {"ACC", "FORG"}
    acc = comparison.rankings["ACC"]
    assert acc.standings[0].name == "er"
    assert sorted(map(sorted, acc.groups)) == [["er"], ["ewc", "finetune"]]
    # Unpaired, the noise of the seeds would hide a difference of 5 % that paired seeds show.
    assert acc.pairs[0].sd < 0.25 * acc.standings[0].over.sd
    assert acc.pairs[0].wins == 8


def test_the_direction_is_that_of_the_metric(tmp_path: Path) -> None:
    rankings = compared(fill(tmp_path, {"ewc": 0.60, "er": 0.65})).rankings
    assert not rankings["FORG"].higher_is_better
    assert [ranking.standings[0].name for ranking in rankings.values()] == ["er", "er"]
    assert rankings["FORG"].pairs[0].difference == pytest.approx(-rankings["ACC"].pairs[0].difference)


def test_only_seeds_that_every_method_has_are_compared_and_the_others_are_named(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6})
    fill(tmp_path, {"ewc": 0.5}, seeds=6)
    place(tmp_path, "ewc", seed=11, acc=0.1, draw=11)
    comparison = compared(tmp_path)
    assert comparison.seeds == (0, 1, 2, 3, 4, 5)
    assert comparison.left_out == {"er": (6, 7), "ewc": (11,)}
    assert comparison.rankings["ACC"].n == 6


def test_a_seed_without_a_value_is_left_out_for_that_metric(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6, "ewc": 0.5})
    place(tmp_path, "er", seed=3, acc=None, draw=3)
    comparison = compared(tmp_path, metrics=["acc", "ACC", "FWT"])
    assert list(comparison.rankings) == ["ACC"]
    assert comparison.rankings["ACC"].n == 7
    assert comparison.undefined == {
        "FWT": "no seed has a value for every method; values are missing for er, ewc"
    }
    assert "FWT: no seed has a value" in refused(tmp_path, metrics=["FWT"])


def test_one_method_with_two_settings_is_two_methods(tmp_path: Path) -> None:
    for memory in (20, 200):
        fill(tmp_path / str(memory), {"er": 0.5 + memory / 1000}, settings={"memory": memory})
    comparison = compared(tmp_path / "20", tmp_path / "200")
    assert [s.name.split(" (")[-1] for s in comparison.rankings["ACC"].standings] == [
        "memory=200)",
        "memory=20)",
    ]
    assert not comparison.differences


def test_fields_that_differ_besides_the_method_are_named(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6})
    fill(tmp_path, {"ewc": 0.5}, optimizer={"name": "sgd", "lr": 0.01})
    assert compared(tmp_path).differences == {"optimizer.lr": {"er": 0.1, "ewc": 0.01}}


def test_what_is_recorded_besides_does_not_matter(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6})
    fill(tmp_path, {"ewc": 0.5}, evaluation={"every": 1, "subset": 100, "losses": True})
    assert len(compared(tmp_path).methods) == 2


def test_probed_runs_compare_with_others(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6})
    evaluation = {"every": 1, "subset": 100, "losses": False}
    fill(
        tmp_path, {"ewc": 0.5}, evaluation={**evaluation, "transfer": {"shots": [5]}, "upstream": "imagenet"}
    )
    assert len(compared(tmp_path).methods) == 2


def test_joint_training_compares_with_the_others(tmp_path: Path) -> None:
    def scenario(phases: list[list[int]]) -> JsonObject:
        return {"name": "split-digits", "tasks": [{}, {}], "setting": {"kind": "class"}, "phases": phases}

    fill(tmp_path, {"er": 0.6, "ewc": 0.5}, scenario=scenario([[0], [1]]))
    fill(tmp_path, {"offline": 0.9}, scenario=scenario([[0, 1]]))
    assert compared(tmp_path).rankings["ACC"].standings[0].name.startswith("offline")
    fill(tmp_path, {"gem": 0.6}, scenario=scenario([[1], [0]]))
    assert "scenario.phases is [[0], [1]] in one and [[1], [0]] in the other" in refused(tmp_path)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ([0.5], "has no metrics"),
        ({"ACC": "high"}, "cannot be read ('high' is not a number)"),
        ({"ACC": [1]}, "cannot be read ([1] is not a number)"),
    ],
)
def test_metrics_that_are_no_numbers_are_one_line(metrics: object, words: str, tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6, "ewc": 0.5}, seeds=2)
    broken = tmp_path / "er-0" / "result.json"
    broken.write_text(json.dumps(sealed({**json.loads(broken.read_text()), "metrics": metrics})))
    runs = find_runs(tmp_path)
    [damaged] = runs.incomplete
    assert damaged.id == "er-0" and damaged.status == "damaged" and len(runs) == 3
    assert damaged.failure is not None
    assert f"er-0/result.json {words}: run it again with --again" in damaged.failure.reason


def test_the_test_can_be_chosen(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.65, "ewc": 0.60}, seeds=4)
    signs, t = compared(tmp_path).rankings["ACC"], compared(tmp_path, test="t").rankings["ACC"]
    assert (signs.pairs[0].told_apart, t.pairs[0].told_apart) == (False, True)
    assert "at least 6 seeds are needed" in signs.too_few


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"scenario": {"name": "split-digits", "tasks": [{}], "setting": {"kind": "domain"}}},
            "scenario.name is permuted-digits in one and split-digits in the other",
        ),
        (
            {"scenario": {"name": "permuted-digits", "tasks": [{}], "setting": {"kind": "class"}}},
            "scenario.setting.kind is domain in one and class in the other",
        ),
        (
            {"evaluation": {"every": 10, "subset": 100, "losses": False}},
            "evaluation.every is 1 in one and 10 in the other",
        ),
    ],
)
def test_other_scenarios_settings_and_evaluations_are_refused(
    tmp_path: Path, changes: JsonObject, message: str
) -> None:
    fill(tmp_path, {"er": 0.6})
    fill(tmp_path, {"ewc": 0.5}, **changes)
    line = refused(tmp_path)
    assert message in line
    assert line.endswith("all runs must have the same scenario, setting and evaluation")


def test_other_tasks_for_the_same_seed_are_refused(tmp_path: Path) -> None:
    place(tmp_path, "er", seed=3, acc=0.5, draw=3)
    place(tmp_path, "ewc", seed=3, acc=0.5, draw=4)
    assert "with seed 3 they learned different tasks" in refused(tmp_path)


def test_what_cannot_be_paired_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "one", {"er": 0.6})
    assert refused(tmp_path / "one").startswith(
        "nothing to compare: runs of at least two experiments are required, got 1 (er)"
    )

    fill(tmp_path / "two", {"er": 0.6})
    place(tmp_path / "two", "ewc", seed=20, acc=0.5)
    assert "no seed was run with every method (er: 0, 1, 2, 3, 4, 5, 6, 7; ewc: 20)" in refused(
        tmp_path / "two"
    )

    fill(tmp_path / "again", {"er": 0.6})
    fill(tmp_path / "one", {"ewc": 0.5})
    assert "two runs of er have the seed 0: " in refused(tmp_path / "one", tmp_path / "again")


def test_runs_without_a_seed_are_refused(tmp_path: Path) -> None:
    for method in ("er", "ewc"):
        place(tmp_path, method, seed=0, acc=0.5)
        run = Run.load(tmp_path / f"{method}-0")
        replace(run, description={k: v for k, v in run.description.items() if k != "seed"}).save()
    assert "er-0 has no seed" in refused(tmp_path)


def test_unknown_metrics_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6, "ewc": 0.5}, seeds=1)
    assert refused(tmp_path, metrics=["FOG"]).startswith("unknown metric 'FOG'; did you mean 'FORG'")


def test_runs_without_the_usual_metrics_ask_for_a_name(tmp_path: Path) -> None:
    for method in ("er", "ewc"):
        run = place(tmp_path, method, seed=0, acc=0.5)
        why = dict.fromkeys(missing(["BWT"]), "left out of made-up runs")
        (run / "result.json").write_text(json.dumps({"metrics": {"BWT": 0.5}, "why": why}))
    assert refused(tmp_path).endswith("choose another metric; known: BWT")
    assert compared(tmp_path, metrics=["BWT"]).rankings["BWT"].higher_is_better


def test_runs_of_somebodys_own_loop_compare(tmp_path: Path) -> None:
    mine = write_own_loop(tmp_path / "a")
    other = write_own_loop(tmp_path / "b")
    content = json.loads((other / "experiment.json").read_text())
    (other / "experiment.json").write_text(json.dumps(content | {"id": "other", "label": "other"}))
    comparison = compared(mine, other)
    assert (comparison.scenario, comparison.setting, comparison.methods) == ("", "", ("mine", "other"))
    assert comparison.rankings["ACC"].pairs[0].difference == 0
    assert comparison.rankings["ACC"].too_few


def test_as_json(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.6})
    fill(tmp_path, {"ewc": 0.5}, seeds=2)
    comparison = json.loads(json.dumps(compared(tmp_path).as_json(), allow_nan=False))
    assert comparison.keys() == {
        "scenario",
        "setting",
        "methods",
        "seeds",
        "left_out",
        "differences",
        "metrics",
        "undefined",
        "notes",
    }
    assert comparison["left_out"] == {"er": [2, 3, 4, 5, 6, 7]}
    assert comparison["metrics"]["ACC"]["pairs"][0]["p"] == 0.5
    assert comparison["metrics"]["ACC"]["pairs"][0]["g_z"] is None
