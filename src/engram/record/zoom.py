"""What a zoom is: which stretch of which run it looks at, and whether that was learned to the same bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np

from engram.core.errors import Damaged
from engram.core.folder import versions as versions_here
from engram.core.jsons import JsonObject
from engram.core.trace import Trace
from engram.core.words import counted
from engram.record.run import Run

SAMPLES: Final = ("own", "all")
"""The samples that a zoom may look at: those that the run was evaluated on, or all."""

PARTS: Final = ("test", "train", "validation")
"""The parts of a run's own data."""

MEASURED: Final = ("min-ACC", "WC-ACC", "gap-depth", "gap-area", "gap-duration")
"""The metrics that say something about a stretch; all others need the whole run."""


@dataclass(slots=True)
class Compared:
    """How a stretch that was learned again compares with the run.

    Attributes:
        evaluations: At how many updates answers were compared.
        answers: How many answers were compared.
        different: How many of them differ.
        checkpoints: How many states were compared with checkpoints that the run kept.
        different_states: How many of them differ.
        first_different: The first update at which something differs; None if nothing does.
    """

    evaluations: int = 0
    answers: int = 0
    different: int = 0
    checkpoints: int = 0
    different_states: int = 0
    first_different: int | None = None

    @property
    def same(self) -> bool | None:
        """Whether everything that was compared is the same; None if there was nothing to compare."""
        if not self.answers and not self.checkpoints:
            return None
        return not self.different and not self.different_states

    def note_different(self, step: int) -> None:
        """Note an update at which something differs."""
        known = self.first_different
        self.first_different = step if known is None else min(step, known)

    def compare_answers(self, again: Trace, before: Trace, steps: Collection[int]) -> None:
        """Compare the answers of two traces at some updates, where they are on equally many samples.

        Example:
            >>> one, other = Trace(), Trace()
            >>> one.add(step=3, learning=0, task=0, right=np.array([True, True, False]))
            >>> other.add(step=3, learning=0, task=0, right=np.array([True, False, False]))
            >>> compared = Compared()
            >>> compared.compare_answers(one, other, {3})
            >>> compared.answers, compared.different, compared.first_different
            (3, 1, 3)
        """
        rows = {
            (step, task): row for row, (step, task) in enumerate(zip(again.step, again.task, strict=True))
        }
        compared = set()
        for row, (step, task) in enumerate(zip(before.step, before.task, strict=True)):
            other = rows.get((step, task)) if step in steps else None
            if other is None or again.total[other] != before.total[row] or not before.bits[row]:
                continue
            different = int(np.count_nonzero(again.right(other) != before.right(row)))
            compared.add(step)
            self.answers += before.total[row]
            self.different += different
            if different:
                self.note_different(step)
        self.evaluations += len(compared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoom:
    """A stretch of a run that was learned again and evaluated closely.

    Attributes:
        run: The id of the run.
        first: The first update of the stretch; 0 is before the first of the run.
        last: The last one.
        every: The updates between two evaluations.
        samples: `own` for the samples that the run was evaluated on, `all` for all of them.
        on: `test`, `train` or `validation` data of the run, or the name of a file of other samples.
        start: The update after which learning started; 0 for the beginning.
        compared: Whether it was learned to the same bits.
        versions: The versions that the run was made with.
    """

    run: str
    first: int
    last: int
    every: int = 1
    samples: str = "own"
    on: str = "test"
    start: int = 0
    compared: Compared = field(default_factory=Compared)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> Zoom | None:
        """What a run says of itself; None for one that is no zoom.

        Raises:
            Damaged: What it says cannot be read.
        """
        written = run.description.get("zoom")
        if written is None:
            return None
        try:
            known = {**written}
            compared = Compared(**known.pop("compared"))
            return cls(compared=compared, versions=dict(known.pop("versions")), **known)
        except (TypeError, KeyError, ValueError) as error:
            raise Damaged(
                f"the run {run.folder or run.id} is no zoom that this engram reads: {error}"
            ) from error

    @property
    def name(self) -> str:
        """The name of its folder among the zooms of a run.

        Example:
            >>> Zoom(run="a", first=3, last=9).name, Zoom(run="a", first=3, last=9, samples="all").name
            ('3-9', '3-9-all')
        """
        parts = [f"{self.first}-{self.last}"]
        parts += [f"every-{self.every}"] * (self.every > 1)
        parts += ["all"] * (self.samples == "all" and self.on in PARTS)
        parts += [f"on-{self.on}"] * (self.on != "test")
        return "-".join(parts)

    @property
    def learned(self) -> int:
        """How many updates were learned again."""
        return self.last - self.start

    @property
    def left_out(self) -> str:
        """Why metrics of whole runs are left out."""
        return f"needs the whole run: a zoom has only the updates {self.first} to {self.last}"

    def description(self, run: Run) -> JsonObject:
        """What `experiment.json` says of it."""
        return {
            "id": f"{run.id}-zoom-{self.name}",
            "label": f"{run.label}, updates {self.first:,} to {self.last:,}",
            "seed": run.seed,
            "tasks": run.task_names,
            "zoom": asdict(self),
        }

    def verdict(self) -> str:
        """Whether the run was learned to the same bits, in one sentence."""
        found, parts = self.compared, []
        if found.same is None:
            return "the run has no evaluation and no checkpoint in the stretch to compare with"
        if found.answers:
            parts.append(f"{counted(found.answers, 'answer')} of {counted(found.evaluations, 'evaluation')}")
        if found.checkpoints:
            parts.append(counted(found.checkpoints, "checkpoint"))
        if found.same:
            return f"the same bits as in the run: {' and '.join(parts)} compared"
        differing = [f"{found.different:,} of {counted(found.answers, 'answer')}"] * bool(found.different)
        if found.different_states:
            differing.append(f"{found.different_states:,} of {counted(found.checkpoints, 'checkpoint')}")
        return (
            f"not the same bits as in the run: {' and '.join(differing)} differ, from update "
            f"{found.first_different:,} on; {self._why()}"
        )

    def _why(self) -> str:
        """What may be the reason for other bits."""
        here = versions_here()
        others = [
            f"{name} {version} then and {here.get(name, 'none')} now"
            for name, version in self.versions.items()
            if here.get(name) != version
        ]
        causes = "another machine or another number of threads (--threads) may be the reason"
        return f"{', '.join(others)}, or {causes}" if others else causes
