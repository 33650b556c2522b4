"""Read a run's protocol card, and stop a method that peeks at test data."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch.nn import functional

import engram
from engram.core.errors import InputError
from engram.datasets.stream import Stream
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.results.card import constraint_lines
from engram.scenarios import split


@final
@dataclass(kw_only=True, eq=False)
class Peek(engram.Learner):
    """Fine-tuning that ends each task with an update on the test samples of the first."""

    def end_task(self, batches: Iterable[engram.Batch]) -> None:
        """Learn what it will be asked."""
        asked = Stream(split("digits", setting="class")).test(0)
        self.optimizer.zero_grad()
        functional.cross_entropy(self.network(asked.rows(torch.arange(len(asked)))), asked.y).backward()
        self.optimizer.step()


def main(folder: Path) -> None:
    """Two methods that play fair, and one that does not."""
    METHODS.add("peek", Peek)
    for method in ("ewc", "er", "peek"):
        card = run(experiment("split-digits", method, epochs=1, evaluation={"every": 100})).card
        assert card is not None
        print(method)
        for line in constraint_lines(card):
            print(f"  {line.name}: {line.answer}, {line.figure}")
        print(f"  test data read by the learner: {card.fact('test data').answer}")
    try:
        run(experiment("split-digits", "peek", epochs=1), strict=True)
    except InputError as error:
        print(f"stopped: {error}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
