"""Learner and evaluators side by side: the same record to the bit, whatever happens to the processes."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.evaluation.test_crew import alive, wait_until
from torch import Tensor, nn

from engram.core.cores import cores
from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluation, Evaluator
from engram.evaluation.parallel.pace import CHECKED_EVERY, Pace
from engram.evaluation.state import EvaluatorState

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="evaluators are forked on Linux only")

UPDATES = 8


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)),
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(72, 4),
    )


class Noisy(nn.Module):
    """Draws random numbers in evaluation as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.rand(4) + np.random.rand()  # noqa: NPY002
        scores: Tensor = self.layer(x) + noise
        return scores


class Growing(nn.Module):
    """Has an attribute that changes now and then, and that answers depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)
        self.updates = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.updates += 1
        scores: Tensor = self.layer(x) * (1 if self.updates % 8 < 4 else -1)
        return scores


def samples_of_tasks(samples: int = 60) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(5)
    return [
        (torch.randn(samples, 12, generator=draw) + task, torch.randint(4, (samples,), generator=draw))
        for task in range(3)
    ]


class Loop:
    """Somebody's training loop over three tasks; `each` is called after every update."""

    def __init__(self, make: Callable[[], nn.Module] = dense) -> None:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        self.network = make()
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def update(self) -> None:
        self.network.train()
        x, y = torch.randn(16, 12), torch.randint(4, (16,))
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.network(x), y).backward()
        self.optimizer.step()

    def run(self, watch: Evaluator, each: Callable[[int], object] = lambda _: None) -> Loop:
        watch.before(self.network)
        for step in range(3 * UPDATES):
            self.update()
            watch(self.network, learning=step // UPDATES, last=(step + 1) % UPDATES == 0)
            each(step + 1)
        return self

    def end(self) -> list[Tensor]:
        """Everything that watching must not change: weights, buffers, and the next random numbers."""
        return [*(value.clone() for value in self.network.state_dict().values()), torch.rand(3)]


def recorded(watch: Evaluator) -> tuple[object, ...]:
    """The whole record but for times, and whether the same warnings are due."""
    answered = watch.answered
    return (
        watch.trace,
        watch.ends,
        watch.scores,
        (answered.step, answered.task, answered.codes),
        watch.readings,
        watch.evaluations,
        watch.learned,
        watch.doubts(),
    )


WAYS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "plain": (dense, {}),
    "batch norm": (convolutional, {"losses": True, "answers": True}),
    "random numbers": (Noisy, {}),
    "units": (dense, {"units": [(0, 1), (2, 3), (0, 2)], "full_ends": True, "subset": 30}),
    "shuffled": (dense, {"shuffle": True, "tasks": "all"}),
    "own functions": (
        dense,
        {
            "right": lambda output, batch: output.argmax(1) == batch[-1],
            "score": lambda output, batch: output.max(1).values,
            "higher_is_better": True,
        },
    ),
    "half precision": (partial(nn.Linear, 12, 4), {"precision": "half-checked"}),
    "every third": (dense, {"every": 3}),
}


@pytest.mark.parametrize(
    ("way", "evaluators"),
    [("plain", 1), ("plain", 3), ("batch norm", 1), ("batch norm", 3), *((way, 2) for way in WAYS)],
)
def test_any_number_of_evaluators_gives_the_same_bits(way: str, evaluators: int) -> None:
    make, options = WAYS[way]
    samples = 300 if way == "half precision" else 60
    in_line = Evaluator(samples_of_tasks(samples), **options)
    beside = Evaluator(samples_of_tasks(samples), parallel=evaluators, **options)
    expected = Loop(make).run(in_line).end()
    lags: list[int] = []
    assert all(map(torch.equal, Loop(make).run(beside, lambda _: lags.append(beside.lag)).end(), expected))
    assert recorded(beside) == recorded(in_line)
    record = beside.parallel_record
    assert record is not None
    assert record.evaluations >= 3
    assert record.lag <= 3 * evaluators * in_line.schedule.every
    assert max(lags) <= 3 * evaluators * in_line.schedule.every
    assert record.evaluators == evaluators
    if way == "half precision":
        assert beside.precision_record is not None
        assert beside.precision_record.evaluations > 0
        assert beside.precision_record.wrong == 0
    beside.close()
    assert not beside.evaluators


def test_a_form_that_changes_starts_other_evaluators() -> None:
    in_line, beside = Evaluator(samples_of_tasks()), Evaluator(samples_of_tasks(), parallel=2)
    expected = Loop(Growing).run(in_line).end()
    assert all(map(torch.equal, Loop(Growing).run(beside).end(), expected))
    assert recorded(beside) == recorded(in_line)


def test_networks_that_change_themselves_are_evaluated_in_line() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.asked = nn.Linear(12, 4), 0

        def forward(self, x: Tensor) -> Tensor:
            self.asked += not self.training
            scores: Tensor = self.layer(x)
            return scores

    in_line, beside = Evaluator(samples_of_tasks()), Evaluator(samples_of_tasks(), parallel=1)
    for watch in (in_line, beside):
        with pytest.warns(UserWarning, match="changes itself"):
            Loop(Counting).run(watch)
    assert recorded(beside) == recorded(in_line)
    assert beside.self_changes == in_line.self_changes
    record = beside.parallel_record
    assert record is not None
    assert not record.evaluations
    assert record.why == "the network changes itself in evaluation"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda net: net.register_forward_hook(lambda *_: None), "has hooks"),
        (lambda net: setattr(net, "noise", torch.Generator()), "Generator in noise"),
    ],
)
def test_what_cannot_be_sent_is_evaluated_in_line_and_said(
    change: Callable[[nn.Module], object], why: str
) -> None:
    watch, loop = Evaluator(samples_of_tasks(), parallel=2), Loop()
    change(loop.network)
    loop.run(watch)
    record = watch.parallel_record
    assert record is not None
    assert why in record.why
    assert str(record).startswith("evaluated in line: ")
    assert watch.evaluations == 3 * UPDATES + 1


def test_networks_made_by_a_function_are_sent_too() -> None:
    def halved(network: nn.Module) -> nn.Module:
        made = dense()
        made.load_state_dict({name: value / 2 for name, value in network.state_dict().items()})
        return made

    traces = []
    for parallel in ("off", 2):
        loop, watch = Loop(), Evaluator(samples_of_tasks(), parallel=parallel)
        for _ in range(10):
            loop.update()
            watch(partial(halved, loop.network), learning=0)
        traces.append(watch.trace)
        if parallel == 2:
            record = watch.parallel_record
            assert record is not None
            assert record.evaluations == 9
    assert traces[0] == traces[1]


def test_killed_evaluators_lose_nothing() -> None:
    in_line, beside = Evaluator(samples_of_tasks()), Evaluator(samples_of_tasks(), parallel=2)

    def kill(step: int) -> None:
        if step % 5 == 3:
            os.kill(beside.evaluators[step % 2], signal.SIGKILL)

    expected = Loop().run(in_line).end()
    assert all(map(torch.equal, Loop().run(beside, kill).end(), expected))
    assert recorded(beside) == recorded(in_line)
    record = beside.parallel_record
    assert record is not None
    assert record.replaced >= 3


def test_evaluators_that_keep_dying_leave_the_learner_to_evaluate() -> None:
    learner = os.getpid()

    def deadly(network: nn.Module, batch: tuple[Tensor, Tensor]) -> object:
        if os.getpid() != learner:
            os.kill(os.getpid(), signal.SIGKILL)
        return network(batch[0])

    in_line, beside = (Evaluator(samples_of_tasks(), parallel=way, forward=deadly) for way in ("off", 1))
    Loop().run(in_line)
    with pytest.warns(UserWarning, match="evaluated in line from now on"):
        Loop().run(beside)
        beside.settle()
    assert recorded(beside) == recorded(in_line)
    assert beside.parallel_record is not None
    assert "ended one after the other" in beside.parallel_record.why


def test_an_error_in_an_evaluator_reaches_the_loop_with_its_update() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 4)
            self.limit = nn.Buffer(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if not self.training and self.limit >= 5:
                raise ZeroDivisionError("broken on purpose")
            scores: Tensor = self.layer(x)
            return scores

    watch, loop = Evaluator(samples_of_tasks(), parallel=2), Loop(Breaks)
    assert isinstance(loop.network, Breaks)
    with pytest.raises(ZeroDivisionError) as caught:
        for step in range(1, 20):
            loop.update()
            loop.network.limit.fill_(step)
            watch(loop.network, learning=0)
    assert caught.value.__notes__ == ["in the evaluation after update 5"]
    assert watch.raised_at == 5
    # What was measured before stays.
    assert watch.trace.step == [1, 2, 3, 4]
    assert not watch.evaluators


def test_reading_the_record_waits_for_it_and_callbacks_come_in_order() -> None:
    told: list[Evaluation] = []
    watch = Evaluator(samples_of_tasks(), parallel=3, on_evaluate=told.append)
    in_line: list[Evaluation] = []
    Loop().run(Evaluator(samples_of_tasks(), on_evaluate=in_line.append))

    def read(step: int) -> None:
        if step % 4 == 1:
            assert watch.trace.step[-1] == step
            assert watch.lag == 0
            assert watch.accuracies() == told[-1].accuracies

    Loop().run(watch, read)
    watch.settle()
    assert told == in_line


def test_a_state_is_complete_and_resumes() -> None:
    straight = Evaluator(samples_of_tasks(), losses=True)
    Loop().run(straight)
    watch, loop = Evaluator(samples_of_tasks(), losses=True, parallel=2), Loop()
    states: list[EvaluatorState] = []
    watch.before(loop.network)
    for step in range(3 * UPDATES):
        loop.update()
        watch(loop.network, learning=step // UPDATES, last=(step + 1) % UPDATES == 0)
        if step == 11:
            states.append(watch.state_dict())
            watch.close()
            watch = Evaluator(samples_of_tasks(), losses=True, parallel=1)
            watch.load_state_dict(states[0])
    assert recorded(watch) == recorded(straight)
    record = watch.parallel_record
    assert record is not None
    assert record.evaluations > UPDATES


def test_notes_keep_their_place_among_losses() -> None:
    records = []
    for parallel in ("off", 2):
        watch = Evaluator(samples_of_tasks(), losses=True, parallel=parallel)
        Loop().run(watch, lambda step, watch=watch: watch.note([(step, 0, None, "norm", 1.0)]))  # type: ignore[misc]
        records.append(watch.readings)
    assert records[0] == records[1]


def slow(network: nn.Module, batch: tuple[Tensor, Tensor]) -> object:
    """A network that takes a while to answer, without using a core."""
    time.sleep(0.01)
    return network(batch[0])


def test_skipping_leaves_out_evaluations_and_says_so(tmp_path: Path) -> None:
    watch, loop = Evaluator(samples_of_tasks(), parallel="skip", forward=slow), Loop()
    done = []
    for step in range(60):
        loop.update()
        done.append(watch(loop.network, learning=step // 30, last=step % 30 == 29))
    run = watch.save(tmp_path / "run")
    record = run.parallel
    assert record is not None
    assert record.skipped == done.count(False) > 0
    assert watch.evaluations == done.count(True)
    steps = sorted(set(watch.trace.step))
    assert steps == [step + 1 for step, made in enumerate(done) if made]
    assert {30, 60} <= set(steps)
    assert record.period == pytest.approx(np.diff(steps).mean())
    assert record.longest == np.diff(steps).max()
    assert f"{record.skipped} were skipped: one evaluation per {record.period:.2f} updates" in str(record)
    assert type(run).load(tmp_path / "run").parallel == record


def test_waiting_bounds_what_is_under_way() -> None:
    watch, loop = Evaluator(samples_of_tasks(), parallel=1, forward=slow), Loop()
    for _ in range(20):
        loop.update()
        assert watch(loop.network, learning=0)
        assert watch.lag <= 3
    assert watch.trace.step == list(range(1, 21))


@pytest.mark.skipif(cores() < 2, reason="evaluators need a core of their own")
def test_auto_uses_evaluators_where_they_save_time() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        in_line, watch = (
            Evaluator(samples_of_tasks(), parallel=way, forward=slow) for way in ("off", "auto")
        )
        for evaluator in (in_line, watch):
            loop = Loop()
            for _ in range(60):
                loop.update()
                time.sleep(0.02)
                evaluator(loop.network, learning=0)
        record = watch.parallel_record
        assert record is not None
        assert record.evaluations > 20
        assert watch.trace == in_line.trace
    finally:
        torch.set_num_threads(threads)


def test_auto_leaves_off_where_evaluators_save_nothing() -> None:
    pace = Pace(cores=4, threads=1)
    for _ in range(100):
        pace.note(update=0.001, evaluation=0.01)
    assert pace.choice(copying=0.0) == (3, "")
    assert "expected to take" in pace.choice(copying=0.02)[1]
    short = Pace(cores=4, threads=1)
    for _ in range(100):
        short.note(update=0.001, evaluation=0.001)
    assert short.choice(copying=0.0) == (0, "an evaluation takes 1.0 ms, too short to be worth a snapshot")
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engram.evaluation.parallel.pace.time.perf_counter", lambda: clock[0])
        reasons = []
        for _ in range(CHECKED_EVERY + 1):
            reasons.append(pace.disappoints())
            clock[0] += 0.012
    assert reasons[:-1] == [""] * CHECKED_EVERY
    assert "1.09 of the time" in reasons[-1]


@pytest.mark.parametrize("word", ["many", "0", "-1", "skip:0", "skip:x", "2:3", "65", "", "1.5"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(InputError, match="parallel must be"):
        Evaluator(samples_of_tasks(), parallel=word)


def test_evaluators_are_refused_off_the_cpu() -> None:
    watch, network = Evaluator(samples_of_tasks(), parallel=1), dense().to("meta")
    with pytest.raises(InputError, match="no evaluator processes, because the network is not on the CPU"):
        watch(network, learning=0)


def test_a_copy_has_the_record_and_processes_of_its_own() -> None:
    watch, loop = Evaluator(samples_of_tasks(), parallel=2), Loop()
    for _ in range(4):
        loop.update()
        watch(loop.network, learning=0)
    twin = copy.deepcopy(watch)
    assert twin.trace == watch.trace
    assert not twin.evaluators
    for _ in range(2):
        assert twin(loop.network, learning=0)
    assert twin.evaluators
    assert not set(twin.evaluators) & set(watch.evaluators)
    assert twin.trace.step == [1, 2, 3, 4, 5, 6]
    twin.close()
    assert watch.trace.step == [1, 2, 3, 4]


def test_a_forgotten_evaluator_ends_its_processes() -> None:
    watch, loop = Evaluator(samples_of_tasks(), parallel=2), Loop()
    for _ in range(3):
        loop.update()
        watch(loop.network, learning=0)
    pids = watch.evaluators
    assert len(pids) == 2
    assert all(map(alive, pids))
    del watch
    assert wait_until(lambda: not any(map(alive, pids)), 3.0)


SCRIPT = """
import sys, time, torch
from torch import nn
import engram

test = [(torch.randn(50, 4), torch.randint(2, (50,)))]
watch, net = engram.Evaluator(test, parallel=2), nn.Linear(4, 2)
for step in range(6):
    with torch.no_grad():
        net.weight += 0.01
    watch(net, learning=0)
print(*watch.evaluators, flush=True)
if sys.argv[1] == "killed":
    time.sleep(100)
if sys.argv[1] == "fails":
    raise RuntimeError("the loop fails")
"""


@pytest.mark.parametrize(
    "how", ["killed", *(pytest.param(how, marks=pytest.mark.slow) for how in ("fails", "ends"))]
)
def test_no_processes_are_left(how: str) -> None:
    learner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert learner.stdout is not None
    assert learner.stderr is not None
    with learner.stdout, learner.stderr:
        pids = [int(word) for word in learner.stdout.readline().split()]
        if how == "killed":
            learner.kill()
        message = learner.stderr.read()
        learner.wait()
    assert len(pids) == 2
    assert ("the loop fails" in message) == (how == "fails")
    assert wait_until(lambda: not any(map(alive, pids)), 5.0)
