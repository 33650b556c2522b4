"""Evaluator processes by themselves: forms, shared buffers, order, deaths, errors, nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from engram.evaluation.parallel.crew import DEATHS, Crew
from engram.evaluation.parallel.form import Elsewhere, Form
from engram.evaluation.parallel.process import Process
from engram.evaluation.parallel.ring import Ring

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="evaluators are forked on Linux only")


def alive(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something comes to hold in time."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


# Forms ----------------------------------------------------------------------------------------------


def test_networks_of_one_form_differ_in_values_only() -> None:
    one, other = (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GRU(4, 4)) for _ in range(2))
    assert Form.of(one).key == Form.of(other).key
    assert len(Form.of(one).tensors) == len(list(one.parameters())) + len(list(one.buffers()))


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net[1], "eps", 0.5),
        lambda net: setattr(net, "scale", 2.0),
        lambda net: net.append(nn.ReLU()),
        lambda net: setattr(net[0], "weight", nn.Parameter(net[0].weight.detach().double())),
        lambda net: setattr(net, "seen", {"classes": [0, 1]}),
        lambda net: net[1].__setattr__("running_mean", None),
    ],
    ids=["number", "attribute", "module", "type", "container", "buffer"],
)
def test_any_other_difference_is_another_form(change: Callable[[nn.Module], object]) -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = Form.of(network).key
    assert Form.of(network).key == before
    change(network)
    assert Form.of(network).key != before


def test_tensors_outside_of_buffers_belong_to_the_values() -> None:
    network = nn.Linear(3, 2)
    network.means, network.classes = torch.zeros(5), [torch.ones(2)]  # type: ignore[assignment]
    form = Form.of(network)
    assert any(tensor is network.means for tensor in form.tensors)
    assert len(form.tensors) == 4
    network.means += 1
    assert Form.of(network).key == form.key


def test_what_tensors_and_constants_do_not_say_stays_with_the_learner() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    drawing = nn.Linear(2, 2)
    drawing.noise = torch.Generator()  # type: ignore[assignment]
    reading = nn.Linear(2, 2)
    reading.source = iter([1, 2])  # type: ignore[assignment]
    for network, why in ((hooked, "hooks"), (drawing, "Generator in noise"), (reading, "in source")):
        with pytest.raises(Elsewhere, match=why):
            Form.of(network)


def test_values_are_lent_without_a_copy_and_given_back() -> None:
    network = nn.Linear(3, 2)
    form, x = Form.of(network), torch.randn(4, 3)
    ring = Ring(form, 2)
    ring.write(1, form.tensors)
    expected, place, version = network(x), network.weight.data_ptr(), network.weight._version
    with torch.no_grad():
        network.weight.zero_()
    with form.holding(ring.tensors[1]):
        assert torch.equal(network(x), expected)
        assert network.weight.data_ptr() != place
    assert network.weight.data_ptr() == place
    assert network.weight._version == version + 1


def test_buffers_keep_types_strides_and_alignment() -> None:
    convolution = nn.Conv2d(3, 5, 3)
    convolution.weight.data = convolution.weight.data.contiguous(memory_format=torch.channels_last)
    network = nn.Sequential(convolution, nn.BatchNorm2d(5).double())
    network.odd = torch.zeros(17)[1:]
    form = Form.of(network)
    ring = Ring(form, 3)
    for buffer in range(3):
        ring.write(buffer, form.tensors)
        for mine, its in zip(form.tensors, ring.tensors[buffer], strict=True):
            assert torch.equal(mine, its)
            assert (mine.dtype, mine.stride()) == (its.dtype, its.stride())
            assert mine.data_ptr() % 64 == its.data_ptr() % 64


# Crews ----------------------------------------------------------------------------------------------


def test_answers_come_in_order_however_long_each_takes() -> None:
    def work(_: int, job: int) -> int:
        time.sleep(0.05 if job % 3 == 0 else 0.001)
        return job * job

    crew: Crew[int, int] = Crew(work, processes=3, buffers=9)
    answers: list[tuple[int, int]] = []
    for job in range(20):
        while (buffer := crew.free_buffer()) is None:
            answers += crew.one()
        crew.hand_in(buffer, job)
        answers += crew.ready()
        assert len(crew) <= 9
    answers += crew.drained()
    crew.end()
    assert answers == [(job, job * job) for job in range(20)]


def test_evaluators_see_shared_buffers_and_what_the_learner_had() -> None:
    network = nn.Linear(4, 3)
    form, x = Form.of(network), torch.randn(100, 4)
    ring = Ring(form, 2)

    def work(buffer: int, _: int) -> list[float]:
        with form.holding(ring.tensors[buffer]), torch.no_grad():
            return network(x).sum(1).tolist()  # type: ignore[no-any-return]

    crew: Crew[int, list[float]] = Crew(work, processes=2, buffers=2)
    expected = []
    answers: list[tuple[int, list[float]]] = []
    for job in range(5):
        with torch.no_grad():
            network.weight += 1
            expected.append((job, network(x).sum(1).tolist()))
        while (buffer := crew.free_buffer()) is None:
            answers += crew.one()
        ring.write(buffer, form.tensors)
        crew.hand_in(buffer, job)
    answers += crew.drained()
    crew.end()
    assert answers == expected


def test_a_killed_evaluator_is_replaced_and_nothing_is_lost() -> None:
    def work(_: int, job: int) -> int:
        time.sleep(0.02)
        return -job

    crew: Crew[int, int] = Crew(work, processes=2, buffers=6)
    answers: list[tuple[int, int]] = []
    for job in range(12):
        while (buffer := crew.free_buffer()) is None:
            answers += crew.one()
        crew.hand_in(buffer, job)
        if job in (3, 8):
            os.kill(crew.pids[0], signal.SIGKILL)
    answers += crew.drained()
    assert answers == [(job, -job) for job in range(12)]
    assert crew.replaced == 2
    assert len(crew.pids) == 2
    crew.end()


def test_evaluators_that_keep_dying_leave_the_work_to_the_learner() -> None:
    learner = os.getpid()

    def work(_: int, job: int) -> int:
        if os.getpid() != learner:
            os.kill(os.getpid(), signal.SIGKILL)
        return job + 1

    crew: Crew[int, int] = Crew(work, processes=1, buffers=3)
    for job in range(3):
        buffer = crew.free_buffer()
        assert buffer is not None
        crew.hand_in(buffer, job)
    with pytest.warns(UserWarning, match=f"{DEATHS} evaluator processes in a row"):
        answers = list(crew.drained())
    assert answers == [(0, 1), (1, 2), (2, 3)]
    assert crew.broken
    assert crew.free_buffer() is None
    assert not crew.pids


def test_an_error_is_raised_here_as_it_is_and_ends_the_crew() -> None:
    class Own(Exception):
        """An error with something that cannot be sent."""

        def __init__(self, job: int) -> None:
            super().__init__(job)
            self.unsendable = lambda: None

    def work(_: int, job: int) -> int:
        if job == 1:
            raise Own(job)
        return job

    crew: Crew[int, int] = Crew(work, processes=1, buffers=3)
    for job in range(3):
        buffer = crew.free_buffer()
        assert buffer is not None
        crew.hand_in(buffer, job)
    pids = crew.pids
    answers = crew.drained()
    assert next(answers) == (0, 0)
    with pytest.raises(Own):
        next(answers)
    assert not any(map(alive, pids))
    assert not len(crew)


def test_evaluators_use_as_many_threads_as_the_learner_after_it_used_them() -> None:
    """A fork copies one thread only; OpenMP would wait for the others forever."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        x = torch.randn(600, 600, requires_grad=True)
        (x @ x).sum().backward()
        convolution, images = nn.Conv2d(3, 16, 3), torch.randn(16, 3, 32, 32)
        convolution(images).sum().backward()

        def work(_: int, job: int) -> tuple[int, float]:
            with torch.no_grad():
                return torch.get_num_threads(), float((x @ x).sum() + convolution(images).sum())

        crew: Crew[int, tuple[int, float]] = Crew(work, processes=2, buffers=4)
        for job in range(4):
            buffer = crew.free_buffer()
            assert buffer is not None
            crew.hand_in(buffer, job)
        answers = [answer for _, answer in crew.drained()]
        crew.end()
        with torch.no_grad():
            assert answers == [(2, float((x @ x).sum() + convolution(images).sum()))] * 4
    finally:
        torch.set_num_threads(before)


def test_ended_processes_are_gone_and_so_are_their_files() -> None:
    gc.collect()
    files = len(list(Path("/proc/self/fd").iterdir()))
    crew: Crew[int, int] = Crew(lambda _, job: job, processes=3, buffers=3)
    pids = crew.pids
    assert all(map(alive, pids))
    crew.end()
    assert not any(map(alive, pids))
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_evaluators_ignore_the_signals_of_a_terminal() -> None:
    process = Process(lambda question: question)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.pipe.send("still there")
        assert process.pipe.recv() == "still there"
        os.kill(process.pid, number)
    process.pipe.send("still there")
    assert process.pipe.recv() == "still there"
    process.end()
    assert not alive(process.pid)


KILLED = """
import time
from engram.evaluation.parallel.crew import Crew

def work(buffer, job):
    time.sleep(100 if job else 0)

crew = Crew(work, processes=2, buffers=4)
for job in (0, 1, 1):
    crew.hand_in(crew.free_buffer(), job)
print(*crew.pids, flush=True)
time.sleep(100)
"""


def test_a_killed_learner_leaves_no_processes() -> None:
    learner = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert learner.stdout is not None
    with learner.stdout:
        pids = [int(word) for word in learner.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
        learner.kill()
        learner.wait()
    assert wait_until(lambda: not any(map(alive, pids)))
