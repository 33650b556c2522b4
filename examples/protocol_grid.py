"""Choose a learning rate and the weight of the memory on validation data, over two seeds."""

import tempfile
from pathlib import Path

from engram.engine.recipe import experiment
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.grid import grid


def main(folder: Path) -> None:
    """Four candidates of experience replay on Split-Digits; the whole table is kept."""
    bases = [experiment("split-digits", "er", epochs=1, evaluation={"every": 1000}, seed=s) for s in (0, 1)]
    fields = {"lr": [0.1, 0.01], "weight": [0.3, 0.5]}
    found = drive(grid(bases, fields, metric="ACC", on="validation"), Serial(folder))
    for candidate in found.candidates:
        print(f"{candidate.fields}: {100 * candidate.score:.1f} % on validation data")
    test = [result.metric("ACC") for result in found.results]
    print(f"chosen: {found.choice}, {100 * sum(test) / len(test):.1f} % on test data")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
