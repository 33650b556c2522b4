"""What a zoom shows: how each task fared in the stretch, and the command that looks again at a dip."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from engram.core.errors import InputError
from engram.core.folder import finite
from engram.core.jsons import JsonObject
from engram.core.words import counted, every
from engram.metrics.arrays import Label
from engram.metrics.gaps import StabilityGap
from engram.record.run import Run
from engram.record.zoom import PARTS, Zoom

_LEAST: Final = 10
"""A stretch around a dip has at least so many updates after the switch, if the visit has them."""


@dataclass(frozen=True, slots=True)
class Fall:
    """The deepest fall of a task in a stretch, while it was not being learned.

    Attributes:
        high: The highest accuracy before it.
        low: The lowest after that.
        step: The first update with the lowest accuracy.
        seen: The lowest accuracy of the fall that the run saw at its own evaluations, and when; None if it
            saw none.
    """

    high: float
    low: float
    step: int
    seen: tuple[float, int] | None = None


@dataclass(frozen=True, slots=True)
class TaskStretch:
    """How one task fared in the stretch.

    Attributes:
        task: The task, as a column of the zoom's curve.
        samples: How many samples it was evaluated on.
        before: Its first accuracy in the stretch.
        lowest: Its lowest.
        lowest_step: The first update with that accuracy.
        after: Its last.
        run_lowest: The lowest that the run saw at its own evaluations in the stretch; None if it saw none.
        run_lowest_step: The first update at which it saw that.
        fall: Its deepest fall while it was not being learned; None if it did not fall.
    """

    task: int
    samples: int
    before: float
    lowest: float
    lowest_step: int
    after: float
    run_lowest: float | None = None
    run_lowest_step: int | None = None
    fall: Fall | None = None


@dataclass(frozen=True, eq=False)
class Closely:
    """A stretch of a run, evaluated closely.

    Attributes:
        zoom: What was looked at.
        run: The evaluations of the stretch.
        whole: The run that the stretch is of.
        tasks: How each task fared that was evaluated in the stretch.
    """

    zoom: Zoom
    run: Run
    whole: Run
    tasks: tuple[TaskStretch, ...]

    @property
    def deepest(self) -> TaskStretch | None:
        """The task that fell most while it was not being learned; None if none fell."""
        fell = [(row.fall.high - row.fall.low, row) for row in self.tasks if row.fall is not None]
        return max(fell, key=lambda pair: pair[0])[1] if fell else None

    def summary(self) -> list[str]:
        """The findings in sentences, one per line."""
        zoom, run = self.zoom, self.run
        start = f"the checkpoint at update {zoom.start:,}" if zoom.start else "the beginning"
        samples = max((row.samples for row in self.tasks), default=0)
        lines = [
            f"learned {counted(zoom.learned, 'update')} again from {start}, and evaluated updates "
            f"{zoom.first:,} to {zoom.last:,}, {every(zoom.every, 'update')}, on {self.on}, "
            f"{samples:,} samples per task at most",
            zoom.verdict(),
        ]
        row = self.deepest
        if row is not None and row.fall is not None:
            fall, saw = row.fall, ""
            if fall.seen is not None:
                saw = f"; the run itself saw {_pct(fall.seen[0])} (at update {fall.seen[1]:,})"
            lines.append(
                f"{run.task_name(row.task)} fell from {_pct(fall.high)} to {_pct(fall.low)} at update "
                f"{fall.step:,}, and had {_pct(row.after)} at update {zoom.last:,}{saw}"
            )
        return lines

    @property
    def on(self) -> str:
        """What it was evaluated on, in words."""
        if self.zoom.on not in PARTS:
            return self.zoom.on
        samples = "all samples" if self.zoom.samples == "all" else "the run's own samples"
        return f"{samples} of the {self.zoom.on} data"

    def as_json(self) -> JsonObject:
        """Everything, as one JSON object."""
        facts = dict(self.run.description["zoom"])
        return {
            **finite(facts),
            "same": self.zoom.compared.same,
            "learned": self.zoom.learned,
            "evaluations": self.run.evaluations,
            "tasks": [
                {
                    "task": self.run.task_name(row.task),
                    "samples": row.samples,
                    "before": row.before,
                    "lowest": row.lowest,
                    "lowest_step": row.lowest_step,
                    "after": row.after,
                    "run_lowest": row.run_lowest,
                    "run_lowest_step": row.run_lowest_step,
                    "fall": None if row.fall is None else asdict(row.fall),
                }
                for row in self.tasks
            ],
            "metrics": finite(dict(self.run.stored)),
        }


def look_closely(run: Run, whole: Run) -> Closely:
    """What a zoom shows of a run.

    Args:
        run: The zoom.
        whole: The run that it is of.

    Raises:
        InputError: It is no zoom, or one of another run.
    """
    zoom = Zoom.of(run)
    if zoom is None:
        raise InputError(f"the run {run.folder or run.id} is no zoom: make one with engram zoom")
    if zoom.run != whole.id:
        raise InputError(f"the zoom {run.folder or run.id} is of the run {zoom.run}, not of {whole.id}")
    curve, rows = run.curve, []
    for column in range(curve.accuracy.shape[1]):
        known = (curve.step >= zoom.first) & ~np.isnan(curve.accuracy[:, column])
        if not known.any():
            continue
        steps, values = curve.step[known], curve.accuracy[known, column]
        assert curve.total is not None
        lowest = int(values.argmin())
        seen = _seen_by(whole, zoom, curve.tasks[column])
        rows.append(
            TaskStretch(
                column,
                int(curve.total[known, column][0]),
                float(values[0]),
                float(values[lowest]),
                int(steps[lowest]),
                float(values[-1]),
                run_lowest=None if seen is None else seen[0],
                run_lowest_step=None if seen is None else seen[1],
                fall=_fall(run, whole, zoom, column),
            )
        )
    return Closely(zoom, run, whole, tuple(rows))


def _fall(run: Run, whole: Run, zoom: Zoom, column: int) -> Fall | None:
    """The deepest fall of a task below an earlier accuracy, at evaluations while it was not being learned."""
    curve = run.curve
    known = (curve.step >= zoom.first) & ~np.isnan(curve.accuracy[:, column])
    steps, values = curve.step[known], curve.accuracy[known, column]
    below = np.maximum.accumulate(values) - values
    below[curve.being_learned()[known, column]] = 0
    lowest = int(below.argmax())
    if below[lowest] <= 0:
        return None
    highest = int(values[: lowest + 1].argmax())
    seen = _seen_by(whole, zoom, curve.tasks[column], after=int(steps[highest]))
    return Fall(float(values[highest]), float(values[lowest]), int(steps[lowest]), seen)


def _seen_by(whole: Run, zoom: Zoom, task: Label, *, after: int | None = None) -> tuple[float, int] | None:
    """The lowest accuracy of a task that the run saw in the stretch, and when; None if that says nothing.

    Args:
        whole: The run.
        zoom: The stretch.
        task: The task.
        after: Only evaluations after this update, while the task was not being learned.
    """
    evaluation = whole.description.get("evaluation")
    on = evaluation.get("on", "test") if isinstance(evaluation, Mapping) else "test"
    curve = whole.curve
    if zoom.on != on or task not in curve.tasks:
        return None
    column = curve.tasks.index(task)
    inside = (curve.step >= zoom.first) & (curve.step <= zoom.last) & ~np.isnan(curve.accuracy[:, column])
    if after is not None:
        inside &= (curve.step > after) & ~curve.being_learned()[:, column]
    if not inside.any():
        return None
    place = int(np.flatnonzero(inside)[curve.accuracy[inside, column].argmin()])
    return float(curve.accuracy[place, column]), int(curve.step[place])


def zoom_command(run: Run, gap: StabilityGap) -> str | None:
    """The command that looks again at a dip of a run; None where that would show nothing new.

    It does where the run was not evaluated after every update, or not on all samples.

    Example:
        >>> run = Run(description={"id": "a", "scenario": {}, "evaluation": {"every": 10}}, finished=True)
        >>> from pathlib import Path
        >>> from dataclasses import replace
        >>> gap = StabilityGap(0, 1, 100, 200, 0.9, 0.5, 110, 0.85, 1.0, None)
        >>> zoom_command(replace(run, folder=Path("runs/a")), gap)
        'engram zoom runs/a --steps 100:130'
    """
    evaluation = run.description.get("evaluation")
    if "scenario" not in run.description or not isinstance(evaluation, Mapping) or run.folder is None:
        return None
    thinned = evaluation.get("every", 1) > 1 or evaluation.get("points") or evaluation.get("per_epoch")
    part = run.redrawn or _on_a_part(run, gap.task)
    if not thinned and not part:
        return None
    words = ["engram", "zoom", str(run.folder), "--steps", "{}:{}".format(*stretch_around(gap))]
    return shlex.join([*words, *(["--samples", "all"] if part else [])])


def _on_a_part(run: Run, column: int) -> bool:
    """Whether a task was evaluated on fewer samples than there are."""
    if run.sizes is None:
        return False
    curve = run.curve
    name, totals = curve.tasks[column], None if curve.total is None else curve.total[:, column]
    if totals is None or not isinstance(name, int) or name >= len(run.sizes):
        return False
    return bool(np.nanmin(totals) < run.sizes[name])


def stretch_around(gap: StabilityGap) -> tuple[int, int]:
    """The updates around a dip: from the switch until the task is back, or three times as far as its lowest.

    Example:
        >>> stretch_around(StabilityGap(0, 1, 100, 200, 0.9, 0.5, 110, 0.85, 1.0, 125))
        (100, 125)
    """
    last = gap.recovered_step
    if last is None or last <= gap.lowest_step:
        last = gap.start + 3 * (gap.lowest_step - gap.start)
    return gap.start, min(gap.end, max(last, gap.start + _LEAST))


def _pct(value: float) -> str:
    return f"{100 * value:.1f} %"
