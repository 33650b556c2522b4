"""How long a run took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long a run took: learning, evaluating, and both together."""

    train: float = 0.0
    evaluate: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.train + self.evaluate
