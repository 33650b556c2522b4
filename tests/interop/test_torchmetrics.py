"""engram's metrics within torchmetrics are engram's metrics, also over processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.summary import summarise

pytestmark = pytest.mark.integrations
torchmetrics = pytest.importorskip(
    "torchmetrics", reason="needs torchmetrics: `make test-integrations` installs and tests it"
)
ours = pytest.importorskip("engram.interop.torchmetrics")

METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "FORG": ("ForgettingRate", {}),
    "min-ACC": ("MinAccuracy", {}),
    "WF10": ("WindowedForgetting", {}),
    "WF3": ("WindowedForgetting", {"window": 3}),
    "WFinf": ("WindowedForgetting", {"window": None}),
    "WP10": ("WindowedPlasticity", {}),
    "WP3": ("WindowedPlasticity", {"window": 3}),
}
WINDOWS = (3, 10, None)


Row = tuple[int, int, int, Tensor, Tensor]


def history(seed: int, *, tasks: int = 3, evaluations: int = 12) -> list[Row]:
    """Step, task being learned, task evaluated, answers and labels."""
    draw = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(evaluations):
        learning = number * tasks // evaluations
        for task in range(learning + 1):
            labels = torch.randint(4, (20,), generator=draw)
            wrong = torch.rand(20, generator=draw) < torch.rand(1, generator=draw)
            rows.append((number, learning, task, torch.where(wrong, (labels + 1) % 4, labels), labels))
    return rows


def expected(seed: int, prefix: int | None = None) -> dict[str, float]:
    trace = Trace()
    for step, learning, task, answers, labels in history(seed)[:prefix]:
        trace.add(step=step, learning=learning, task=task, right=(answers == labels).numpy())
    return summarise(trace, windows=WINDOWS).final


def make(name: str) -> Any:
    kind, options = METRICS[name]
    return getattr(ours, kind)(**options)


def feed(metric: Any, seed: int, prefix: int | None = None, **more: Any) -> None:
    for step, learning, task, answers, labels in history(seed)[:prefix]:
        metric.update(answers, labels, task=task, learning=learning, step=step, **more)


def same(value: Tensor, number: float) -> None:
    assert value.dtype is torch.float32
    np.testing.assert_array_equal(value.numpy(), np.float32(number))


def test_the_names_are_those_of_results() -> None:
    assert METRICS.keys() <= expected(0).keys()


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("seed", range(3))
def test_a_metric_is_engrams_own_at_every_prefix(name: str, seed: int) -> None:
    metric = make(name)
    rows = history(seed)
    for prefix, (step, learning, task, answers, labels) in enumerate(rows, start=1):
        metric.update(answers, labels, task=task, learning=learning, step=step)
        same(metric.compute(), expected(seed, prefix).get(name, np.nan))


@pytest.mark.parametrize("name", ["ACC", "WC-ACC", "BWT", "AF"])
def test_any_metric_of_accuracies_by_its_name(name: str) -> None:
    metric = ours.HistoryMetric(name)
    feed(metric, 1)
    same(metric.compute(), expected(1)[name])
    assert metric.higher_is_better is (name != "AF")


def test_batches_and_scores_make_the_same_evaluation() -> None:
    metric = make("FORG")
    for step, learning, task, answers, labels in history(2):
        scores = torch.nn.functional.one_hot(answers, 4).float()
        for part in (slice(0, 7), slice(7, 20)):
            metric.update(scores[part], labels[part], task=task, learning=learning, step=step)
    same(metric.compute(), expected(2)["FORG"])
    assert sum(len(row) for row in metric.rows) == len(history(2))


@pytest.mark.parametrize("name", METRICS)
def test_direction_and_flags(name: str) -> None:
    metric = make(name)
    assert metric.higher_is_better is name.startswith(("min", "WP"))
    assert metric.is_differentiable is False
    assert metric.full_state_update is False


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_state_is_kept_cloned_pickled_and_reset() -> None:
    metric = make("WF3")
    feed(metric, 0, 9)
    restored, loaded = pickle.loads(pickle.dumps(metric)), make("WF3")  # noqa: S301
    loaded.load_state_dict(metric.state_dict())
    copies = [metric.clone(), restored, loaded]
    for copy in [*copies, metric]:
        for step, learning, task, answers, labels in history(0)[9:]:
            copy.update(answers, labels, task=task, learning=learning, step=step)
        same(copy.compute(), expected(0)["WF3"])
    metric.reset()
    assert torch.isnan(metric.compute())
    same(copies[0].compute(), expected(0)["WF3"])


def test_forward_gives_the_batch_and_keeps_the_history() -> None:
    metric = make("WF10")
    for step, learning, task, answers, labels in history(3):
        assert metric(answers, labels, task=task, learning=learning, step=step) == 0
    same(metric.compute(), expected(3)["WF10"])


def test_a_collection_shares_the_state() -> None:
    collection = torchmetrics.MetricCollection(
        {**{name: make(name) for name in METRICS}, "NFR": ours.NegativeFlipRate()}
    )
    for step, learning, task, answers, labels in history(4):
        collection.update(answers, labels, task=task, learning=learning, step=step, old=labels)
    values = collection.compute()
    for name in METRICS:
        same(values[name], expected(4)[name])
    groups = {frozenset(group) for group in collection.compute_groups.values()}
    assert groups == {frozenset(METRICS), frozenset({"NFR"})}
    rows = history(4)
    wrong = sum(int((answers != labels).sum()) for *_, answers, labels in rows)
    same(values["NFR"], wrong / (20 * len(rows)))


def test_negative_flips_are_those_of_the_gate() -> None:
    import engram

    draw = torch.Generator().manual_seed(0)
    labels, old, new = (torch.randint(3, (200,), generator=draw) for _ in range(3))
    metric = ours.NegativeFlipRate()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert torch.isnan(metric.compute())
    metric.reset()
    for start in range(0, 200, 64):
        rows = slice(start, start + 64)
        metric.update(new[rows], labels[rows], old=old[rows])
    tables = [{"id": range(200), "correct": (answers == labels).tolist()} for answers in (old, new)]
    gate = engram.gate(*tables)
    lost = gate.overall.lost
    assert lost > 0
    same(metric.compute(), lost / 200)
    assert not metric.higher_is_better


def test_bad_input_is_one_line() -> None:
    with pytest.raises(InputError, match="did you mean 'FORG'"):
        ours.HistoryMetric("FROG")
    with pytest.raises(InputError, match="RAA needs"):
        ours.HistoryMetric("RAA")
    with pytest.raises(InputError, match="window"):
        ours.WindowedForgetting(window=0)
    for answers in (torch.zeros(3), torch.zeros(3, dtype=torch.int64), torch.zeros(2, 4, 4)):
        with pytest.raises(InputError, match="preds must be one class per sample"):
            make("FORG").update(answers, torch.zeros(2), task=0, learning=0, step=0)


PROCESS = """
import sys
import torch.distributed as dist
from test_torchmetrics import METRICS, expected, history, make, ours, same

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
for name in METRICS:
    metric = make(name)
    for step, learning, task, answers, labels in history(5):
        # Each process sees its share of the samples.
        metric.update(answers[rank::2], labels[rank::2], task=task, learning=learning, step=step)
    same(metric.compute(), expected(5)[name])
    assert len(metric.rows) == len(history(5)), "the own share is back after the reduction"
flips = ours.NegativeFlipRate()
rows = history(5)
for *_, answers, labels in rows:
    flips.update(answers[rank::2], labels[rank::2], old=labels[rank::2])
same(flips.compute(), sum(int((a != l).sum()) for *_, a, l in rows) / (20 * len(rows)))
dist.destroy_process_group()
"""


def test_two_processes_reduce_to_the_whole(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", PROCESS, str(rank), str(tmp_path / "store")] for rank in range(2)]
    here = Path(__file__).parent
    processes = [
        subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
