"""Choose a network on the first task only, then learn the second (Pfülb & Gepperth, 2019)."""

import tempfile
from pathlib import Path

import engram
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.causal import CausalOptions, causal
from engram.protocols.drive import drive


def main(folder: Path) -> None:
    """Five digits, then the other five: fine-tuning with two widths and two rates for the second task."""
    base = engram.experiment("slt-D5-5a-digits", "finetune", epochs=2, lr=0.01, evaluation={"every": 3})
    options = CausalOptions(later_rates=(0.01, 0.001), choose_by="new")
    plan = causal([base], {"hidden": [(32,), (64, 64)]}, options=options)
    outcome = drive(plan, Serial(Where(out=folder)))
    print(f"chosen: {outcome.choice}")
    print(
        f"on both tasks: best {outcome.best:.2f}, last {outcome.last:.2f}, "
        f"learned together {outcome.baseline:.2f}"
    )
    print(f"Ω_all {outcome.omega_all:.2f}; {'forgotten' if outcome.forgets else 'not forgotten'}")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
