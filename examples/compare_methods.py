"""Compare methods on the same seeds: a ranking, and which differences are significant."""

import tempfile
from pathlib import Path

import engram


def main(folder: Path) -> None:
    """Run three methods on seven seeds of five pairs of digits, briefly, and compare them."""
    for method in ("finetune", "ewc", "er"):
        for seed in range(7):
            run = engram.run("split-digits", method, updates=15, evaluation={"every": 15}, seed=seed)
            run.save(folder / f"{method}-{seed}")

    ranking = engram.load(folder).compare("ACC").rankings["ACC"]
    for place in ranking.standings:
        low, high = place.over.ci95
        print(f"{place.name:9} {100 * place.over.mean:6.2f} %  ({100 * low:.2f} to {100 * high:.2f})")
    for pair in ranking.pairs:
        verdict = "significant" if pair.told_apart else f"open; {pair.more_seeds} more seeds might decide"
        print(f"{pair.first} − {pair.second}: {100 * pair.difference:+.2f} %, p {pair.p_holm:.3f}, {verdict}")
    print("cannot be told apart:", " | ".join(", ".join(group) for group in ranking.groups))


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))
