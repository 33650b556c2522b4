"""Where a run is in its stream, and the batches that come next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from engram.core.values import Batch
from engram.datasets.stream import PhaseData
from engram.methods.state import State


class Shown(NamedTuple):
    """A batch to learn from, and its number in its pass over the data, from 0."""

    batch: Batch
    epoch_step: int


@dataclass(slots=True)
class Place:
    """How far a run has come, with the state of the generator that is needed to resume within a pass.

    Attributes:
        order: Draws the order of the data in every pass.
        pass_order: The state of that generator when the pass began.
        phase: The phase being learned.
        begun: Whether the method was told that it began.
        step: Updates done in all.
        step_in_phase: Updates done in this phase.
        step_in_pass: Updates done in this pass over the phase's data.
    """

    order: torch.Generator
    pass_order: torch.Tensor
    phase: int = 0
    begun: bool = False
    step: int = 0
    step_in_phase: int = 0
    step_in_pass: int = 0

    @classmethod
    def start(cls, seed: int) -> Place:
        """The start of a stream whose order is drawn with this seed."""
        order = torch.Generator().manual_seed(seed)
        return cls(order, order.get_state())

    def batches(self, data: PhaseData, *, size: int, steps: int) -> Iterator[Shown]:
        """The remaining batches of a phase with `steps` updates, reshuffled in every pass."""
        while left := steps - self.step_in_phase:
            self.order.set_state(self.pass_order)
            shuffled = torch.randperm(len(data), generator=self.order)
            rest = shuffled[self.step_in_pass * size :][: left * size]
            for batch in data.batches(rest, size):
                self.step_in_phase += 1
                self.step_in_pass += 1
                epoch_step = self.step_in_pass - 1
                if self.step_in_pass * size >= len(data):
                    # The pass ends with this batch: a snapshot taken after it starts the next pass.
                    self.step_in_pass, self.pass_order = 0, self.order.get_state()
                yield Shown(batch, epoch_step)

    def next_phase(self) -> None:
        """Move on to the next phase."""
        self.phase += 1
        self.begun = False
        self.step_in_phase = self.step_in_pass = 0
        self.pass_order = self.order.get_state()

    def state_dict(self) -> State:
        """The place as tensors and plain values."""
        return {
            "order": self.order.get_state(),
            "pass_order": self.pass_order,
            "phase": self.phase,
            "begun": self.begun,
            "step": self.step,
            "step_in_phase": self.step_in_phase,
            "step_in_pass": self.step_in_pass,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a state."""
        self.order.set_state(state["order"])
        self.pass_order = state["pass_order"]
        self.phase, self.begun, self.step = state["phase"], state["begun"], state["step"]
        self.step_in_phase, self.step_in_pass = state["step_in_phase"], state["step_in_pass"]
