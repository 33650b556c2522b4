"""The deepest dip of a run, taken apart: when, what fell, what it was taken for, and how it came back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.jsons import JsonObject
from engram.metrics.arrays import Mask
from engram.metrics.gaps import TOLERANCE, StabilityGap, stability_gaps
from engram.metrics.sample_curve import SampleCurve
from engram.record.run import Run
from engram.record.samples import ID, LABEL
from engram.record.tables import ProbeKey, ProbeSeries
from engram.results.moments import samples_of
from engram.results.zoom import zoom_command

NO_ANSWERS: Final = "what they were taken for was not recorded: run with --answers (answers=True)"
NO_LABELS: Final = "the classes of the samples were not recorded: run it again, or record labels"
NO_PROBES: Final = "losses and gradient norms were not recorded: run with --losses --gradients"


@dataclass(frozen=True, slots=True)
class ClassFall:
    """How one class fared in the dip: its samples, and how many were right before, at the lowest, after."""

    label: str
    samples: int
    before: int
    lowest: int
    after: int


@dataclass(frozen=True, slots=True)
class Fallen:
    """One sample that was right before the switch and wrong at the lowest point.

    Attributes:
        position: Its place among the evaluated samples of the task.
        id: Its id; its position where ids were not recorded.
        label: Its class; empty where that is unknown.
        taken_for: What it was answered as at the lowest point; empty where that is unknown.
        back_step: The step of the first evaluation after the lowest at which it was right; None if there was
            none in the whole run.
    """

    position: int
    id: str
    label: str
    taken_for: str
    back_step: int | None


@dataclass(frozen=True, eq=False)
class Autopsy:
    """A dip of a run, taken apart.

    Attributes:
        run: The run.
        gap: The dip.
        others: The other gaps of the run, deepest first.
        steps: The steps at which the task was evaluated, from the switch to the next one.
        accuracy: Its accuracy at these, the reference before the switch first.
        classes: How its classes fared, the one that lost most first; empty where labels are unknown.
        fallen: The samples that fell; None where single samples are unknown.
        back: Of these, the share that is right again at each of the steps from the lowest on.
        taken_for: How often samples of a class were taken for another at the lowest point, most often first.
        probes: What probes measured around the dip, of the task or of all.
        lacking: What is not known, and how to record it.
        again: The command that looks at the dip again, at every update and on all samples; None where that
            was done.
    """

    run: Run
    gap: StabilityGap
    others: tuple[StabilityGap, ...]
    steps: NDArray[np.int64]
    accuracy: NDArray[np.float64]
    classes: tuple[ClassFall, ...]
    fallen: tuple[Fallen, ...] | None
    back: tuple[tuple[int, float], ...]
    taken_for: tuple[tuple[str, str, int], ...]
    probes: dict[ProbeKey, ProbeSeries]
    lacking: tuple[str, ...]
    again: str | None = None

    def summary(self) -> list[str]:
        """The findings in sentences, one per line."""
        run, gap = self.run, self.gap
        lines = [
            f"while {run.phase_name(gap.phase)} was learned, {run.task_name(gap.task)} fell from "
            f"{_pct(gap.before)} to {_pct(gap.lowest)}, {_count(gap.updates_to_lowest, 'update')} after the "
            f"switch (at update {gap.lowest_step:,})"
        ]
        if gap.updates_to_recovery is not None:
            lines.append(
                f"it was back within 1 percentage point after {_count(gap.updates_to_recovery, 'update')}, "
                f"and ended at {_pct(gap.after)}"
            )
        else:
            lines.append(f"it did not come back before the next switch: it ended at {_pct(gap.after)}")
        if self.fallen is not None:
            again = [one for one in self.fallen if one.back_step is not None]
            lines.append(
                f"{_count(len(self.fallen), 'sample')} fell; {len(again):,} of them were right again later"
            )
        if self.classes:
            parts = [
                f"{one.label} ({one.before} → {one.lowest} of {one.samples})" for one in self.classes[:5]
            ]
            lines.append(f"right samples by class, before and at the lowest: {', '.join(parts)}")
        if self.taken_for:
            parts = [f"{label} as {answer} ({count})" for label, answer, count in self.taken_for[:5]]
            lines.append(f"taken for, at the lowest: {', '.join(parts)}")
        lines += [
            f"{name}: {before:.4g} at the switch, highest {highest:.4g}, {after:.4g} at the end"
            for name, before, highest, after in self.around()
        ]
        return lines

    def around(self) -> list[tuple[str, float, float, float]]:
        """For each probe: its name, and its value at the switch, its highest since, and its last."""
        rows = []
        for (name, task), series in self.probes.items():
            before = series.value[series.step <= self.gap.start]
            since = series.value[series.step > self.gap.start]
            if since.size:
                first = float(before[-1]) if before.size else float("nan")
                title = name if task is None else f"{name} of {self.run.task_name(self.gap.task)}"
                rows.append((title, first, float(since.max()), float(since[-1])))
        return rows

    def as_json(self) -> JsonObject:
        """Everything, as one JSON object."""
        return {
            "run": self.run.id,
            "learning": self.run.phase_name(self.gap.phase),
            "task": self.run.task_name(self.gap.task),
            "gap": self.gap.as_json(),
            "classes": [
                {name: getattr(one, name) for name in ("label", "samples", "before", "lowest", "after")}
                for one in self.classes
            ],
            "fallen": None
            if self.fallen is None
            else [
                {
                    "position": one.position,
                    "id": one.id,
                    "label": one.label or None,
                    "taken_for": one.taken_for or None,
                    "back_step": one.back_step,
                }
                for one in self.fallen
            ],
            "taken_for": [
                {"label": label, "answer": answer, "samples": count}
                for label, answer, count in self.taken_for
            ],
            "probes": [
                {
                    "name": name,
                    "before": None if before != before else before,
                    "highest": highest,
                    "after": after,
                }
                for name, before, highest, after in self.around()
            ],
            "lacking": list(self.lacking),
            "zoom": self.again,
        }


def examine(run: Run, *, task: int | None = None, step: int | None = None) -> Autopsy:
    """Take the deepest dip of a run apart.

    Args:
        run: The run.
        task: Look at dips of this task only: its number in the order of learning, from 1.
        step: Look at the dip that was under way after this many updates.

    Raises:
        InputError: There is no such dip.
    """
    gaps = sorted(stability_gaps(run.curve, tolerance=TOLERANCE), key=lambda gap: -gap.depth)
    gap = _chosen(run, gaps, task, step)
    curve = run.curve
    rows = np.flatnonzero(
        (curve.step >= gap.start) & (curve.step <= gap.end) & ~np.isnan(curve.accuracy[:, gap.task])
    )
    lacking: list[str] = []
    classes: tuple[ClassFall, ...] = ()
    fallen: tuple[Fallen, ...] | None = None
    back: tuple[tuple[int, float], ...] = ()
    try:
        samples = samples_of(run)
    except InputError as error:
        lacking.append(str(error))
    else:
        labels, ids = _who(run, gap)
        answers = _answers(run, gap)
        lacking += [NO_LABELS] * (labels is None) + [NO_ANSWERS] * (answers is None)
        classes = _classes(samples, gap, labels)
        fallen = _fallen(samples, gap, labels, ids, answers)
        back = _back(samples, gap)
    counts = Counter((one.label, one.taken_for) for one in fallen or () if one.taken_for)
    probes = _probes(run, gap)
    return Autopsy(
        run=run,
        gap=gap,
        others=tuple(other for other in gaps if other is not gap and other.depth > 0),
        steps=curve.step[rows],
        accuracy=curve.accuracy[rows, gap.task],
        classes=classes,
        fallen=fallen,
        back=back,
        taken_for=tuple((label, answer, count) for (label, answer), count in counts.most_common()),
        probes=probes,
        lacking=(*lacking, *([] if probes else [NO_PROBES])),
        again=zoom_command(run, gap),
    )


def _chosen(run: Run, gaps: Sequence[StabilityGap], task: int | None, step: int | None) -> StabilityGap:
    """The deepest of the gaps that were asked for."""
    if not gaps:
        raise InputError(
            f"the run {run.id} has no dip to look at: no earlier task was evaluated while a later one was "
            "learned"
        )
    width = run.curve.accuracy.shape[1]
    if task is not None and not 1 <= task <= width:
        raise InputError(f"task must be between 1 and {width}, got {task}")
    wanted = [gap for gap in gaps if task is None or gap.task == task - 1]
    if step is not None:
        wanted = [gap for gap in wanted if gap.start < step <= gap.end]
    if not wanted:
        of_task = "" if task is None else f" of task {task}"
        when = "" if step is None else f" after {step} updates"
        raise InputError(f"there is no dip{of_task}{when}: `engram gaps` lists all of them")
    if wanted[0].depth <= 0:
        raise InputError("no task fell below its accuracy at a switch: there is no dip to look at")
    return wanted[0]


def _who(run: Run, gap: StabilityGap) -> tuple[list[str] | None, list[str] | None]:
    """The labels and the ids of the samples of the task, as far as they were recorded."""
    name = run.curve.tasks[gap.task]
    if run.samples is None or not isinstance(name, int):
        return None, None
    table = run.samples.of_task(name)
    if not len(table):
        return None, None
    labels = None if table[LABEL].null_count() else [str(label) for label in table[LABEL].to_list()]
    return labels, [str(value) for value in table[ID].to_list()]


def _answers(run: Run, gap: StabilityGap) -> list[str] | None:
    """What the samples of the task were answered as at the lowest point; None if that is unknown."""
    name = run.curve.tasks[gap.task]
    if not isinstance(name, int) or not run.answers.has(gap.lowest_step, name):
        return None
    return [str(answer) for answer in run.answers.at(gap.lowest_step, name).tolist()]


def _moments(samples: SampleCurve, gap: StabilityGap) -> tuple[Mask, Mask, Mask]:
    """Which samples were right before the switch, at the lowest point, and at the end of the visit."""
    rows = np.searchsorted(samples.curve.step, [gap.start, gap.lowest_step, gap.end])
    before, lowest, after = (samples.at(gap.task, int(row)) for row in rows)
    assert before is not None
    assert lowest is not None
    assert after is not None
    return before, lowest, after


def _classes(samples: SampleCurve, gap: StabilityGap, labels: Sequence[str] | None) -> tuple[ClassFall, ...]:
    if labels is None:
        return ()
    moments = _moments(samples, gap)
    of = np.array(labels)
    rows = [
        ClassFall(str(label), int((of == label).sum()), *(int(right[of == label].sum()) for right in moments))
        for label in dict.fromkeys(labels)
    ]
    return tuple(sorted(rows, key=lambda row: (row.lowest - row.before, row.label)))


def _fallen(
    samples: SampleCurve,
    gap: StabilityGap,
    labels: Sequence[str] | None,
    ids: Sequence[str] | None,
    answers: Sequence[str] | None,
) -> tuple[Fallen, ...]:
    before, lowest, _ = _moments(samples, gap)
    steps = samples.curve.step[samples.rows[gap.task]]
    later = samples.right(gap.task)[steps > gap.lowest_step]
    steps = steps[steps > gap.lowest_step]
    rows = []
    for position in np.flatnonzero(before & ~lowest).tolist():
        again = np.flatnonzero(later[:, position])
        rows.append(
            Fallen(
                position,
                str(position) if ids is None else ids[position],
                "" if labels is None else labels[position],
                "" if answers is None else answers[position],
                int(steps[again[0]]) if again.size else None,
            )
        )
    return tuple(rows)


def _back(samples: SampleCurve, gap: StabilityGap) -> tuple[tuple[int, float], ...]:
    """From the lowest point to the next switch, the share of fallen samples that is right again."""
    before, lowest, _ = _moments(samples, gap)
    fell = before & ~lowest
    steps = samples.curve.step[samples.rows[gap.task]]
    inside = (steps >= gap.lowest_step) & (steps <= gap.end)
    if not fell.any():
        return ()
    shares = samples.right(gap.task)[inside][:, fell].mean(axis=1)
    return tuple(zip(steps[inside].tolist(), shares.tolist(), strict=True))


def _probes(run: Run, gap: StabilityGap) -> dict[ProbeKey, ProbeSeries]:
    """What probes measured from a little before the switch to the next one, of the task or of all."""
    margin = max(1, (gap.end - gap.start) // 4)
    chosen = {}
    for (name, task), series in run.probes.items():
        around = (series.step >= gap.start - margin) & (series.step <= gap.end)
        if task in (None, run.curve.tasks[gap.task]) and np.count_nonzero(around) > 1:
            chosen[name, task] = ProbeSeries(series.step[around], series.value[around])
    return chosen


def _pct(value: float) -> str:
    return f"{100 * value:.1f} %"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
