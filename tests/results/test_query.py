from pathlib import Path

import numpy as np
import pytest

from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.trace import Trace
from engram.metrics.summary import missing
from engram.record.run import Run
from engram.results.query import (
    accuracy_matrix,
    answers,
    class_dips,
    deepest_dip,
    forgetting_events,
    metrics_table,
    min_accuracy_curve,
    probe_curves,
    seen_curve,
    stability_gap,
    task_curves,
)
from engram.results.runs import find_runs, group_runs

# Two tasks; the first falls from 100 % to 20 % right after the switch and comes back to 80 %.
FALL = {1: [0.6], 2: [1.0], 3: [0.2, 0.5], 4: [0.8, 0.9]}


def _run(folder: Path, accuracies: dict[int, list[float]], *, metrics: dict[str, float | None]) -> Run:
    trace = Trace()
    for step, row in accuracies.items():
        for task, accuracy in enumerate(row):
            right = np.arange(10) < round(10 * accuracy)
            trace.add(step=step, learning=len(row) - 1, task=task, right=right)
    write_json(folder / "experiment.json", {"id": folder.name, "label": "mine", "seed": int(folder.name)})
    trace.save(folder / "trace.parquet")
    why = dict.fromkeys(missing(metrics), "left out of made-up runs")
    write_json(folder / "result.json", {"metrics": metrics, "why": why})
    return Run.load(folder)


@pytest.fixture
def two(tmp_path: Path) -> list[Run]:
    milder = FALL | {3: [0.4, 0.5]}
    return [
        _run(tmp_path / "0", FALL, metrics={"ACC": 0.8, "AF": None}),
        _run(tmp_path / "1", milder, metrics={"ACC": 0.9, "AF": None, "WF10": 0.5}),
    ]


def test_curves_are_means_over_seeds_aligned_by_step(two: list[Run]) -> None:
    first, second = task_curves(two)
    assert first.step.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(first.mean, [0.6, 1.0, 0.3, 0.8])
    np.testing.assert_allclose(first.sd, [0, 0, np.sqrt(0.02), 0], atol=1e-12)
    assert second.step.tolist() == [3, 4]


def test_a_run_that_stopped_early_counts_as_far_as_it_goes(two: list[Run], tmp_path: Path) -> None:
    short = _run(tmp_path / "2", {1: [0.0]}, metrics={})
    first, second = task_curves([*two, short])
    np.testing.assert_allclose(first.mean, [0.4, 1.0, 0.3, 0.8])
    assert second.step.tolist() == [3, 4]


def test_one_seed_has_no_spread(two: list[Run]) -> None:
    assert np.isnan(seen_curve(two[:1]).sd).all()


def test_seen_tasks_count_equally(two: list[Run]) -> None:
    np.testing.assert_allclose(seen_curve(two[:1]).mean, [0.6, 1.0, 0.35, 0.85])


def test_min_accuracy_begins_with_the_second_task(two: list[Run]) -> None:
    curve = min_accuracy_curve(two)
    assert curve.step.tolist() == [3, 4]
    np.testing.assert_allclose(curve.mean, [0.3, 0.3])


def test_the_gap_is_between_task_ends_and_what_happened_in_between(two: list[Run]) -> None:
    gap = stability_gap(two)
    assert gap is not None
    assert (gap.shown, gap.lowest) == pytest.approx((0.8, 0.3))
    dip = deepest_dip(two)
    assert dip is not None
    assert (dip.task, dip.phase) == (0, 1)
    assert (dip.before, dip.lowest, dip.after, dip.depth) == pytest.approx((1.0, 0.3, 0.8, 0.5))


def test_one_task_has_no_gap(tmp_path: Path) -> None:
    run = _run(tmp_path / "0", {1: [0.5], 2: [0.9]}, metrics={})
    assert stability_gap([run]) is None
    assert deepest_dip([run]) is None


def test_a_steady_fall_is_no_dip(tmp_path: Path) -> None:
    run = _run(tmp_path / "0", {1: [0.9], 2: [0.5, 0.5], 3: [0.1, 0.9]}, metrics={})
    assert deepest_dip([run]) is None
    gap = stability_gap([run])
    assert gap is not None
    assert gap.shown == gap.lowest == pytest.approx(0.1)


def test_the_matrix_over_seeds(two: list[Run]) -> None:
    matrix = accuracy_matrix(two)
    np.testing.assert_allclose(matrix.mean, [[1.0, np.nan], [0.8, 0.9]])
    assert matrix.sd[1].tolist() == [0, 0]


def test_metrics_over_seeds_skip_what_is_undefined(two: list[Run]) -> None:
    table = metrics_table(group_runs(two))
    assert list(table) == ["ACC", "AF", "WF10"]
    (acc,), (undefined,), (once,) = table.values()
    assert acc.mean == pytest.approx(0.85)
    assert acc.n == 2
    assert acc.interval == "logit"
    assert 0 < acc.ci95[0] < acc.mean < acc.ci95[1] < 1
    assert undefined.n == 0
    assert (once.mean, once.n) == (0.5, 1)


def test_probes_over_seeds(runs_folder: Path) -> None:
    curves = probe_curves([run for run in find_runs([runs_folder]) if run.label == "er"])
    stability, plasticity = curves["stability-gradient", None], curves["plasticity-gradient", None]
    assert len(stability.step) == 500
    np.testing.assert_allclose(stability.sd, 0, atol=1e-12)
    np.testing.assert_allclose(plasticity.mean, 3 * stability.mean + 0.1)
    np.testing.assert_allclose(plasticity.sd, 0.1)


def test_forgetting_is_counted_sample_by_sample_since_a_step(two: list[Run]) -> None:
    trace = two[0].trace
    assert forgetting_events(trace, 0).tolist() == [0, 0] + [1] * 8
    assert forgetting_events(trace, 0, since=3).tolist() == [0] * 10


def test_class_dips_say_when(two: list[Run]) -> None:
    dips = class_dips(two[0].trace, 0, labels=[5] * 2 + [6] * 8, since=2)
    assert (dips[5].accuracy, dips[5].step) == (1.0, 2)
    assert (dips[6].accuracy, dips[6].step) == (0.0, 3)


def test_samples_that_cannot_be_followed_are_refused(two: list[Run]) -> None:
    trace = two[0].trace
    with pytest.raises(InputError, match="9 labels for 10 samples"):
        class_dips(trace, 0, labels=[0] * 9)
    unknown = Trace(step=[1], learning=[0], task=[0], correct=[1], total=[2], bits=[b""])
    with pytest.raises(InputError, match="does not record which samples of task 0 were right"):
        answers(unknown, 0)
    trace.add(step=9, learning=1, task=0, right=np.ones(3, dtype=np.bool_))
    with pytest.raises(InputError, match="samples: the number must not change"):
        answers(trace, 0)
