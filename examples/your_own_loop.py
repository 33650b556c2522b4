"""Watch your own PyTorch training loop: three added lines, and training stays the same to the bit."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import engram
from engram.datasets.stream import Stream
from engram.scenarios import split


def main(folder: Path) -> None:
    """Train on five pairs of digits, one after the other, and record what was remembered."""
    stream = Stream(split("digits", setting="class"))
    names = [f"{2 * task} and {2 * task + 1}" for task in range(5)]
    test_sets = {name: stream.test(task) for task, name in enumerate(names)}
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    watch = engram.Evaluator(test_sets, every=1, seed=0)
    for task, name in enumerate(names):
        data = stream.phase(task)
        for batch in data.batches(torch.randperm(len(data)), 16):
            loss = nn.functional.cross_entropy(net(batch.x), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch(net, learning=name)

    for name in ("ACC", "min-ACC", "WC-ACC", "FORG"):
        print(f"{name:8} {100 * watch.metrics()[name]:6.2f} %")
    watch.save(folder / "mine")
    engram.load(folder).report(folder / "report.html")
    print(folder / "report.html")


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
