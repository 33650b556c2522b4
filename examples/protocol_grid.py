"""Choose a learning rate and the weight of the memory on validation data, over two seeds."""

import tempfile
from pathlib import Path

import engram
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.grid import grid


def main(folder: Path) -> None:
    """Try four candidates of experience replay on Split-Digits; the whole table is kept."""
    bases = [
        engram.experiment("split-digits", "er", epochs=1, evaluation={"every": 1000}, seed=seed)
        for seed in (0, 1)
    ]
    fields = {"lr": [0.1, 0.01], "weight": [0.3, 0.5]}
    outcome = drive(grid(bases, fields, metric="ACC", on="validation"), Serial(Where(out=folder)))
    for candidate in outcome.candidates:
        print(f"{candidate.fields}: {100 * candidate.score:.1f} % on validation data")
    test = [run.metric("ACC") for run in outcome.results]
    print(f"chosen: {outcome.choice}, {100 * sum(test) / len(test):.1f} % on test data")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
