"""A sweep from Python: the same words as in `sweep.toml`, two runs in parallel."""

import tempfile
from pathlib import Path

import engram

SWEEP = {
    "scenario": "split-digits",
    "method": ["finetune", "er"],
    "set": {"er": {"memory": [20, 200]}},
    "updates": 20,
    "subset": 50,
    "seeds": 2,
}


def main(folder: Path) -> None:
    """Replay with two sizes of memory against fine-tuning, two seeds each."""
    # Runs that are already in the folder are not repeated. A run that fails says why in `failure`.
    for run in engram.sweep(SWEEP, out=folder, jobs=2):
        memory = run.experiment.settings.get("memory", "no")
        outcome = f"ACC {100 * run.metric('ACC'):5.2f} %" if run.failure is None else run.failure.reason
        print(f"{run.experiment.method:8} {memory:>3} samples, seed {run.experiment.seed}: {outcome}")


# Worker processes import this file as well: without the guard each of them would start a sweep of its own.
if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
