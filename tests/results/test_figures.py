from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.results.simulated import write_own_loop

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


def test_undefined_metrics_have_no_bar(tmp_path: Path) -> None:
    groups = group_runs(find_runs([write_own_loop(tmp_path)]))
    bars = bar_figure(groups)
    assert bars is not None
    assert bars["metrics"] == ["ACC"]
    assert bars["bars"][0]["error"] == [None]
