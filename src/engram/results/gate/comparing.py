"""The gate from files, tables and runs to its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engram.core.errors import InputError
from engram.metrics.flips import LEVEL
from engram.record.run import Run, looks_like_run
from engram.results.gate.judging import Gate, Rule, judge
from engram.results.gate.pairs import choose_slices, join
from engram.results.gate.predictions import Predictions, of_table, read_predictions


def compare_files(
    old: object,
    new: object,
    rules: Sequence[Rule],
    *,
    slices: Sequence[str] | None = None,
    min_samples: int | None = None,
    common: bool = False,
    score: str | None = None,
    level: float = LEVEL,
) -> Gate:
    """Compare two models by their answers: files, tables or runs.

    Args:
        old: The old model's answers: a path, `Run`, `Predictions`, polars data frame or columns by name.
        new: The new model's answers.
        rules: The rules to judge.
        slices: The columns that are slices (default: all that have no other meaning).
        min_samples: Slices with fewer samples are left out.
        common: Whether samples that only one of the two has are left out.
        score: For lm-eval, the metric that says what is right.
        level: One minus the confidence.

    Example:
        >>> from engram.results.gate import parse_rule
        >>> old = {"id": range(400), "correct": [1] * 400}
        >>> new = {"id": range(400), "correct": [1] * 380 + [0] * 20}
        >>> compare_files(old, new, [parse_rule("max-drop", "1pp")])
        <Gate failed: 400 samples, 100.00% to 95.00%, 20 lost, 0 gained>
    """
    first, second = read_answers(old, "old", score), read_answers(new, "new", score)
    pairs = join(first, second, common=common)
    if slices is not None:
        pairs = choose_slices(pairs, slices)
    return judge(pairs, rules, level=level, min_samples=min_samples, sources=(first.source, second.source))


def of_run(run: Run) -> Predictions:
    """The answers of a run at its last evaluation, on full test sets where it has such evaluations.

    The task is a slice, and a sample's id is its task and its place in the test set.

    Raises:
        InputError: The run has no evaluation.
    """
    name = str(run.folder or run.id)
    trace = run.ends if len(run.ends) else run.trace
    if not len(trace):
        raise InputError(f"the run {name} has no evaluations")
    last = max(trace.step)
    rows = [row for row, step in enumerate(trace.step) if step == last]
    ids: list[str] = []
    tasks: list[str] = []
    right: list[bool] = []
    for row in rows:
        answers = trace.right(row)
        task = str(trace.task[row])
        ids += [f"{task}:{place}" for place in range(len(answers))]
        tasks += [task] * len(answers)
        right += answers.tolist()
    return of_table({"id": ids, "correct": right, "task": tasks}, source=name)


def read_answers(source: object, name: str, score: str | None = None) -> Predictions:
    """A model's answers from a path, `Run`, `Predictions`, polars data frame or columns by name.

    Args:
        source: The answers.
        name: What messages call a table.
        score: For lm-eval, the metric that says what is right.

    Raises:
        InputError: It is none of these, or cannot be read.
    """
    if isinstance(source, Predictions):
        return source
    if isinstance(source, Run):
        return of_run(source)
    if isinstance(source, str | Path):
        place = Path(source)
        return of_run(Run.load(place)) if looks_like_run(place) else read_predictions(place, score=score)
    import polars as pl

    if not isinstance(source, pl.DataFrame | Mapping):
        raise InputError(
            f"{name} must be a file, a run, a table or columns by name, got {type(source).__name__}"
        )
    return of_table(source, source=name)
