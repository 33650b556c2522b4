"""engram's metrics as `torchmetrics.Metric`, for loops that already have a `MetricCollection`.

from engram.interop.torchmetrics import ForgettingRate, MinAccuracy, NegativeFlipRate

metrics = MetricCollection([ForgettingRate(), MinAccuracy(), NegativeFlipRate()])
metrics.update(scores, labels, task=0, learning=1, step=120, old=scores_of_the_old_model)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.interop.libraries import library
from engram.metrics.computing import compute
from engram.metrics.curve import check_window
from engram.metrics.history import Curve
from engram.metrics.inputs import gather_inputs
from engram.metrics.registry import METRICS, Keywords

if TYPE_CHECKING:

    class Metric(nn.Module):
        """The parent of all metrics of torchmetrics."""

        device: torch.device

        def __init__(self, **kwargs: Any) -> None: ...

        def add_state(
            self,
            name: str,
            default: list[Tensor] | Tensor,
            dist_reduce_fx: str,
            persistent: bool = False,
        ) -> None:
            """Add a state that is reduced over processes."""

else:
    Metric = library(
        "torchmetrics", user="engram.interop.torchmetrics", install="engram-eval[torchmetrics]"
    ).Metric


class HistoryMetric(Metric):
    """Any metric of engram that is computed from accuracies during learning, by its name.

    `update` takes a batch of answers: the task they belong to, the task that is being learned, and the number
    of updates so far. Batches of the same task at the same step are one evaluation, also if they were seen
    by different processes. The state is one row of five numbers per evaluation of a task; do not `reset`
    between evaluations. NaN where the metric is undefined.

    Args:
        name: The name of a metric, as `engram list metrics` shows it: `ACC`, `WC-ACC`, `BWT`, `AF`, ….
        options: The options of the metric's function, such as `window`; and those of `torchmetrics.Metric`.

    Example:
        >>> metric = HistoryMetric("BWT")
        >>> right, wrong = torch.tensor([1, 1, 1, 1]), torch.tensor([1, 0, 0, 0])
        >>> metric.update(right, right, task=0, learning=0, step=1)
        >>> metric.update(wrong, right, task=0, learning=1, step=2)
        >>> metric.update(right, right, task=1, learning=1, step=2)
        >>> metric.compute()
        tensor(-0.7500)
    """

    is_differentiable: bool | None = False
    higher_is_better: bool | None = None
    full_state_update: bool | None = False
    rows: list[Tensor] | Tensor

    def __init__(self, name: str, **options: Any) -> None:
        metric = METRICS[name]
        chosen = {key: options.pop(key) for key in metric.options if key in options}
        super().__init__(**options)
        if not set(metric.needs) <= {"matrix", "curve"}:
            raise InputError(
                f"{name} needs {' and '.join(metric.needs)}: torchmetrics has the accuracies during learning"
            )
        self.metric_name, self.options = name, chosen
        # torchmetrics lets only classes set it.
        self.__dict__["higher_is_better"] = metric.higher_is_better
        self.add_state("rows", default=[], dist_reduce_fx="cat", persistent=True)

    def update(self, preds: Tensor, target: Tensor, *, task: int, learning: int, step: int) -> None:
        """Add a batch of answers.

        Args:
            preds: One class per sample, or the scores of all classes, samples first.
            target: The right class of each sample.
            task: The task that the samples belong to.
            learning: The task being learned.
            step: How many updates were made so far; 0 is before the first.
        """
        right = _right(preds, target)
        row = torch.tensor([[step, learning, task, int(right.sum()), len(right)]], device=self.device)
        if not isinstance(self.rows, list):
            self.rows = [self.rows]
        if self.rows and torch.equal(self.rows[-1][-1:, :3], row[:, :3]):
            row[:, 3:] += self.rows[-1][-1:, 3:]
            self.rows[-1] = torch.cat([self.rows[-1][:-1], row])
        else:
            self.rows.append(row)

    def compute(self) -> Tensor:
        """The metric after the latest evaluation."""
        rows = torch.cat(list(self.rows)) if isinstance(self.rows, list) and self.rows else self.rows
        if isinstance(rows, list) or not len(rows):
            return torch.tensor(torch.nan, device=self.device)
        # Batches and processes saw parts of an evaluation.
        keys, at = np.unique(rows[:, :3].cpu().numpy(), axis=0, return_inverse=True)
        counts = np.zeros((len(keys), 2))
        np.add.at(counts, at.reshape(-1), rows[:, 3:].cpu().numpy())
        step, learning, task = keys.T
        curve = Curve.of_table(
            step=step, learning=learning, task=task, accuracy=counts[:, 0] / counts[:, 1], total=counts[:, 1]
        )
        return torch.tensor(self._value(curve), dtype=torch.float32, device=self.device)

    def _value(self, curve: Curve) -> float:
        metric, inputs = METRICS[self.metric_name], gather_inputs(curve)
        options: Keywords = self.options
        return compute(metric, inputs.arguments(metric), options, inputs.matrix).final


@final
class ForgettingRate(HistoryMetric):
    """FORG: the mean accuracy that earlier tasks have lost since each was learned.

    Example:
        >>> metric, right = ForgettingRate(), torch.tensor([1, 1, 1, 1])
        >>> metric.update(right, right, task=0, learning=0, step=1)
        >>> metric.update(torch.tensor([1, 1, 1, 0]), right, task=0, learning=1, step=2)
        >>> metric.update(right, right, task=1, learning=1, step=2)
        >>> metric.compute()
        tensor(0.2500)
    """

    higher_is_better = False
    plot_lower_bound: ClassVar[float] = -1.0
    plot_upper_bound: ClassVar[float] = 1.0

    def __init__(self, **options: Any) -> None:
        super().__init__("FORG", **options)


@final
class MinAccuracy(HistoryMetric):
    """min-ACC: the lowest accuracy that earlier tasks have had since they were learned, on average.

    Args:
        options: `span`, which evaluations count (see `engram explain min-ACC`); and those of
            `torchmetrics.Metric`.

    Example:
        >>> metric, right = MinAccuracy(), torch.tensor([1, 1])
        >>> metric.update(right, right, task=0, learning=0, step=1)
        >>> for step, answers in enumerate([[0, 1], [1, 1]], start=2):
        ...     metric.update(torch.tensor(answers), right, task=0, learning=1, step=step)
        >>> metric.compute()
        tensor(0.5000)
    """

    higher_is_better = True
    plot_lower_bound: ClassVar[float] = 0.0
    plot_upper_bound: ClassVar[float] = 1.0

    def __init__(self, **options: Any) -> None:
        super().__init__("min-ACC", **options)


@final
class WindowedForgetting(HistoryMetric):
    """WF: the largest drop that each task has had within a window of evaluations, on average.

    Args:
        window: How many evaluations the window has; None for the whole history.
        options: `mode` (see `engram explain WF`); and those of `torchmetrics.Metric`.

    Example:
        >>> metric, right = WindowedForgetting(window=2), torch.tensor([1, 1])
        >>> for step, answers in enumerate([[1, 1], [1, 0], [0, 0]], start=1):
        ...     metric.update(torch.tensor(answers), right, task=0, learning=0, step=step)
        >>> metric.compute()
        tensor(0.5000)
    """

    higher_is_better = False
    plot_lower_bound: ClassVar[float] = 0.0
    plot_upper_bound: ClassVar[float] = 1.0

    def __init__(self, window: int | None = 10, **options: Any) -> None:
        check_window(window)
        super().__init__("WF", window=window, **options)


@final
class WindowedPlasticity(HistoryMetric):
    """WP: the largest rise that each task has had within a window of evaluations, on average.

    Args:
        window: How many evaluations the window has; None for the whole history.
        options: `mode` (see `engram explain WP`); and those of `torchmetrics.Metric`.

    Example:
        >>> metric, right = WindowedPlasticity(window=2), torch.tensor([1, 1])
        >>> for step, answers in enumerate([[0, 0], [1, 0], [1, 1]], start=1):
        ...     metric.update(torch.tensor(answers), right, task=0, learning=0, step=step)
        >>> metric.compute()
        tensor(0.5000)
    """

    higher_is_better = True
    plot_lower_bound: ClassVar[float] = 0.0
    plot_upper_bound: ClassVar[float] = 1.0

    def __init__(self, window: int | None = 10, **options: Any) -> None:
        check_window(window)
        super().__init__("WP", window=window, **options)


@final
class NegativeFlipRate(Metric):
    """The share of samples that the old model classified correctly and the new one does not.

    NFR = lost / samples. Source: Yan et al. (2021), Positive-congruent training. NaN before the first sample.

    Example:
        >>> metric = NegativeFlipRate()
        >>> old, new = torch.tensor([0, 1, 0, 3]), torch.tensor([1, 1, 2, 3])
        >>> metric.update(new, torch.tensor([0, 1, 2, 3]), old=old)
        >>> metric.compute()
        tensor(0.2500)
    """

    is_differentiable: bool | None = False
    higher_is_better: bool | None = False
    full_state_update: bool | None = False
    plot_lower_bound: ClassVar[float] = 0.0
    plot_upper_bound: ClassVar[float] = 1.0
    lost: Tensor
    total: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("lost", default=torch.tensor(0), dist_reduce_fx="sum", persistent=True)
        self.add_state("total", default=torch.tensor(0), dist_reduce_fx="sum", persistent=True)

    def update(self, preds: Tensor, target: Tensor, *, old: Tensor) -> None:
        """Add a batch of answers of both models.

        Args:
            preds: What the new model answers: one class per sample, or the scores of all classes.
            target: The right class of each sample.
            old: What the old model answers to the same samples.
        """
        before, after = _right(old, target), _right(preds, target)
        self.lost += (before & ~after).sum()
        self.total += len(before)

    def compute(self) -> Tensor:
        """The share so far."""
        return torch.where(self.total > 0, self.lost / self.total, torch.nan)


def _right(answers: Tensor, labels: Tensor) -> Tensor:
    """Which answers are right: classes, or scores whose highest is the answer.

    Raises:
        InputError: They are neither, or not as many as labels.
    """
    if answers.ndim == 2 and answers.is_floating_point() and answers.shape[1] > 1:
        answers = answers.argmax(1)
    if answers.is_floating_point() or answers.shape != labels.shape or labels.ndim != 1:
        raise InputError(
            "preds must be one class per sample, or one row of scores of all classes per sample, with one "
            f"label per sample: got {answers.dtype} of shape {list(answers.shape)} and labels of shape "
            f"{list(labels.shape)}"
        )
    return answers == labels
