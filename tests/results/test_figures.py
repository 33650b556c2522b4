from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.results.simulated import write_own_loop, write_run

from engram.results.figures import bar_figure, method_figure, probe_figures, task_figure, thin
from engram.results.runs import find_runs, group_runs


@given(st.lists(st.floats(0, 1), min_size=1, max_size=400), st.integers(4, 60))
def test_thinning_keeps_ends_and_extremes(values: list[float], limit: int) -> None:
    curve = np.array(values)
    kept = thin(curve, limit)
    assert len(kept) <= max(limit, 4)
    assert (np.diff(kept) > 0).all()
    assert {0, len(curve) - 1} <= set(kept.tolist())
    assert curve[kept].min() == curve.min()
    assert curve[kept].max() == curve.max()


def test_every_short_dip_of_a_long_curve_is_still_drawn() -> None:
    curve = np.full(20_000, 0.9)
    dips = np.arange(50, 20_000, 500)
    curve[dips] = 0.1
    assert set(dips.tolist()) <= set(thin(curve, 1500).tolist())


def test_curves_are_percentages_with_a_band_and_task_ends(runs_folder: Path) -> None:
    groups = {group.label: group for group in group_runs(find_runs([runs_folder]))}
    figure = task_figure(groups["er"])
    assert [task["name"] for task in figure["tasks"]][:2] == ["Task 1 (0, 1)", "Task 2 (2, 3)"]
    first = figure["tasks"][0]
    assert first["endX"] == [100, 200, 300, 400, 500]
    assert first["x"][-1] == 500
    assert 90 < first["endY"][0] <= 100
    assert all(
        0 <= low <= y <= high <= 100
        for low, y, high in zip(first["low"], first["y"], first["high"], strict=True)
    )
    assert min(first["y"]) < min(first["endY"]) - 10
    assert figure["lowest"]["x"][0] == 101
    assert [(phase["start"], phase["end"]) for phase in figure["phases"]][:2] == [(1, 100), (100, 200)]
    assert set(probe_figures(groups["er"])) == {"stability-gradient", "plasticity-gradient"}


def test_methods_side_by_side(runs_folder: Path) -> None:
    groups = group_runs(find_runs([runs_folder]))
    assert [series["name"] for series in method_figure(groups)["series"]] == ["er", "ewc", "finetune"]
    bars = bar_figure(groups)
    assert bars is not None
    assert bars["metrics"] == ["ACC", "min-ACC", "WC-ACC"]
    er = bars["bars"][0]
    assert er["y"][0] > er["y"][2] > er["y"][1] > 0
    assert all(error > 0 for error in er["error"])


def test_error_bars_are_the_intervals_of_the_metric(runs_folder: Path) -> None:
    groups = group_runs(find_runs([runs_folder]))
    bars = bar_figure(groups)
    assert bars is not None
    for bar in bars["bars"]:
        for y, above, below in zip(bar["y"], bar["error"], bar["errorBelow"], strict=True):
            assert 0 <= y - below < y < y + above <= 100
    # Near 0 an interval reaches farther up than down.
    lowest = bars["bars"][2]
    assert lowest["error"][1] > lowest["errorBelow"][1]


def test_every_curve_has_the_task_boundaries_of_its_own_run(tmp_path: Path) -> None:
    for method, updates in (("er", 10), ("ewc", 20), ("finetune", 20)):
        for seed in (0, 1):
            write_run(tmp_path, method, seed=seed, tasks=3, updates=updates)
    groups = group_runs(find_runs([tmp_path]))
    figure = method_figure(groups)
    # Formerly the boundaries of the longest run, 20 and 40, were drawn on all curves.
    assert figure["phases"] == []
    assert figure["boundaries"] == [
        {"name": "er", "x": [10, 20], "end": 30},
        {"name": "ewc", "x": [20, 40], "end": 60},
        {"name": "finetune", "x": [20, 40], "end": 60},
    ]
    # The seeds of one experiment share theirs, so that its own figure has names and shades.
    for group, end in zip(groups, (30, 60, 60), strict=True):
        own = task_figure(group)
        assert "boundaries" not in own and own["phases"][-1]["end"] == end


def test_seeds_with_tasks_of_other_lengths_have_their_own_boundaries(tmp_path: Path) -> None:
    write_run(tmp_path, "er", seed=0, tasks=2, updates=10)
    write_run(tmp_path, "er", seed=1, tasks=2, updates=14)
    runs = find_runs([tmp_path])
    (group,) = group_runs(runs)
    figure = task_figure(group)
    assert [(own["name"], own["x"]) for own in figure["boundaries"]] == [("seed 0", [10]), ("seed 1", [14])]
    assert all("boundaries" in probe for probe in probe_figures(group).values())
    # The value at a task end is the mean of what each run had at its own task end.
    first = figure["tasks"][0]
    assert first["endX"] == [12, 24]
    ends = [
        100 * run.curve.accuracy[[updates - 1, 2 * updates - 1], 0]
        for run, updates in zip(runs, (10, 14), strict=True)
    ]
    np.testing.assert_allclose(first["endY"], np.mean(ends, axis=0), rtol=1e-3)
    assert method_figure([group])["boundaries"] == [{"name": "er", "x": [10, 14], "end": 28}]


def test_undefined_metrics_have_no_bar(tmp_path: Path) -> None:
    groups = group_runs(find_runs([write_own_loop(tmp_path)]))
    bars = bar_figure(groups)
    assert bars is not None
    assert bars["metrics"] == ["ACC"]
    assert bars["bars"][0]["error"] == [None]
