"""One pass over each task, and metrics that compare few classes with many (001)."""

import tempfile
from pathlib import Path

from engram.engine.recipe import experiment
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.online import online


def main(folder: Path) -> None:
    """Accuracy falls from task to task because the question grows harder; RAA takes that out."""
    for method in ("finetune", "er"):
        bases = [experiment("split-digits", method, batch_size=10, evaluation={"every": 1000})]
        found = drive(online(bases), Serial(folder))
        for name in ("AA", "RAA"):
            print(f"{method:9} {name:4}", " ".join(f"{value:.2f}" for value in found.curves[name]))


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
