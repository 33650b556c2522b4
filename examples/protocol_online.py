"""One pass over each task, and metrics relative to chance (Michel et al., 2023)."""

import tempfile
from pathlib import Path

import engram
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.online import online


def main(folder: Path) -> None:
    """Accuracy falls from task to task because there are more classes; RAA corrects for that."""
    for method in ("finetune", "er"):
        base = engram.experiment("split-digits", method, batch_size=10, evaluation={"every": 1000})
        outcome = drive(online([base]), Serial(Where(out=folder)))
        for name in ("AA", "RAA"):
            print(f"{method:9} {name:4}", " ".join(f"{value:.2f}" for value in outcome.curves[name]))


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
