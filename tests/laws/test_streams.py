"""Every stream is the pure function of its metric, at every prefix, in memory that does not grow."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram.core.errors import InputError
from engram.metrics.computing import Value, compute
from engram.metrics.curve import Curve
from engram.metrics.inputs import gather_inputs
from engram.metrics.registry import Metric, all_metrics
from engram.metrics.streaming import StreamingMetric, StreamingMetrics, stream_of
from engram.metrics.summary import summarise

from .histories import curves

PAIRS = [metric for metric in all_metrics() if stream_of(metric, 2) is not None]
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "window": st.one_of(st.none(), st.integers(1, 7)),
    "mode": st.sampled_from(["exact", "refcode"]),
    "span": st.sampled_from(["after", "printed", "inclusive"]),
    "beta": st.integers(1, 4),
    "clamp": st.booleans(),
}


def options_of(metric: Metric) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for every option of a metric; one without a strategy fails here, and wants one above."""
    return {name: OPTIONS[name] for name in metric.options}


def new_stream(metric: Metric, n_tasks: int, **options: Any) -> StreamingMetric:
    stream = stream_of(metric, n_tasks, **options)
    assert stream is not None
    return stream


def pure(metric: Metric, curve: Curve, options: dict[str, Any]) -> Value:
    """The metric by its pure function."""
    inputs = gather_inputs(curve)
    return compute(metric, inputs.arguments(metric), options, inputs.matrix)


def feed(stream: StreamingMetric | StreamingMetrics, curve: Curve, n: int) -> None:
    columns = curve.phases[curve.learning[n]]
    stream.update(
        columns[0] if len(columns) == 1 else columns, curve.accuracy[n], updated=bool(curve.step[n] > 0)
    )


def test_all_pairs_are_found() -> None:
    names = {metric.name for metric in PAIRS}
    assert names >= {"min-ACC", "WC-ACC", "WF", "WP", "LCA", "current-ACC", "ACC", "FORG", "AF", "BWT"}


@pytest.mark.parametrize("metric", PAIRS, ids=lambda metric: metric.name)
@given(data=st.data(), curve=curves())
def test_stream_is_the_pure_function_at_every_prefix(
    metric: Metric, data: st.DataObject, curve: Curve
) -> None:
    options = data.draw(st.fixed_dictionaries(options_of(metric)))
    n_tasks = curve.accuracy.shape[1]
    stream = new_stream(metric, n_tasks, **options)
    whole = pure(metric, curve, options).curve
    for n in range(len(curve)):
        feed(stream, curve, n)
        so_far = pure(metric, curve.prefix(n + 1), options)
        by_task = np.full(n_tasks, np.nan) if so_far.by_task is None else so_far.by_task
        np.testing.assert_allclose(stream.by_task(), by_task, rtol=0, atol=1e-12)
        now = so_far.final if whole is None else whole[n]
        np.testing.assert_allclose([stream.get(), stream.get()], [so_far.final, now], rtol=0, atol=1e-12)


@given(curve=curves())
def test_bundle_is_its_parts(curve: Curve) -> None:
    bundle = StreamingMetrics(curve.accuracy.shape[1], windows=(3, None), beta=2)
    for n in range(len(curve)):
        feed(bundle, curve, n)
    final = summarise(curve, windows=(3, None), beta=2, only=bundle.streams.keys()).final
    assert list(bundle.get()) == list(bundle.by_task()) == list(final)
    np.testing.assert_allclose(list(bundle.get().values()), list(final.values()), rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", [*PAIRS, None], ids=lambda metric: metric.name if metric else "bundle")
def test_memory_does_not_grow(metric: Metric | None) -> None:
    def peak(evaluations: int) -> int:
        rng = np.random.default_rng(0)
        tracemalloc.start()
        stream = StreamingMetrics(20) if metric is None else new_stream(metric, 20)
        for n in range(evaluations):
            stream.update(n * 20 // evaluations, rng.random(20))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(10)
    assert peak(2000) < 1.2 * peak(200) + 2000


@pytest.mark.parametrize("metric", PAIRS, ids=lambda metric: metric.name)
def test_streams_refuse_what_does_not_fit(metric: Metric) -> None:
    stream = new_stream(metric, 2)
    with pytest.raises(InputError, match="accuracies must have one entry per task, got 3 for 2 tasks"):
        stream.update(0, np.zeros(3))
    with pytest.raises(InputError, match="learning must be between 0 and 1, got 2"):
        stream.update(2, np.zeros(2))


@pytest.mark.parametrize("metric", PAIRS, ids=lambda metric: metric.name)
def test_nothing_is_known_before_the_first_evaluation(metric: Metric) -> None:
    assert np.isnan(new_stream(metric, 2).get())
