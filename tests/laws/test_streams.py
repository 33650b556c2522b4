"""Every streaming metric is its pure twin, at every prefix, in memory that does not grow."""

import inspect
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram.core.errors import InputError
from engram.metrics import streaming
from engram.metrics.curve import Curve
from engram.metrics.streaming import Stream, StreamingMetrics

from .histories import curves

STREAMS = [
    thing
    for thing in vars(streaming).values()
    if inspect.isclass(thing) and issubclass(thing, Stream) and not inspect.isabstract(thing)
]
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "window": st.one_of(st.none(), st.integers(1, 7)),
    "mode": st.sampled_from(["exact", "refcode"]),
    "span": st.sampled_from(["after", "printed", "inclusive"]),
    "beta": st.integers(1, 4),
}


def options_of(kind: type[Stream]) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for every option of a stream; one without a strategy fails here, and wants one above."""
    return {name: OPTIONS[name] for name in inspect.signature(kind).parameters if name != "n_tasks"}


def feed(stream: Stream | StreamingMetrics, curve: Curve, n: int) -> None:
    columns = curve.phases[curve.learning[n]]
    stream.update(
        columns[0] if len(columns) == 1 else columns, curve.accuracy[n], updated=bool(curve.step[n] > 0)
    )


def test_all_streams_are_found() -> None:
    assert len(STREAMS) >= 6


@pytest.mark.parametrize("kind", STREAMS)
@given(data=st.data(), curve=curves())
def test_stream_is_its_twin_at_every_prefix(kind: type[Stream], data: st.DataObject, curve: Curve) -> None:
    stream = kind(curve.accuracy.shape[1], **data.draw(st.fixed_dictionaries(options_of(kind))))
    whole = stream.twin(curve)
    for n in range(len(curve)):
        feed(stream, curve, n)
        so_far = stream.twin(curve.prefix(n + 1))
        np.testing.assert_allclose(stream.by_task(), so_far.by_task, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            [stream.get(), stream.get()], [so_far.final, whole.curve[n]], rtol=0, atol=1e-12
        )


@given(curve=curves())
def test_bundle_is_its_parts(curve: Curve) -> None:
    bundle = StreamingMetrics(curve.accuracy.shape[1], windows=(3, None), beta=2)
    for n in range(len(curve)):
        feed(bundle, curve, n)
    twins = bundle.twins(curve)
    assert list(bundle.get()) == list(bundle.by_task()) == list(twins)
    np.testing.assert_allclose(
        list(bundle.get().values()), [twin.final for twin in twins.values()], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", [*STREAMS, StreamingMetrics])
def test_memory_does_not_grow(kind: Any) -> None:
    def peak(evaluations: int) -> int:
        rng = np.random.default_rng(0)
        tracemalloc.start()
        stream = kind(20)
        for n in range(evaluations):
            stream.update(n * 20 // evaluations, rng.random(20))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(10)
    assert peak(2000) < 1.2 * peak(200) + 2000


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_refuse_what_does_not_fit(kind: type[Stream]) -> None:
    stream = kind(2)
    with pytest.raises(InputError, match="2 tasks need as many accuracies"):
        stream.update(0, np.zeros(3))
    with pytest.raises(InputError, match="task 2 is being learned, but tasks are 0 to 1"):
        stream.update(2, np.zeros(2))


@pytest.mark.parametrize("kind", STREAMS)
def test_nothing_is_known_before_the_first_evaluation(kind: type[Stream]) -> None:
    assert np.isnan(kind(2).get())
