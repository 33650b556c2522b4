"""The evaluator in Avalanche's strategies, as a plugin.

    from engram.interop.avalanche import Watch

    watch = Watch(benchmark.test_stream, every=10)
    strategy = Naive(model=model, optimizer=optimizer, plugins=[watch])

Avalanche has about 60 dependencies and fits an environment of its own best: `pip install avalanche-lib`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt, cast

import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluator
from engram.interop.libraries import library
from engram.interop.watching import TestSets, Watching

if TYPE_CHECKING:

    class SupervisedPlugin:
        """The parent of Avalanche's plugins."""

    class CLExperience:
        """A part of a stream of Avalanche."""

        dataset: Samples
        task_labels: Sequence[int]

    def is_multi_task_module(model: nn.Module) -> bool:
        """Whether a model must be told the task of every sample."""

else:

    def _part(name: str) -> ModuleType:
        return library(f"avalanche.{name}", user="engram.interop.avalanche", install="avalanche-lib")

    SupervisedPlugin = _part("core").SupervisedPlugin
    CLExperience = _part("benchmarks").CLExperience
    is_multi_task_module = _part("models.utils").is_multi_task_module


class Samples(Protocol):
    """A data set of Avalanche: triples of an input, a class and a task label."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int, /) -> Sequence[Any]:
        """One sample."""


class Pairs:
    """The samples of an experience as pairs of input and class."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int, /) -> tuple[Any, SupportsInt]:
        # A list would raise IndexError by itself; the sequences of Avalanche may not.
        if not 0 <= index < len(self.samples):
            raise IndexError(index)
        x, y = self.samples[index][:2]
        return x, y


class Heads(nn.Module):
    """A multi-task model of Avalanche that answers every test set with the head of its task label."""

    def __init__(self, model: nn.Module, labels: Sequence[int]) -> None:
        super().__init__()
        self.model, self.labels = model, labels

    def route(self, task: int) -> nn.Module:
        """The model with the head of a task."""
        return _Head(self.model, self.labels[task])


class _Head(nn.Module):
    def __init__(self, model: nn.Module, label: int) -> None:
        super().__init__()
        self.model, self.label = model, label

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(x, torch.full((len(x),), self.label, device=x.device))
        return scores


class Watch(Watching, SupervisedPlugin):
    """A plugin that evaluates after updates, and changes nothing in training.

    The task being learned is the number of the experience. Models with one head per task are asked with the
    task label of each test experience; this needs a stream of test experiences.

    Args:
        test_sets: A stream of test experiences, such as `benchmark.test_stream`; or one test set per
            experience, as `Evaluator` takes them; or an `Evaluator`.
        stop_below: Stop training the experience as soon as an earlier task is evaluated with an accuracy
            below this.
        save: The folder to save the run in, after every experience.
        options: The options of `Evaluator`: `every`, `subset`, …

    Example:
        >>> watch = Watch([(torch.eye(2), torch.tensor([0, 1]))] * 2, every=10)
        >>> watch.evaluator.schedule.every
        10
    """

    def __init__(
        self,
        test_sets: TestSets | Iterable[CLExperience],
        *,
        stop_below: float | None = None,
        save: str | Path | None = None,
        **options: Any,
    ) -> None:
        experiences = _experiences(test_sets)
        # Only models with several heads need them, and not all experiences have them.
        self._labels: list[Sequence[int]] = [
            getattr(experience, "task_labels", ()) for experience in experiences
        ]
        pairs = [Pairs(experience.dataset) for experience in experiences]
        super().__init__(pairs or cast("TestSets", test_sets), stop_below=stop_below, save=save, **options)

    def before_training_exp(self, strategy: Any, *_: object, **__: object) -> None:
        """Evaluate before the very first update."""
        self.task = strategy.experience.current_experience
        self.began(self._network(strategy.model))

    def after_update(self, strategy: Any, *_: object, **__: object) -> None:
        """Count an update, and evaluate if it is time."""
        self.updated(self._network(strategy.model))
        if self.stopped:
            strategy.stop_training()

    def after_training_exp(self, strategy: Any, *_: object, **__: object) -> None:
        """Evaluate the last update, and save the run if that was wanted."""
        self.ended(self._network(strategy.model))

    def _network(self, model: nn.Module) -> nn.Module:
        if not is_multi_task_module(model):
            return model
        if not self._labels or any(len(labels) != 1 for labels in self._labels):
            raise InputError(
                f"{type(model).__name__} needs one task label per test set: give Watch a test stream whose "
                "experiences have one task label each, such as benchmark.test_stream"
            )
        return Heads(model, [labels[0] for labels in self._labels])


def _experiences(test_sets: object) -> list[CLExperience]:
    """The experiences of a stream; none if these are test sets of another kind."""
    if isinstance(test_sets, Evaluator | Mapping) or not isinstance(test_sets, Iterable):
        return []
    parts = list(test_sets)
    return parts if parts and all(isinstance(part, CLExperience) for part in parts) else []
