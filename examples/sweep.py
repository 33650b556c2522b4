"""A sweep from Python, with the same options as `sweep.toml`: two runs in parallel."""

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
    # Runs that are already in the folder are not repeated.
    runs = engram.sweep(SWEEP, out=folder, jobs=2)
    for run in runs:
        memory = run.experiment.settings.get("memory", "no")
        print(f"{run.method:8} {memory:>3} samples, seed {run.seed}: ACC {run.metric('ACC'):6.2%}")
    for run in runs.incomplete:
        print(f"{run.label}, seed {run.seed}: {run.failure}")


# Worker processes import this file as well: without this guard, each would start its own sweep.
if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
