"""What holds for the metrics of any history and any matrix."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engram.metrics import curve as pure
from engram.metrics import matrix
from engram.metrics.arrays import Matrix, Vector
from engram.metrics.curve import Curve
from engram.metrics.diversity import feature_diversity

from .histories import curves, matrices

WINDOWS = st.one_of(st.none(), st.integers(1, 8))


def known(series: Vector) -> list[float]:
    return [value for value in series.tolist() if not np.isnan(value)]


def released_window_value(window: list[float], *, rising: bool) -> float:
    """The scan of the released code, literally: low starting points are skipped."""
    best, top = -np.inf, -np.inf
    for index, value in enumerate(window):
        if value < top:
            continue
        top = value
        for later in window[index + 1 :]:
            best = max(best, later - value if rising else value - later)
    return float(best) if len(window) > 1 else 0.0


@given(curve=curves(), window=WINDOWS)
def test_windowed_metrics_are_the_largest_change_over_pairs(curve: Curve, window: int | None) -> None:
    reach = len(curve) if window is None else window - 1
    drops = pure.windowed_forgetting(curve, window=window).by_task
    rises = pure.windowed_plasticity(curve, window=window).by_task
    for column, series in enumerate(map(known, curve.accuracy.T)):
        pairs = [(a, b) for m, a in enumerate(series) for b in series[m + 1 : m + 1 + reach]]
        if series:
            assert drops[column] == max([0.0, *(a - b for a, b in pairs)])
            assert rises[column] == max([0.0, *(b - a for a, b in pairs)])
        else:
            assert np.isnan(drops[column])
            assert np.isnan(rises[column])


@given(curve=curves(), window=WINDOWS)
def test_refcode_is_the_scan_of_the_released_code(curve: Curve, window: int | None) -> None:
    rises = pure.windowed_plasticity(curve, window=window, mode="refcode").by_task
    drops = pure.windowed_forgetting(curve, window=window, mode="refcode").by_task
    width = len(curve) if window is None else window
    for column, series in enumerate(map(known, curve.accuracy.T)):
        windows = [series[max(0, n - width + 1) : n + 1] for n in range(len(series))]
        if windows:
            assert rises[column] == max([0.0, *(released_window_value(w, rising=True) for w in windows)])
            assert drops[column] == max([0.0, *(released_window_value(w, rising=False) for w in windows)])


@given(curve=curves(), span=st.sampled_from(["after", "printed", "inclusive"]))
def test_min_accuracy_is_the_minimum_of_what_counts(curve: Curve, span: pure.Span) -> None:
    history = pure.min_accuracy(curve, span=span)
    learning = [set(curve.phases[phase]) for phase in curve.learning]
    for t in range(len(curve)):
        expected = []
        for task in range(curve.accuracy.shape[1]):
            begun = [n for n in range(t + 1) if any(task in learning[m] for m in range(n + 1))]
            counted = [n for n in begun if task not in learning[n]]
            if span == "printed":
                counted = [n for n in begun if curve.step[n] > 0]
            elif span == "inclusive":
                counted += [n for n in begun if n < t and task in learning[n] and task not in learning[n + 1]]
            values = known(curve.accuracy[counted, task])
            earlier = begun and task not in learning[t]
            expected.append(min(values) if earlier and values else np.nan)
        np.testing.assert_array_equal(history.values[t], expected)


@given(curve=curves(), window=st.integers(1, 8))
def test_longer_windows_find_more(curve: Curve, window: int) -> None:
    for function in (pure.windowed_forgetting, pure.windowed_plasticity):
        short, longer, whole = (function(curve, window=w).values for w in (window, window + 1, None))
        seen = ~np.isnan(short)
        assert (short[seen] <= longer[seen]).all()
        assert (longer[seen] <= whole[seen]).all()
        assert ((short[seen] >= 0) & (whole[seen] <= 1)).all()


@given(curve=curves(gaps=False, revisits=False, together=False))
def test_worst_case_bounds_average_accuracy_at_task_ends(curve: Curve) -> None:
    worst = pure.worst_case_accuracy(curve).curve
    average = matrix.average_accuracy(curve.matrix())
    for task in np.unique(curve.learning):
        end = np.flatnonzero(curve.learning == task)[-1]
        assert worst[end] <= average[task] + 1e-12


@given(curve=curves(), seed=st.integers(0, 1000))
def test_rows_of_a_table_may_come_in_any_order(curve: Curve, seed: int) -> None:
    n, task = np.nonzero(~np.isnan(curve.accuracy))
    if not len(n):
        return
    shuffled = np.random.default_rng(seed).permutation(len(n))
    tables = [
        Curve.of_table(
            step=curve.step[n][order],
            learning=curve.learning[n][order],
            task=task[order],
            accuracy=curve.accuracy[n, task][order],
            phases=curve.phases,
        )
        for order in (np.arange(len(n)), shuffled)
    ]
    assert tables[0].tasks == tables[1].tasks
    np.testing.assert_array_equal(tables[0].accuracy, tables[1].accuracy)
    np.testing.assert_array_equal(tables[0].learning, tables[1].learning)


@given(acc=matrices(gaps=True))
def test_forgetting_measures_agree_with_each_other(acc: Matrix) -> None:
    forgotten, fallen = matrix.forgetting(acc), matrix.average_forgetting(acc)
    clamped = matrix.average_forgetting(acc, clamp=True)
    complete = ~np.isnan(forgotten) & ~np.isnan(np.diag(acc)).any()
    assert (fallen[complete] >= forgotten[complete] - 1e-12).all()
    both = ~np.isnan(fallen)
    assert (clamped[both] >= np.maximum(fallen[both], 0) - 1e-12).all()
    np.testing.assert_array_equal(matrix.signed_forgetting(acc), -forgotten)
    np.testing.assert_allclose(
        matrix.backward_transfer(acc), -matrix.final(forgotten, acc), rtol=0, atol=1e-12
    )


@given(acc=matrices(), classes=st.integers(1, 50))
def test_rescaled_metrics_end_where_the_plain_ones_do(acc: Matrix, classes: int) -> None:
    seen = [classes * (k + 1) for k in range(len(acc))]
    for rescaled, plain in (
        (matrix.rescaled_average_accuracy(acc, seen), matrix.average_accuracy(acc)),
        (matrix.rescaled_average_forgetting(acc, seen), matrix.average_forgetting(acc)),
    ):
        np.testing.assert_allclose(rescaled[-1], plain[-1], rtol=1e-9, atol=1e-12)


@given(tasks=st.integers(2, 60), classes=st.integers(1, 20))
def test_difficulty_has_the_closed_form_for_equal_classes(tasks: int, classes: int) -> None:
    harmonic = np.cumsum(1 / np.arange(1, tasks + 1))
    k = np.arange(2, tasks + 1)
    closed = (harmonic[-1] - 1) * (k - 1) / ((harmonic[1:] - 1) * (tasks - 1))
    ours = matrix.forgetting_difficulty([classes * (i + 1) for i in range(tasks)])
    np.testing.assert_allclose(ours[1:], closed, rtol=1e-9)


@given(
    seed=st.integers(0, 10_000),
    samples=st.integers(1, 12),
    width=st.integers(1, 12),
    classes=st.integers(1, 4),
)
def test_feature_diversity_has_its_sign(seed: int, samples: int, width: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(samples, width)), rng.integers(classes, size=samples)
    assert feature_diversity(features, labels) >= -1e-9
    assert feature_diversity(features, labels, weighted=False) <= 1e-9
    # Rotating all features, or naming the classes otherwise, changes nothing.
    rotation = np.linalg.qr(rng.normal(size=(width, width))).Q
    np.testing.assert_allclose(
        feature_diversity(features @ rotation, 7 - labels), feature_diversity(features, labels), atol=1e-8
    )
