"""A sweep from Python: the same words as in `sweep.toml`, run in two processes at a time."""

import tempfile
from pathlib import Path

from engram.executors.sweep import run_sweep
from engram.protocols.sweep_file import expand


def main(folder: Path) -> None:
    """Replay with two sizes of memory against fine-tuning, two seeds each."""
    plan = expand(
        {
            "scenario": "split-digits",
            "method": ["finetune", "er"],
            "set": {"er": {"memory": [20, 200]}},
            "updates": 20,
            "subset": 50,
            "seeds": 2,
        }
    )
    # What is in the folder already is not run again; a run that fails is a row like the others.
    for row in run_sweep(plan.experiments, folder, jobs=2):
        memory = row.experiment.settings.get("memory", "no")
        said = "failed" if row.result is None else f"ACC {100 * row.result['metrics']['ACC']:5.2f} %"
        print(f"{row.experiment.method:8} {memory:>3} samples, seed {row.experiment.seed}: {said}")


# Workers are new interpreters that read this file too: without the guard each would start a sweep of its own.
if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
