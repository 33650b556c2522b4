"""A small stream that can be learned, two classes per task, and functions that train a method on it."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.evaluation.evaluator import Routes
from engram.methods.base import Learner, Method
from engram.methods.fields import uses_optimizer
from engram.models import ModelSpec, build
from engram.models.network import Network

Setting = Literal["class", "domain", "task"]
TASKS = 3
SIDE = 4


def network(*, n_units: int = 2 * TASKS, hidden: tuple[int, ...] = (16,), seed: int = 0) -> Network:
    return build(ModelSpec(hidden=hidden), shape=(1, SIDE, SIDE), n_units=n_units, seed=seed)


def make(kind: type, *, lr: float = 0.1, momentum: float = 0.0, seed: int = 0, **fields: Any) -> Any:
    spec = {"optimizer_spec": OptimizerSpec("sgd", lr=lr, momentum=momentum)}
    return kind(
        network=network(seed=seed),
        generator=torch.Generator().manual_seed(seed),
        **(spec if uses_optimizer(kind) else {}),
        **fields,
    )


def heads(task: int, setting: Setting) -> Heads:
    if setting == "task":
        return tuple((2 * number, 2 * number + 1) for number in range(TASKS))
    return ((0, 1),) if setting == "domain" else (tuple(range(2 * (task + 1))),)


def samples(task: int, *, count: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy copies of a pattern for each of the task's two classes, which are 2·task and 2·task + 1."""
    patterns = torch.randn(2 * TASKS, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(7))
    draw = torch.Generator().manual_seed(100 * task + seed)
    y = 2 * task + torch.arange(count) % 2
    return patterns[y] + 0.5 * torch.randn(count, 1, SIDE, SIDE, generator=draw), y


def batches(task: int, *, setting: Setting = "class", count: int = 40, size: int = 8) -> list[Batch]:
    x, y = samples(task, count=count)
    units = y % 2 if setting == "domain" else y
    head = task if setting == "task" else 0
    return [
        Batch(part, labels, heads=heads(task, setting), head=head)
        for part, labels in zip(x.split(size), units.split(size), strict=True)
    ]


def info(task: int, shown: Sequence[Batch], *, setting: Setting = "class", epochs: int = 1) -> TaskInfo:
    units = sorted({unit for batch in shown for unit in batch.y.tolist()})
    return TaskInfo(
        index=task,
        identity=task if setting == "task" else None,
        classes=tuple(units),
        samples=sum(len(batch) for batch in shown),
        steps=epochs * len(shown),
        epochs=epochs,
        batch_size=len(shown[0]),
    )


def learn(
    method: Method,
    task: int,
    *,
    setting: Setting = "class",
    epochs: int = 1,
    count: int = 40,
    size: int = 8,
    after: Callable[[int], object] = lambda step: None,
) -> list[float]:
    """Train on a task and return the losses; `after` is called after every update with its number."""
    shown = batches(task, setting=setting, count=count, size=size)
    method.begin_task(info(task, shown, setting=setting, epochs=epochs))
    losses = []
    for step in range(epochs * len(shown)):
        losses.append(method.observe(shown[step % len(shown)]))
        after(step)
    method.end_task(iter(shown))
    return losses


def accuracy(method: Method, task: int, *, setting: Setting = "class", seen: int = TASKS) -> float:
    """On samples of the task that were never shown, among the classes of the first `seen` tasks."""
    x, y = samples(task, count=200, seed=50)
    units = torch.tensor(heads(seen - 1, setting)[task if setting == "task" else 0])
    predictor = method.predictor()
    module = predictor.route(task) if isinstance(predictor, Routes) else predictor
    module.eval()
    with torch.no_grad():
        answers = units[module(x)[:, units].argmax(dim=1)]
    return float((answers == (y % 2 if setting == "domain" else y)).float().mean())


def weights(method: Learner) -> Tensor:
    return torch.cat([p.detach().flatten() for p in method.network.parameters()]).clone()


def same_after_resuming(kind: type, *, setting: Setting = "class", **fields: Any) -> bool:
    """Whether a method that is resumed in the middle of its second task ends with the same bits."""
    shown = batches(1, setting=setting)

    def at_work(method: Learner) -> Learner:
        learn(method, 0, setting=setting, epochs=2)
        method.begin_task(info(1, shown, setting=setting, epochs=2))
        for batch in shown[:3]:
            method.observe(batch)
        return method

    first = at_work(make(kind, momentum=0.9, **fields))
    second = make(kind, momentum=0.9, **fields)
    second.load_state_dict(first.state_dict())
    for method in (first, second):
        for batch in shown[3:] * 2:
            method.observe(batch)
        method.end_task(iter(shown))
        learn(method, 2, setting=setting)
    answers = [method.predictor()(shown[0].x) for method in (first, second)]
    return torch.equal(weights(first), weights(second)) and torch.equal(*answers)
