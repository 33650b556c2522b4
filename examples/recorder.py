"""Record a model that is not a network: a perceptron in NumPy, updated week by week. torch is not needed."""

import tempfile
from pathlib import Path

import numpy as np

import engram

CLASSES = ("cat", "dog", "cow", "hen")
WEEKS = (("cat", "dog"), ("cow", "hen"))


def draw_samples(names: tuple[str, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around one centre per class, and the names of their classes."""
    draw = np.random.default_rng(seed)
    labels = draw.choice(names, 300)
    angles = np.array([CLASSES.index(label) for label in labels]) * np.pi / 2
    return np.stack([np.cos(angles), np.sin(angles)], axis=1) + draw.normal(0, 0.4, (300, 2)), labels


def main(folder: Path) -> None:
    """Learn two classes, then two others, and record what was remembered."""
    tests = {f"week {week}": draw_samples(names, 10 + week) for week, names in enumerate(WEEKS)}
    weights, step = np.zeros((len(CLASSES), 2)), 0
    recorder = engram.Recorder(list(tests))
    for week, names in enumerate(WEEKS):
        for x, label in zip(*draw_samples(names, week), strict=True):
            answer = int(np.argmax(weights @ x))
            weights[CLASSES.index(label)] += x
            weights[answer] -= x
            step += 1
            if step % 50:
                continue
            for name, (points, labels) in list(tests.items())[: week + 1]:
                answers = np.array(CLASSES)[np.argmax(points @ weights.T, axis=1)]
                recorder.record(
                    step,
                    name,
                    answers == labels,
                    learning=f"week {week}",
                    ids=[f"{name}/{number}" for number in range(len(labels))],
                    labels=labels,
                    answers=answers,
                )
    for name in ("ACC", "FORG", "min-ACC"):
        print(f"{name:8} {100 * recorder.metrics()[name]:6.2f} %")
    run = recorder.save(folder / "perceptron")
    classes, counts = run.confusion(task=0)
    print(f"taken for {', '.join(map(str, classes))}:", *counts.tolist())
    print(run.report(folder / "report.html"))


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
