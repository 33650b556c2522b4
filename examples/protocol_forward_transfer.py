"""Correlate forgetting with transfer to the next task (Chen et al., 2023)."""

import tempfile
from pathlib import Path

import engram
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.forward_transfer import forward_transfer
from engram.record.experiment import TransferSpec


def main(folder: Path) -> None:
    """Probe three methods after every task with a few samples per class of the next one."""
    groups = {
        method: [
            engram.experiment(
                "split-digits", method, setting="task", epochs=1, evaluation={"every": 1000}, seed=seed
            )
            for seed in (0, 1)
        ]
        for method in ("finetune", "er", "independent")
    }
    plan = forward_transfer(groups, probe=TransferSpec(shots=(5, 20)))
    outcome = drive(plan, Serial(Where(out=folder)))
    for name, method in outcome.methods.items():
        run = method.runs[0]
        print(f"{name:12} AvgFwt 5 {run.linear[5]:.2f}  AvgFDiv {run.diversity:.1f}  {run.matrix}")
    correlation = outcome.correlations["AvgFgt"][5]
    print(f"Spearman's ρ of AvgFgt and AvgFwt: {correlation.rho:.2f} (p = {correlation.p:.2f})")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
