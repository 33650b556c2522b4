"""Metrics of single samples against the plainest implementation, and what must hold for any bits."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.history import Curve
from engram.metrics.sample_curve import SampleCurve
from engram.metrics.samples import guessed_flips, negative_flips
from engram.metrics.summary import summarise

NAMES = ("SF", "SBT", "SF-chance", "SBT-chance", "unforgettable", "never-known", "always-known")


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A stream of one to four tasks, evaluated on a few samples, with tasks skipped now and then."""
    tasks, samples = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    trace = Trace()
    step = draw(st.integers(0, 1))
    for learning in range(tasks):
        for _ in range(draw(st.integers(1, 4))):
            for task in range(learning + 1):
                if task == learning or draw(st.integers(0, 4)):
                    bits = draw(st.lists(st.booleans(), min_size=samples, max_size=samples))
                    trace.add(step=step, learning=learning, task=task, right=np.array(bits))
            step += 1
    return trace


def plain(trace: Trace) -> dict[str, list[float]]:
    """All metrics, with lists and loops."""
    rows = list(zip(trace.step, trace.learning, trace.task, range(len(trace)), strict=True))
    last = max(trace.step)
    values: dict[str, list[float]] = {name: [] for name in NAMES}
    for task in range(1 + max(trace.learning)):
        own = [(step, trace.right(row).tolist()) for step, _, t, row in rows if t == task]
        end = max(step for step, learning, _, _ in rows if learning == task)
        begin = min(step for step, learning, _, _ in rows if learning == task)
        at = dict(own)
        k, k_last = 2 * (task + 1), 2 * (1 + max(trace.learning))
        pair = (at[end], at[last]) if end < last and end in at and last in at else None
        n = len(own[0][1])
        for name in NAMES[:4]:
            if pair is None:
                values[name].append(np.nan)
                continue
            lost = sum(a and not b for a, b in zip(*pair, strict=True)) / n
            gained = sum(b and not a for a, b in zip(*pair, strict=True)) / n
            wrong = sum(not a and not b for a, b in zip(*pair, strict=True)) / n
            values[name].append(
                {
                    "SF": lost,
                    "SBT": gained,
                    "SF-chance": max(0, lost - wrong / (k - 1)),
                    "SBT-chance": max(0, gained - wrong / (k_last - 1)),
                }[name]
            )
        since = [bits for step, bits in own if step >= begin and step > 0]
        after = [bits for step, bits in own if step >= end and step > 0]
        series = list(zip(*since, strict=True))
        fell = [any(a and not b for a, b in pairwise(one)) for one in series]
        known = [any(one) for one in series]
        values["unforgettable"].append(
            float(np.mean([k and not f for k, f in zip(known, fell, strict=True)])) if series else np.nan
        )
        values["never-known"].append(1 - float(np.mean(known)) if series else np.nan)
        later = any(step > end for step, _ in own)
        values["always-known"].append(
            float(np.mean([all(one) for one in zip(*after, strict=True)])) if later and since else np.nan
        )
    return values


@settings(deadline=None, max_examples=80)
@given(trace=traces())
def test_values_are_those_of_the_plain_implementation(trace: Trace) -> None:
    tasks = 1 + max(trace.learning)
    result = summarise(trace, classes_seen=[2 * (task + 1) for task in range(tasks)])
    expected = plain(trace)
    for name in NAMES:
        np.testing.assert_allclose(result.by_task[name], expected[name], atol=1e-12, err_msg=name)
        if not np.isnan(result.final[name]):
            assert result.final[name] == pytest.approx(np.nanmean(expected[name]))
            assert 0 <= result.final[name] <= 1
        else:
            assert result.why[name]


@settings(deadline=None, max_examples=60)
@given(trace=traces())
def test_forgetting_is_what_was_lost_less_what_was_gained(trace: Trace) -> None:
    result = summarise(trace, only=("SF", "SBT", "BWT", "always-known", "min-ACC"))
    balance = np.array(result.by_task["SBT"]) - np.array(result.by_task["SF"])
    known = ~np.isnan(balance)
    np.testing.assert_allclose(np.array(result.by_task["BWT"])[known], balance[known], atol=1e-12)
    always, lowest = np.array(result.by_task["always-known"]), np.array(result.by_task["min-ACC"])
    both = ~np.isnan(always) & ~np.isnan(lowest)
    assert (always[both] <= lowest[both] + 1e-12).all()


def test_guessing_alone_is_no_forgetting() -> None:
    draw = np.random.default_rng(0)
    known = draw.random(200_000) < 0.3
    before, after = (known | (draw.random(known.size) < 1 / 4) for _ in range(2))
    assert negative_flips(before, after) > 0.1
    assert negative_flips(before, after) - guessed_flips(before, after, 4) == pytest.approx(0, abs=0.003)
    assert np.isnan(guessed_flips(before, after, 1))


def test_choices_of_the_task_setting_are_the_classes_of_the_task() -> None:
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True, False, False, False]))
    trace.add(step=2, learning=1, task=0, right=np.array([False, False, False, True]))
    trace.add(step=2, learning=1, task=1, right=np.array([True] * 4))
    own = summarise(trace, classes_seen=[5, 10], choices=[[5, 5], [5, 5]]).by_task
    seen = summarise(trace, classes_seen=[5, 10]).by_task
    assert own["SBT-chance"][0] == pytest.approx(1 / 4 - 2 / 4 / 4)
    assert seen["SBT-chance"][0] == pytest.approx(1 / 4 - 2 / 4 / 9)


def test_single_samples_need_the_same_samples() -> None:
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
    trace.add(step=2, learning=1, task=0, right=np.array([True, False, True]))
    reason = "needs a trace that records which samples were right, the same samples at every evaluation"
    assert summarise(trace).why["SF"] == reason
    with pytest.raises(InputError, match="evaluated on 2 to 3 samples"):
        SampleCurve.of_trace(trace, Curve.of_trace(trace))
    assert summarise(Trace([1], [0], [0], [1], [2], [b"\x80"]), redrawn=True).why["SF"] == reason


def test_a_task_that_was_learned_and_never_evaluated_is_no_obstacle() -> None:
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True, False]))
    trace.add(step=2, learning=1, task=0, right=np.array([False, False]))
    measured = summarise(trace, phases=[(0,), (1,)])
    assert {"ACC", "SF", "never-known"} <= measured.final.keys() | measured.why.keys()
