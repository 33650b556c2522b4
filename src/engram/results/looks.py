"""The log of comparisons in a folder of runs: who adds seeds after a look is told what that does to tests.

`engram compare` writes it as `compared.json` beside the runs. A log that cannot be read or written is
ignored: it never stands in the way of a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from engram.core.errors import InputError
from engram.core.files import read_json, write_json
from engram.core.folder import looks_like_run
from engram.core.jsons import Json, JsonObject
from engram.results.store import is_remote

LOG: Final = "compared.json"

_MOST: Final = 1000
"""The most looks that a log keeps; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Look:
    """One comparison that could have found a difference.

    Attributes:
        experiments: What identifies the experiments that were compared.
        seeds: The seeds that they share.
        metrics: The metrics that were tested.
        test: The test.
        baseline: The experiment that all others were compared with; empty if all pairs were.
        plan: The numbers of seeds at which the comparison was planned to be looked at; empty without a plan.
    """

    experiments: tuple[str, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    test: str
    baseline: str = ""
    plan: tuple[int, ...] = ()

    def as_json(self) -> JsonObject:
        """The look as JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }

    @classmethod
    def of_json(cls, value: Json) -> Look | None:
        """The look that an entry of a log describes; None where it describes none.

        Example:
            >>> Look.of_json({"experiments": ["a", "b"], "seeds": [0], "metrics": ["ACC"], "test": "t"}).seeds
            (0,)
            >>> Look.of_json({"seeds": "all"}) is None
            True
        """
        if not isinstance(value, Mapping):
            return None
        lists = [value.get(name, []) for name in ("experiments", "seeds", "metrics", "plan")]
        if not all(isinstance(entries, list) for entries in lists):
            return None
        experiments, seeds, metrics, plan = lists
        if not all(isinstance(number, int) for number in (*seeds, *plan)):
            return None
        return cls(
            tuple(map(str, experiments)),
            tuple(seeds),
            tuple(map(str, metrics)),
            str(value.get("test", "")),
            str(value.get("baseline", "")),
            tuple(plan),
        )

    def pairs(self) -> set[frozenset[str]]:
        """The pairs of experiments that were tested."""
        if self.baseline:
            return {frozenset((self.baseline, other)) for other in self.experiments if other != self.baseline}
        return {frozenset(pair) for pair in combinations(self.experiments, 2)}


def extended(looks: Iterable[Look], now: Look) -> tuple[Look, ...]:
    """The earlier looks that a comparison extends: at a common pair, metric and seed, with fewer seeds.

    Looks that belong to the same plan are not among them.

    Example:
        >>> before = Look(("a", "b"), (0, 1, 2, 3, 4, 5), ("ACC",), "sign-flip")
        >>> after = Look(("a", "b", "c"), tuple(range(12)), ("ACC", "FORG"), "sign-flip")
        >>> extended([before], after) == (before,), extended([after], before)
        (True, ())
    """
    pairs, seeds, metrics = now.pairs(), set(now.seeds), set(now.metrics)
    return tuple(
        look
        for look in looks
        if len(look.seeds) < len(seeds)
        and not seeds.isdisjoint(look.seeds)
        and not metrics.isdisjoint(look.metrics)
        and not (now.plan and look.plan == now.plan)
        and not pairs.isdisjoint(look.pairs())
    )


def log_folders(paths: Sequence[str | Path]) -> list[Path]:
    """The folders whose logs belong to some run folders or folders of runs; none for stores elsewhere."""
    places = [Path(path) for path in paths if not is_remote(path)]
    return list(dict.fromkeys(path.parent if looks_like_run(path) else path for path in places))


def read_looks(folders: Iterable[Path]) -> list[Look]:
    """The looks in the logs of some folders; none where there is no log or it cannot be read.

    Example:
        >>> read_looks([Path("nowhere")])
        []
    """
    looks = []
    for folder in folders:
        try:
            content = read_json(folder / LOG)
        except InputError:
            continue
        entries = content.get("looks") if isinstance(content, Mapping) else None
        looks += [Look.of_json(entry) for entry in entries] if isinstance(entries, list) else []
    return list(dict.fromkeys(look for look in looks if look is not None))


def record_look(folder: Path, look: Look) -> bool:
    """Add a look to the log of a folder, unless it is there; returns whether it is there now.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> record_look(folder, Look(("a", "b"), (0,), ("ACC",), "t")), len(read_looks([folder]))
        (True, 1)
    """
    looks = read_looks([folder])
    if look in looks:
        return True
    try:
        write_json(folder / LOG, {"looks": [kept.as_json() for kept in (*looks, look)[-_MOST:]]})
    except (InputError, OSError):
        return False
    return True
