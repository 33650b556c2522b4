"""Choose a network on the first task alone, and see what the second task leaves of it (004, Algorithm 1)."""

import tempfile
from pathlib import Path

from engram.engine.recipe import experiment
from engram.executors.serial import Serial
from engram.protocols.causal import CausalOptions, causal
from engram.protocols.drive import drive


def main(folder: Path) -> None:
    """Five digits, then the other five: fine-tuning with two widths and two rates for the second task."""
    base = experiment("slt-D5-5a-digits", "finetune", epochs=2, lr=0.01, evaluation={"every": 3})
    options = CausalOptions(later_rates=(0.01, 0.001), choose_by="new")
    found = drive(causal([base], {"hidden": [(32,), (64, 64)]}, options=options), Serial(folder))
    print(f"chosen: {found.choice}")
    print(
        f"on both tasks: best {found.best:.2f}, last {found.last:.2f}, learned together {found.baseline:.2f}"
    )
    print(f"Ω_all {found.omega_all:.2f}; {'forgotten' if found.forgets else 'not forgotten'}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
