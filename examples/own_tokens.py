"""Learn texts of your own, as tokens, with rows as Hugging Face's data sets have them."""

import tempfile
from pathlib import Path

import numpy as np

import engram
from engram.datasets import torch_dataset


def texts(seed: int) -> list[dict[str, object]]:
    """Rows of eight tokens; two of them give the topic away."""
    draw = np.random.default_rng(seed)
    rows: list[dict[str, object]] = []
    for topic in np.arange(200) % 4:
        tokens = draw.integers(10, 60, 8)
        tokens[draw.permutation(8)[:2]] = topic
        rows.append({"input_ids": tokens.tolist(), "label": int(topic)})
    return rows


def main(folder: Path) -> None:
    name = torch_dataset("topics", {"train": texts(0), "test": texts(1)})
    for method in ("finetune", "er"):
        run = engram.run(f"split:{name}", method, setting="class", epochs=10, out=folder / "runs")
        print(f"{method}: accuracy {run.metrics['ACC']:.2f} with {run.experiment.model}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
