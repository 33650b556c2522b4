"""Start from pretrained weights in your own network, and measure what is kept (Chen et al., 2023)."""

import math
import tempfile
from pathlib import Path

import torch
from torch import nn

import engram
from engram.core.jsons import JsonObject
from engram.datasets.stream import Stream
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.forward_transfer import forward_transfer
from engram.record.experiment import TransferSpec
from engram.scenarios import split


# Any module will do: `head` names its last linear layer, which gets one unit per class of the benchmark.
@engram.model("tanh-net", head="3")
def tanh_net(shape: tuple[int, ...], n_units: int) -> nn.Module:
    """One hidden layer of 64 tanh units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Tanh(), nn.Linear(64, n_units))


def pretrain(file: Path) -> None:
    """Train on all ten digits at once, and save the state dict."""
    torch.manual_seed(0)
    data = Stream(split("digits", 10, setting="class")).phase(0)
    net = tanh_net((1, 8, 8), 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        for batch in data.batches(torch.randperm(len(data)), 16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(batch.x), batch.y).backward()
            optimizer.step()
    torch.save(net.state_dict(), file)


def main(folder: Path) -> None:
    """Learn the digits again in pairs, and evaluate the pretrained head after each pair."""
    weights = folder / "digits.pt"
    pretrain(weights)
    options: JsonObject = {"setting": "task", "model": "tanh-net", "weights": weights, "lr": 0.1}
    groups = {
        method: [engram.experiment("split-digits", method, **options, evaluation={"every": 1000})]
        for method in ("finetune", "lp-ft")
    }
    plan = forward_transfer(groups, probe=TransferSpec(shots=(5,)), on="test", upstream="digits")
    for method, transfer in drive(plan, Serial(Where(out=folder))).methods.items():
        numbers = transfer.as_json()
        print(
            f"{method}: knew {numbers['upstream start']:.1%} of all digits, now {numbers['upstream']:.1%}; "
            f"5-shot transfer {numbers['AvgFwt']['5']:.1%}"
        )


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
