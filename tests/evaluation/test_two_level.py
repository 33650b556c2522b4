"""Two levels of samples: when all are asked, what is recorded, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import engram
from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT
from engram.core.trace import Trace
from engram.engine.checkpoint import write_checkpoint
from engram.engine.execute import execute
from engram.engine.loop import run_steps
from engram.engine.where import Where
from engram.engine.zoom import Stretch, zoom
from engram.evaluation import score
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.two_level import Anchors, two_levels
from engram.protocols.pooled import union_accuracy
from engram.record.experiment import EvaluationSpec, Experiment
from engram.record.run import Run
from engram.results.gate.comparing import of_run
from engram.results.store import compact

UPDATES = 25


def planned(**evaluation: Any) -> Experiment:
    return engram.experiment(
        "split-digits", "er", updates=UPDATES, hidden=(16,), evaluation={"subset": None, **evaluation}
    )


@cache
def of_all() -> Run:
    return engram.run(planned())


@cache
def of_two() -> Run:
    return engram.run(planned(samples="two-level:20"))


def small_places(run: Run) -> Mapping[int, NDArray[np.int64]]:
    assert run.samples is not None
    tasks = run.samples.frame.partition_by("task", as_dict=True)
    return {int(task): np.flatnonzero(frame["drawn"].to_numpy()) for (task,), frame in tasks.items()}


def test_a_run_records_what_the_replay_of_a_whole_run_gives() -> None:
    replay = two_levels(of_all().trace, small_places(of_two()), phases=of_all().phases)
    assert of_two().trace == replay
    assert replay.anchors is not None and len(replay.anchors) < len(replay) / 2


def test_task_ends_are_those_of_all_samples() -> None:
    assert (of_two().matrix[np.tril_indices(5)] == of_all().matrix[np.tril_indices(5)]).all()
    for name in ("ACC", "FORG", "BWT", "RAA", "ACC-pooled"):
        assert of_two().metrics[name] == of_all().metrics[name]
    for name in ("min-ACC", "WC-ACC", "WF10", "WP10"):
        assert of_two().metrics[name] == pytest.approx(of_all().metrics[name], abs=0.06)
        assert of_two().extremes.values[name].low < of_two().extremes.values[name].high


def test_the_id_of_other_experiments_is_what_it_was() -> None:
    assert planned().id == planned(samples=None).id != planned(samples="two-level:20").id
    assert "samples" not in planned().as_json()["evaluation"]
    twice = [EvaluationSpec(samples=text) for text in ("two-level", "two-level:200")]
    assert twice[0] == twice[1] and twice[0].samples == "two-level:200"
    assert Experiment.of_json(planned(samples="two-level:20").as_json()) == planned(samples="two-level:20")


def test_a_run_is_saved_loaded_and_compacted(tmp_path: Path) -> None:
    two = of_two().save(tmp_path / "runs" / of_two().id)
    all_samples = of_all().save(tmp_path / "runs" / of_all().id)
    compact([two, all_samples], tmp_path / "store")
    for place in ("runs", "store"):
        for run in engram.load(tmp_path / place):
            expected = two if run.id == two.id else all_samples
            assert run.trace == expected.trace
            np.testing.assert_array_equal(run.curve.accuracy, expected.curve.accuracy)
            assert run.measure().final == pytest.approx(expected.stored, nan_ok=True)
            assert (run.levels is None) == (run.id != two.id)


def test_a_store_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    compact([of_all()], tmp_path / "store")
    index = tmp_path / "store" / "runs.parquet"
    frame = pl.read_parquet(index)
    later = [name for name in frame.columns if name.startswith(("anchors_", "digest", "trace_counts"))]
    frame.drop(later).write_parquet(index)
    [run] = engram.load(tmp_path / "store")
    assert run.trace == of_all().trace and run.trace.anchors is None


def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    experiment = planned(samples="two-level:20")
    for step in islice(run_steps(experiment), 37):
        if step.step == 37:
            assert step.snapshot is not None
            write_checkpoint(tmp_path / experiment.id / CHECKPOINT, step.snapshot())
    resumed = execute(experiment, Where(out=tmp_path))
    assert resumed.trace == of_two().trace
    card, whole = resumed.card, of_two().card
    assert card is not None and whole is not None
    assert card.reads == whole.reads, "samples that were gathered are not read again"


def test_the_last_answers_of_two_level_runs_are_those_of_all_samples() -> None:
    two, whole = of_run(of_two()), of_run(of_all())
    assert two.frame.equals(whole.frame)


def test_a_stretch_is_looked_at_again(tmp_path: Path) -> None:
    experiment = planned(samples="two-level:20")
    run = execute(experiment, Where(out=tmp_path))
    own = zoom(run, Stretch(first=40, last=60), where=Where(out=tmp_path))
    closely = zoom(run, Stretch(first=40, last=60, samples="all"), where=Where(out=tmp_path))
    rows = of_all().curve.step.tolist().index(40), of_all().curve.step.tolist().index(61)
    for seen in (own, closely):
        inside = (seen.curve.step >= 40) & (seen.curve.step <= 60)
        np.testing.assert_array_equal(
            seen.curve.accuracy[inside][:, :3], of_all().curve.accuracy[slice(*rows)][:, :3]
        )


def test_tasks_are_pooled_on_all_samples() -> None:
    two, whole = (dict(union_accuracy(run.trace, learning=4, tasks=range(5))) for run in (of_two(), of_all()))
    assert two.keys() == whole.keys() and two[5 * UPDATES] == pytest.approx(whole[5 * UPDATES])


def samples_of(seed: int, count: int = 120) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=draw)
    return torch.eye(3, 6)[y] + 0.8 * torch.randn(count, 6, generator=draw) + seed, y


def watched(
    watch: Evaluator, updates: int = 20, resume: Callable[[Evaluator], Evaluator] | None = None
) -> Evaluator:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for task in range(2):
        x, y = samples_of(task, 64)
        for update in range(updates):
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            watch(net, learning=task, last=update == updates - 1)
            if resume is not None and update == updates // 2:
                watch = resume(watch)
    return watch


TEST_SETS = [samples_of(0), samples_of(1)]


def two_level(**options: Any) -> Evaluator:
    return Evaluator(TEST_SETS, samples="two-level:30", **options)


def test_an_evaluator_continues_from_its_state() -> None:
    def resume(watch: Evaluator) -> Evaluator:
        again = two_level(seed=5)
        state = watch.state_dict()
        again.load_state_dict(state)
        assert again.accuracies() == pytest.approx(watch.accuracies())
        return again

    resumed = watched(two_level(), resume=resume)
    assert resumed.trace == watched(two_level()).trace
    assert resumed.samples() is not None


def test_a_state_that_does_not_know_what_was_gathered_of_the_rest_is_read() -> None:
    def resume(watch: Evaluator) -> Evaluator:
        again, state = two_level(seed=5), watch.state_dict()
        del state["gathered_rest"]
        again.load_state_dict(state)
        again.gather_again(torch.device("cpu"))
        return again

    assert watched(two_level(), resume=resume).trace == watched(two_level()).trace


def test_a_state_with_other_levels_is_refused() -> None:
    state = watched(two_level()).state_dict()
    for other in (Evaluator(TEST_SETS), Evaluator(TEST_SETS, samples="two-level:40")):
        with pytest.raises(InputError, match="continue with the same samples="):
            other.load_state_dict(state)
        assert len(other.trace) == 0
    with pytest.raises(InputError, match="asked all samples every time"):
        two_level().load_state_dict(watched(Evaluator(TEST_SETS)).state_dict())


def test_an_end_that_is_told_later_is_an_anchor() -> None:
    watch, net = two_level(), nn.Linear(6, 3)
    for _ in range(6):
        watch(net, learning=0)
    assert watch.trace.anchors is not None and watch.trace.anchors.step[-1] == 4
    watch.end(net, learning=0)
    watch.end(net, learning=0)
    assert watch.trace.step[-1] == 6 and watch.trace.anchors.step == [1, 2, 4, 6]
    latest = watch.trace.anchors.correct[-1] / watch.trace.anchors.total[-1]
    assert watch.accuracies()[0] == pytest.approx(latest)


def test_what_else_is_recorded_is_about_the_small_part() -> None:
    right = lambda output, batch: output.argmax(1) == batch[-1]  # noqa: E731
    plain = watched(two_level(losses=True, answers=True))
    own = watched(two_level(right=right, score=score.cross_entropy()))
    loader = watched(
        Evaluator(
            [DataLoader(TensorDataset(*pair), batch_size=16) for pair in TEST_SETS], samples="two-level:30"
        )
    )
    assert set(plain.answered.total) == {30}
    assert len(plain.readings) == len(plain.trace)
    assert {len(values) for values in own.scores.values} == {30}
    assert plain.trace == own.trace == loader.trace
    assert own.metrics()["ACC"] == plain.metrics()["ACC"]


def test_half_precision_gives_the_same_two_levels() -> None:
    sets = [samples_of(0, 2000), samples_of(1, 2000)]
    full, half = (
        watched(Evaluator(sets, samples="two-level:400", precision=precision))
        for precision in ("full", "half-checked")
    )
    assert half.trace == full.trace
    assert half.precision_record is not None


def test_an_evaluator_says_what_thinned_updates_miss() -> None:
    assert "only every 4th update" in watched(Evaluator(TEST_SETS, every=4)).missed
    small, large = (watched(Evaluator([samples_of(0, n), samples_of(1, n)], every=4)) for n in (200, 201))
    assert "two-level" not in small.missed and 'samples="two-level"' in large.missed
    assert watched(two_level()).missed == ""


def test_tasks_with_few_samples_are_asked_completely() -> None:
    sets = [samples_of(0, 25), samples_of(1, 120)]
    watch = watched(Evaluator(sets, samples="two-level:30"))
    whole = watched(Evaluator(sets))
    assert watch.trace.anchors is not None
    assert {*zip(watch.trace.task, watch.trace.total, strict=True)} == {(0, 25), (1, 30)}
    assert {*zip(watch.trace.anchors.task, watch.trace.anchors.total, strict=True)} == {(0, 25), (1, 120)}
    assert watch.metrics()["ACC"] == whole.metrics()["ACC"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": "half"}, "must be two-level or two-level:N"),
        ({"samples": "two-level:3"}, "at least 20"),
        ({"samples": "two-level:30", "subset": 30}, "subset=30 has no more"),
        ({"samples": "two-level"}, "no task has more than 120"),
        ({"samples": "two-level:30", "subset": 60, "redraw": True}, "redraw"),
        ({"samples": "two-level:30", "full_ends": True}, "leave full_ends out"),
        ({"samples": "two-level:30", "per_epoch": True, "every": 2}, "leave per_epoch out"),
        ({"samples": "two-level:30", "score": score.cross_entropy()}, "not for scores"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        Evaluator(TEST_SETS, **options)
    assert "\n" not in str(refused.value)


def test_evaluator_processes_are_refused_or_not_used() -> None:
    with pytest.raises(InputError, match="two-level samples are chosen by what was answered before"):
        watched(two_level(parallel=1))
    assert watched(two_level(parallel="auto")).trace == watched(two_level()).trace


def test_experiments_that_do_not_fit_are_refused_before_they_run() -> None:
    for options in ({"samples": "two-level"}, {"samples": "two-level:20", "full_ends": True}):
        with pytest.raises(InputError, match="two-level samples"):
            engram.experiment("split-digits", "er", **options)


# The rule ---------------------------------------------------------------------------------------------


def anchors_of(curves: NDArray[np.float64], learning: Sequence[tuple[int, ...]]) -> list[int]:
    rule = Anchors()
    return [
        step
        for step, (row, now) in enumerate(zip(curves, learning, strict=True))
        if rule.due(learning=now, accuracies=dict(enumerate(row)))
    ]


def test_distances_double_after_every_switch() -> None:
    flat = np.full((80, 2), 0.5)
    anchors = anchors_of(flat, [(0,)] * 40 + [(1,)] * 40)
    assert anchors == [0, 1, 3, 7, 10, 15, 31, 40, 41, 43, 47, 50, 55, 71]


def test_lows_and_drops_are_anchors_while_there_are_tokens() -> None:
    curves = np.full((300, 2), 0.9)
    curves[100:, 0] = np.linspace(0.8, 0.1, 200)
    learning = [(0,)] * 50 + [(1,)] * 250
    rule_alone = set(anchors_of(np.full((300, 2), 0.9), learning))
    extra = [step for step in anchors_of(curves, learning) if step not in rule_alone]
    assert extra[0] == 100 and 10 + 0.08 * 200 < len(extra) < 10 + 0.08 * 300
    one = np.full((300, 2), 0.9)
    one[120, 0] = 0.7
    assert set(anchors_of(one, learning)) - rule_alone == {120}


def test_without_boundaries_a_fall_takes_the_place_of_a_switch() -> None:
    curves = np.full((200, 2), 0.9)
    curves[100:, 1] = 0.5
    told_nothing = anchors_of(curves, [()] * 200)
    assert {100, 101, 103, 107, 110, 115, 131} <= set(told_nothing)
    assert anchors_of(curves, [(0,)] * 200) == told_nothing
    assert 101 not in anchors_of(np.full((200, 2), 0.9), [(0,)] * 200)


def test_a_low_since_the_highest_counts_without_boundaries() -> None:
    curves = np.full((120, 1), 0.9)
    curves[60:, 0] = 0.9 - 0.0015 * np.arange(60)
    quiet = set(anchors_of(np.full((120, 1), 0.9), [(0,)] * 120))
    extra = sorted(set(anchors_of(curves, [(0,)] * 120)) - quiet)
    assert extra and extra[0] == 81


def test_tasks_learned_together_are_not_earlier_tasks() -> None:
    curves = np.full((60, 3), 0.9)
    curves[40:, 1] = np.linspace(0.89, 0.86, 20)
    learning: list[tuple[int, ...]] = [(0,)] * 20 + [(1, 2)] * 40
    assert anchors_of(curves, learning) == anchors_of(np.full((60, 3), 0.9), learning)


def test_a_trace_is_followed_again() -> None:
    trace = of_two().trace
    assert trace.anchors is not None
    again = Anchors.after(trace, of_two().phases)
    once = Anchors()
    for step in sorted(set(trace.step)):
        rows = [row for row in range(len(trace)) if trace.step[row] == step]
        once.due(
            learning=of_two().phases[trace.learning[rows[0]]],
            accuracies={trace.task[row]: trace.correct[row] / trace.total[row] for row in rows},
        )
    assert again == once != Anchors()
    assert Anchors.after(Trace(), {}) == Anchors()
