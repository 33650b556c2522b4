"""Learn a queue of tasks with several strengths, and compare best and worst (Hsu et al., 2018)."""

import tempfile
from pathlib import Path

import engram
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.queue import queue


def main(folder: Path) -> None:
    """EWC on five tasks; `queue-002` with its 78 tasks works the same way."""
    base = engram.experiment("split-digits", "ewc", setting="task", epochs=2, evaluation={"every": 1000})
    outcome = drive(queue([base], {"strength": [1, 30, 1000]}, every=2), Serial(Where(out=folder)))
    print("after tasks ", *outcome.tasks)
    for name, place in (("best", outcome.best), ("worst", outcome.worst)):
        averages = " ".join(f"{value:.2f}" for value in outcome.averages[place])
        print(f"{name:5} strength {outcome.candidates[place].fields['strength']:g}: {averages}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
