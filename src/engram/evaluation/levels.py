"""Two levels of test samples: a part that is asked at every evaluation, and all of them at anchors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.evaluation.asker import Request
from engram.evaluation.measured import Measured
from engram.evaluation.samples import draw
from engram.evaluation.state import LevelsState, packed, unpacked
from engram.evaluation.two_level import Anchors
from engram.evaluation.ways import CompetingUnits
from engram.metrics.anchored import last_shifts
from engram.record.two_level import too_few


@dataclass
class TwoLevels:
    """Which samples are asked at every evaluation, which others at anchors, and when that is.

    Attributes:
        small: For each task, the samples that are asked at every evaluation, ascending.
        rest: For each task, the others, which are asked at anchors as well.
        anchors: Decides when.

    Example:
        >>> levels = TwoLevels.drawn([torch.arange(5)], 2, torch.Generator().manual_seed(0))
        >>> sorted([*levels.small[0].tolist(), *levels.rest[0].tolist()])
        [0, 1, 2, 3, 4]
        >>> levels = TwoLevels([torch.tensor([3, 7])], [torch.tensor([1, 5])])
        >>> levels.joined(0, np.array([True, False]), np.array([False, True]))
        array([False,  True,  True, False])
    """

    small: list[Tensor]
    rest: list[Tensor]
    anchors: Anchors = field(default_factory=Anchors)

    @classmethod
    def drawn(cls, chosen: Sequence[Tensor], number: int, generator: torch.Generator) -> TwoLevels:
        """Draw the small part of each task among its chosen samples.

        Args:
            chosen: For each task, the samples that are asked at anchors, ascending.
            number: How many of them are asked at every evaluation.
            generator: Draws them.

        Raises:
            InputError: No task has more of them.
        """
        if number >= (largest := max(map(len, chosen))):
            raise InputError(too_few(number, largest))
        return cls._of(chosen, [index[draw(len(index), number, generator)] for index in chosen])

    @classmethod
    def _of(cls, chosen: Sequence[Tensor], small: Sequence[Tensor]) -> TwoLevels:
        pairs = zip(chosen, small, strict=True)
        return cls(list(small), [index[~torch.isin(index, few)] for index, few in pairs])

    def due(self, trace: Trace, learning: Sequence[int], *, evaluated: bool, end: bool) -> bool:
        """Whether all samples are asked now.

        Args:
            trace: The evaluations so far, that of the small part now included.
            learning: The tasks being learned.
            evaluated: Whether the small part was asked now, not before.
            end: Whether a task ends.
        """
        rows = last_rows(trace)
        accuracies = {trace.task[row]: trace.correct[row] / trace.total[row] for row in rows}
        telling = evaluated and self.anchors.due(learning=learning, accuracies=accuracies)
        return telling or end

    def request(self, learning: int, tasks: Sequence[int], units: CompetingUnits | None) -> Request:
        """What is asked at an anchor beyond the small part; tasks without more samples are left out."""
        more = tuple(task for task in tasks if len(self.rest[task]))
        return Request(learning, more, units, self.rest)

    def add_anchor(self, trace: Trace, rest: Mapping[int, Measured]) -> dict[int, float]:
        """Add an anchor to a trace: its last evaluation, of the small part, and what the rest answered.

        Returns:
            For each task, what all samples add to the accuracy of the small part.
        """
        assert trace.anchors is not None
        shifts = {}
        for row in last_rows(trace):
            task, few = trace.task[row], trace.right(row)
            others = rest[task].right if task in rest else None
            right = few if others is None else self.joined(task, few, others.numpy())
            trace.anchors.add(step=trace.step[row], learning=trace.learning[row], task=task, right=right)
            shifts[task] = float(right.mean() - few.mean())
        return shifts

    def joined(self, task: int, few: NDArray[np.bool_], others: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What was measured of all samples of a task, ascending, from its two parts."""
        order = torch.cat([self.small[task], self.rest[task]]).argsort().numpy()
        joined: NDArray[np.bool_] = np.concatenate([few, others])[order]
        return joined

    def state_dict(self, trace: Trace) -> LevelsState:
        """What a resumed evaluator continues from; the anchors so far follow from the trace."""
        assert trace.anchors is not None
        return {"small": list(self.small), "anchors": packed(trace.anchors)}

    def load_state_dict(
        self,
        state: LevelsState,
        chosen: Sequence[Tensor],
        trace: Trace,
        learned: Mapping[int, Sequence[int]],
    ) -> dict[int, float]:
        """Continue from there.

        Args:
            state: What was saved.
            chosen: For each task, the samples that are asked at anchors.
            trace: The evaluations so far, which get their anchors.
            learned: The tasks for each value of `learning`.

        Returns:
            For each task, what all samples added to the accuracy of the small part at the last anchor.
        """
        trace.anchors = unpacked(state["anchors"])
        again = self._of(chosen, state["small"])
        self.small, self.rest = again.small, again.rest
        self.anchors = Anchors.after(trace, learned)
        return last_shifts(trace)


def last_rows(trace: Trace) -> list[int]:
    """The rows of the last evaluation of a trace."""
    first = len(trace)
    while first and trace.step[first - 1] == trace.step[-1]:
        first -= 1
    return list(range(first, len(trace)))


def refuse_other_levels(state: LevelsState | None, levels: TwoLevels | None) -> None:
    """Refuse to continue a record of other levels of samples.

    Example:
        >>> refuse_other_levels(None, None)
        >>> refuse_other_levels(None, TwoLevels([], []))
        Traceback (most recent call last):
        engram.core.errors.InputError: the evaluations so far asked all samples every time: continue ...
    """
    had = None if state is None else [len(rows) for rows in state["small"]]
    has = None if levels is None else [len(rows) for rows in levels.small]
    if had != has:
        words = "asked all samples every time" if had is None else "have two levels of samples"
        if had is not None and has is not None:
            words = f"asked {max(had)} samples of each task at every evaluation"
        raise InputError(f"the evaluations so far {words}: continue with the same samples=, or begin again")
