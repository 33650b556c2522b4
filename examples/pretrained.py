"""Start from weights that exist already, in a network of one's own, and see how much is kept (003)."""

import math
import tempfile
from pathlib import Path

import torch
from torch import nn

import engram
from engram.record.experiment import TransferSpec
from engram.engine.loop import run
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.forward_transfer import forward_transfer


# Any module will do: its last linear layer is named, and gets as many units as a benchmark has classes.
@engram.model("tanh-net", head="3")
def tanh_net(shape: tuple[int, ...], n_units: int) -> nn.Module:
    """One hidden layer of 64 tanh units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Tanh(), nn.Linear(64, n_units))


def main(folder: Path) -> None:
    """Pretrain on all digits, learn them again pair by pair, and ask the old head what is left."""
    # Somebody's pretraining: here, all digits at once. Any state dict of the module would do.
    pretraining = engram.experiment("split-digits", "offline", setting="class", model="tanh-net", updates=60)
    torch.save(run(pretraining).method.predictor().state_dict(), folder / "digits.pt")
    groups = {
        method: [
            engram.experiment(
                "split-digits",
                method,
                setting="task",
                model="tanh-net",
                weights=folder / "digits.pt",
                lr=0.1,
                evaluation={"every": 1000},
            )
        ]
        for method in ("finetune", "lp-ft")
    }
    plan = forward_transfer(groups, probe=TransferSpec(shots=(5,)), on="test", upstream="digits")
    for method, found in drive(plan, Serial(folder)).methods.items():
        numbers = found.as_json()
        print(
            f"{method}: knew {numbers['upstream start']:.1%} of all digits, now {numbers['upstream']:.1%}; "
            f"5-shot transfer {numbers['AvgFwt']['5']:.1%}"
        )


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
