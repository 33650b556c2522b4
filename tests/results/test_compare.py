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
from engram.metrics.spending import spent
from engram.metrics.summary import missing
from engram.record.run import Run
from engram.record.seal import sealed
from engram.record.tables import Tables
from engram.results.compare import RunComparison, compare_by_scenario, compare_runs
from engram.results.looks import LOG, Look, extended, log_folders, read_looks, record_look
from engram.results.runs import find_runs

NOISE = np.random.default_rng(0).normal(0, 0.02, 8)


def place(folder: Path, method: str, *, seed: int, acc: float | None, draw: int = 0, **changes: Json) -> Path:
    """A finished run with an accuracy of our choice, on tasks that were drawn by `draw`."""
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.arange(1000) < 500)
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

    fill(tmp_path / "again", {"er": 0.61})
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


def test_the_first_metric_decides_and_the_others_are_exploratory_or_corrected(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.65, "ewc": 0.60})
    rankings = compared(tmp_path).rankings
    assert [ranking.role for ranking in rankings.values()] == ["primary", "exploratory"]
    assert compared(tmp_path, metrics=["FORG", "ACC"]).primary == "FORG"
    together = compared(tmp_path, together=True).rankings
    assert [(ranking.role, ranking.tests) for ranking in together.values()] == [("corrected", 2)] * 2
    for metric, ranking in together.items():
        assert ranking.pairs[0].p_holm >= rankings[metric].pairs[0].p_holm


def test_a_baseline_by_its_name(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.65, "ewc": 0.60, "finetune": 0.5, "gem": 0.62})
    ranking = compared(tmp_path, baseline="Fine").rankings["ACC"]
    assert (ranking.baseline, ranking.tests) == ("finetune", 3)
    assert {pair.second for pair in ranking.pairs} == {"finetune"}
    assert refused(tmp_path, baseline="e").startswith("unknown baseline 'e'")
    assert "did you mean 'gem'" in refused(tmp_path, baseline="gen")


def test_the_t_test_knows_the_number_of_test_samples(tmp_path: Path) -> None:
    for seed in (0, 1):
        place(tmp_path, "er", seed=seed, acc=0.501)
        place(tmp_path, "ewc", seed=seed, acc=0.5)
    pair = compared(tmp_path, test="t").rankings["ACC"].pairs[0]
    assert compared(tmp_path).rankings["ACC"].resolution == 1 / 1000
    # Both seeds differ by one test sample: t = √2 with one degree of freedom.
    assert pair.p == pytest.approx(0.3918, abs=1e-4)
    assert not pair.told_apart and pair.ci95[0] < 0 < pair.ci95[1]


def test_a_plan_has_a_level_for_each_look(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.65, "ewc": 0.60}, seeds=6)
    first = compared(tmp_path, more_seeds=(6, 8))
    assert first.rankings["ACC"].level == pytest.approx(spent(6 / 8))
    assert first.as_json()["plan"] == {"seeds": [6, 8], "level": 0.05}
    fill(tmp_path, {"er": 0.65, "ewc": 0.60})
    assert compared(tmp_path, more_seeds=(6, 8)).rankings["ACC"].level == pytest.approx(0.05 - spent(6 / 8))
    assert "look with 6 and 7 seeds, got 8" in refused(tmp_path, more_seeds=(6, 7))


def test_scenarios_are_compared_one_by_one(tmp_path: Path) -> None:
    def scenario(name: str, tasks: int = 1) -> JsonObject:
        phases = [[task] for task in range(tasks)]
        return {"name": name, "tasks": [{}] * tasks, "setting": {"kind": "class"}, "phases": phases}

    fill(tmp_path / "a", {"er": 0.65, "ewc": 0.60}, scenario=scenario("split-digits"))
    fill(tmp_path / "b", {"er": 0.5, "ewc": 0.6, "gem": 0.55}, scenario=scenario("split-mnist"))
    fill(tmp_path / "c", {"er": 0.65}, scenario=scenario("rotated"))
    runs = find_runs([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert "scenario.name is split-digits in one and split-mnist in the other" in refused(
        tmp_path / "a", tmp_path / "b"
    )
    comparisons, problems = compare_by_scenario(runs, baseline="er")
    assert [(one.scenario, one.methods) for one in comparisons] == [
        ("split-digits", ("er", "ewc")),
        ("split-mnist", ("er", "ewc", "gem")),
    ]
    assert list(problems) == ["rotated (class)"]
    assert problems["rotated (class)"].startswith("nothing to compare: runs of at least two experiments")
    alone = compare_runs(find_runs([tmp_path / "a"]), baseline="er").rankings["ACC"]
    assert comparisons[0].rankings["ACC"].as_json() == alone.as_json()

    # The same name with another number of tasks is told apart by what differs.
    fill(tmp_path / "d", {"er": 0.65, "ewc": 0.60}, scenario=scenario("split-digits", tasks=2))
    comparisons, _ = compare_by_scenario(find_runs([tmp_path / "a", tmp_path / "d"]))
    assert [one.title for one in comparisons] == [
        "split-digits (class), tasks 1, phases [[0]]",
        "split-digits (class), tasks 2, phases [[0], [1]]",
    ]


def test_what_no_scenario_allows_is_one_line(tmp_path: Path) -> None:
    other = {"name": "split-digits", "tasks": [{}], "setting": {"kind": "domain"}}
    fill(tmp_path / "a", {"er": 0.6})
    fill(tmp_path / "b", {"ewc": 0.5}, scenario=other)
    with pytest.raises(
        InputError, match=r"scenario\.name is permuted-digits in one and split-digits in the o"
    ):
        compare_by_scenario(find_runs([tmp_path / "a", tmp_path / "b"]))
    fill(tmp_path / "b", {"er": 0.5}, scenario=other)
    with pytest.raises(InputError, match=r"^unknown metric 'AC'; did you mean"):
        compare_by_scenario(find_runs([tmp_path / "a", tmp_path / "b"]), metrics=["AC"])


def test_comparing_in_python_writes_nothing(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.65, "ewc": 0.60}, seeds=6)
    before = sorted(tmp_path.iterdir())
    find_runs(tmp_path).compare("ACC")
    assert sorted(tmp_path.iterdir()) == before


def test_looks_that_are_extended(tmp_path: Path) -> None:
    fill(tmp_path, {"er": 0.65, "ewc": 0.60, "gem": 0.6}, seeds=7)
    early = compared(tmp_path, metrics=["ACC"]).look()
    assert early is not None and early.seeds == (0, 1, 2, 3, 4, 5, 6)
    fill(tmp_path, {"er": 0.65, "ewc": 0.60})
    (tmp_path / "without").mkdir()
    for run in tmp_path.glob("gem-*"):
        run.rename(tmp_path / "without" / run.name)
    late = compared(tmp_path).look()
    assert late is not None
    assert extended([early], late) == (early,)
    assert extended([late], early) == extended([late], late) == ()
    # Other seeds, other metrics, other experiments, and looks of the same plan are no extension.
    assert not extended([replace(early, seeds=(20, 21, 22))], late)
    assert not extended([replace(early, metrics=("BWT",))], late)
    assert not extended([replace(early, experiments=("x", "y"))], late)
    assert not extended([replace(early, plan=(7, 8))], replace(late, plan=(7, 8)))
    assert extended([early], replace(late, plan=(7, 8))) == (early,)
    # A comparison that could find nothing is no look.
    assert compared(fill(tmp_path / "few", {"er": 0.65, "ewc": 0.60}, seeds=5)).look() is None


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"looks": 3}', '{"looks": [3, {"seeds": "all"}, {"seeds": ["a"]}]}']
)
def test_a_damaged_log_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / LOG).write_text(content)
    assert read_looks([tmp_path]) == []
    look = Look(("a", "b"), (0,), ("ACC",), "t")
    assert record_look(tmp_path, look) and record_look(tmp_path, look)
    assert read_looks([tmp_path]) == [look]
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / LOG).mkdir()
    assert not record_look(tmp_path / "taken", look)
    assert log_folders([tmp_path, tmp_path / "taken"]) == [tmp_path, tmp_path / "taken"]


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
        "primary",
        "plan",
        "variant",
        "extended",
    }
    assert (comparison["primary"], comparison["plan"], comparison["extended"]) == ("ACC", None, [])
    assert comparison["left_out"] == {"er": [2, 3, 4, 5, 6, 7]}
    assert comparison["metrics"]["ACC"]["pairs"][0]["p"] == 0.5
    assert comparison["metrics"]["ACC"]["pairs"][0]["g_z"] is None
