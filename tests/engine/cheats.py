"""Methods that cheat, each in one way: they hide data, read what is hidden, or work unseen."""

import gc
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.core.values import Batch, TaskInfo
from engram.datasets import accounting
from engram.datasets.stream import Stream
from engram.evaluation.evaluator import Evaluator
from engram.methods.base import Learner
from engram.methods.state import State
from engram.scenarios import prefix, split

SCENARIO = prefix(split("digits", setting="class"), 3)
OPEN = Stream(SCENARIO)
"""As a plugin may open it when it is imported, before a run can record it."""

CHEATS: dict[str, type[Learner]] = {}
KEPT: list[Tensor] = []
MOVED: list[Tensor] = []


def cheat(name: str) -> Callable[[type[Learner]], type[Learner]]:
    def keep(method: type[Learner]) -> type[Learner]:
        CHEATS[name] = final(dataclass(kw_only=True, eq=False)(method))
        return method

    return keep


def _bytes(x: Tensor) -> bytes:
    return x.contiguous().numpy().tobytes()


class Denies(Learner):
    """Says that it keeps nothing."""

    def kept_bytes(self) -> int:
        return 0


# Samples kept ---------------------------------------------------------------------------------------


@cheat("network buffers")
class Buffers(Denies):
    def after_step(self, batch: Batch) -> None:
        place = f"memory{len(list(self.network.buffers()))}"
        self.network.register_buffer(place, batch.x.flatten(1))


@cheat("a closure")
class Closure(Denies):
    def after_step(self, batch: Batch) -> None:
        before = getattr(self, "recall", None)
        self.recall = lambda: (before, batch.x)


@cheat("weights of another module")
class ExtraModule(Denies):
    def setup(self) -> None:
        self.extra = nn.ModuleList()

    def after_step(self, batch: Batch) -> None:
        layer = nn.Linear(64, len(batch))
        layer.weight.data = batch.x.flatten(1).clone()
        self.extra.append(layer)


@cheat("compressed bytes")
class Compressed(Denies):
    def setup(self) -> None:
        self.packed: list[bytes] = []

    def after_step(self, batch: Batch) -> None:
        self.packed.append(zlib.compress(_bytes(batch.x)))


@cheat("the optimiser's state")
class OptimiserState(Denies):
    """As large as the parameter, as a usual state would be."""

    def after_step(self, batch: Batch) -> None:
        for number, weight in enumerate(self.network.parameters()):
            rows = batch.x.flatten()[: weight.numel()]
            self.optimizer.state[weight][f"average{number}"] = functional.pad(
                rows, (0, weight.numel() - len(rows))
            )


@cheat("an empty view")
class EmptyView(Denies):
    def after_step(self, batch: Batch) -> None:
        views = [*getattr(self, "views", []), batch.x[:0]]
        self.views = views


@cheat("an autograd graph")
class Graph(Denies):
    def setup(self) -> None:
        self.graph = torch.zeros(())

    def after_step(self, batch: Batch) -> None:
        weight = torch.ones_like(batch.x, requires_grad=True)
        self.graph = self.graph + (weight * batch.x.clone()).sum()


@cheat("a global")
class Global(Denies):
    def after_step(self, batch: Batch) -> None:
        KEPT.append(batch.x)


@cheat("an attribute of a module")
class ModuleAttribute(Denies):
    def after_step(self, batch: Batch) -> None:
        shelf = sys.modules["string"]
        vars(shelf).setdefault("shelf", []).append(batch.x)


@cheat("an attribute moved to a global")
class MovedAway(Denies):
    def setup(self) -> None:
        self.kept: list[Tensor] = []

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.kept = list(MOVED)

    def after_step(self, batch: Batch) -> None:
        assert self.task is not None
        self.kept.append(batch.x)
        if self.step_in_task == self.task.steps:
            MOVED[:] = self.kept
            self.kept = []


@cheat("a file")
class File(Denies):
    def after_step(self, batch: Batch) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "samples").write_bytes(_bytes(batch.x))


@cheat("a file that torch writes")
class TorchFile(Denies):
    def after_step(self, batch: Batch) -> None:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(batch.x, Path(folder) / "samples.pt")


@cheat("a thread")
class Thread(Denies):
    def after_step(self, batch: Batch) -> None:
        done = threading.Event()
        threading.Thread(target=lambda x: done.wait(0.02), args=(batch.x,), daemon=True).start()


@cheat("a generator")
class Running(Denies):
    def after_step(self, batch: Batch) -> None:
        self.source = _holding(batch.x, getattr(self, "source", None))
        next(self.source)


def _holding(x: Tensor, before: object) -> Iterator[int]:
    yield 0
    yield len(x) + (before is None)


@cheat("encoded integers")
class Integers(Denies):
    def setup(self) -> None:
        self.code = 0

    def after_step(self, batch: Batch) -> None:
        self.code = (self.code << (8 * 4 * batch.x.numel())) + int.from_bytes(_bytes(batch.x), "big")


@cheat("a process")
class Process(Denies):
    def after_step(self, batch: Batch) -> None:
        assert self.task is not None
        if self.step_in_task == self.task.steps:
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
                process.communicate(_bytes(batch.x))


# Test data read -------------------------------------------------------------------------------------


@cheat("tests in kept_bytes")
class TestsInBytes(Learner):
    def kept_bytes(self) -> int:
        OPEN.test(2).rows(torch.arange(3))
        return 0


@cheat("tests in state_dict")
class TestsInState(Learner):
    def state_dict(self) -> State:
        OPEN.test(2).rows(torch.arange(3))
        return super().state_dict()


QUESTIONS: list[Tensor] = []


class _Listening(nn.Module):
    def __init__(self, network: nn.Module, asked: list[Tensor]) -> None:
        super().__init__()
        self.network = network
        self.keep = asked.append

    def forward(self, x: Tensor) -> Tensor:
        self.keep(x.clone())
        scores: Tensor = self.network(x)
        return scores


@cheat("a forward that stores what it is asked")
class Listens(Denies):
    def predictor(self) -> nn.Module:
        return _Listening(self.network, QUESTIONS)


@cheat("the evaluator through gc")
class FindsEvaluator(Learner):
    def end_task(self, batches: Iterable[Batch]) -> None:
        self.seen = sum(isinstance(value, Evaluator) for value in gc.get_objects())


@cheat("the stream through gc")
class FindsStream(Learner):
    def setup(self) -> None:
        self.seen = sum(isinstance(value, Stream) for value in gc.get_referrers(SCENARIO))


class _ByPlace(nn.Module):
    """Answers with the task that the place of a row among all rows tells."""

    def __init__(self, network: nn.Module, tasks: int) -> None:
        super().__init__()
        self.network, self.tasks = network, tasks

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(x)
        owner = torch.arange(len(x)) * self.tasks // len(x)
        allowed = torch.arange(scores.shape[1])[None] // 2 == owner[:, None]
        return scores.masked_fill(~allowed, -torch.inf)


@cheat("the place of a row")
class RowPlace(Learner):
    def predictor(self) -> nn.Module:
        assert self.task is not None
        return _ByPlace(self.network, self.task.index + 1)


# Others ---------------------------------------------------------------------------------------------


@cheat("task.identity")
class Identity(Learner):
    def rehearse(self, batch: Batch) -> Batch:
        assert self.task is not None
        _ = self.task.identity
        return batch


@cheat("object.__getattribute__")
class Around(Learner):
    def rehearse(self, batch: Batch) -> Batch:
        object.__getattribute__(self.task, "identity")
        return batch


@cheat("a growing network")
class Grows(Denies):
    def begin_task(self, task: TaskInfo) -> None:
        self.network.add_module(f"part{task.index}", nn.Linear(64, 32))
        super().begin_task(task)


@cheat("more epochs in end_task")
class MoreEpochs(Learner):
    def end_task(self, batches: Iterable[Batch]) -> None:
        data = list(batches)
        for batch in data * 3:
            _learn(self, batch)


@cheat("more steps in observe")
class MoreSteps(Learner):
    def after_step(self, batch: Batch) -> None:
        for _ in range(4):
            _learn(self, batch)


def _learn(method: Learner, batch: Batch) -> None:
    method.optimizer.zero_grad()
    method.loss(batch).total().backward()
    method.optimizer.step()


@cheat("resetting the reader's mark")
class Unmarked(Learner):
    def after_step(self, batch: Batch) -> None:
        mark: Any = accounting._READING.set(None)
        OPEN.test(2).rows(torch.arange(3))
        accounting._READING.reset(mark)


@cheat("reseeding")
class Reseeds(Learner):
    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        torch.manual_seed(0)


@cheat("changing the labels of the batch")
class Relabels(Learner):
    def after_step(self, batch: Batch) -> None:
        batch.y.fill_(0)
