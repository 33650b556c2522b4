"""Read a run's protocol card, and stop a method that looks at test data."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch.nn import functional

import engram
from engram.datasets.stream import Stream
from engram.scenarios import split


@engram.method("peek")
@final
@dataclass(kw_only=True, eq=False)
class Peek(engram.Learner):
    """Fine-tuning that ends each task with an update on the test samples of the first."""

    def end_task(self, batches: Iterable[engram.Batch]) -> None:
        """Learn from the samples that the evaluation will use."""
        test = Stream(split("digits", setting="class")).test(0)
        self.optimizer.zero_grad()
        functional.cross_entropy(self.network(test.rows(torch.arange(len(test)))), test.y).backward()
        self.optimizer.step()


def main(folder: Path) -> None:
    """Audit two methods that read only training data, and one that reads test data."""
    for method in ("ewc", "er", "peek"):
        card = engram.run("split-digits", method, epochs=1, evaluation={"every": 100}).card
        assert card is not None
        print(method)
        for constraint in card.constraints:
            print(f"  {constraint.name}: {constraint.verdict}")
        print(f"  test data read by the learner: {'yes' if card.fact('test data').answer else 'no'}")
    try:
        engram.run("split-digits", "peek", epochs=1, strict=True)
    except engram.InputError as error:
        print(f"stopped: {error}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
