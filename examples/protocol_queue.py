"""A queue of tasks with several strengths: how far apart are the best and the worst? (002)"""

import tempfile
from pathlib import Path

from engram.engine.recipe import experiment
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.queue import queue


def main(folder: Path) -> None:
    """EWC on five tasks; `queue-002` with its 78 works the same way."""
    base = experiment("split-digits", "ewc", setting="task", epochs=2, evaluation={"every": 1000})
    found = drive(queue([base], {"strength": [1, 30, 1000]}, every=2), Serial(folder))
    print("after tasks ", *found.tasks)
    for name, place in (("best", found.best), ("worst", found.worst)):
        averages = " ".join(f"{value:.2f}" for value in found.averages[place])
        print(f"{name:5} strength {found.candidates[place].fields['strength']:g}: {averages}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
