"""The gate from files, tables and runs to its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engram.core.errors import InputError
from engram.core.folder import looks_like_run
from engram.metrics.flips import LEVEL
from engram.record.answers import Answers
from engram.record.run import Run
from engram.record.test_data import other_tasks
from engram.results.gate.judging import Gate, Rule, judge
from engram.results.gate.pairs import choose_slices, join
from engram.results.gate.predictions import Predictions, consistent, of_table, read_predictions
from engram.results.runs import one_run
from engram.results.store import is_store, store_of


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
    first, second = read_all([(old, "old"), (new, "new")], score)
    pairs = join(first, second, common=common)
    if slices is not None:
        pairs = choose_slices(pairs, slices)
    return judge(pairs, rules, level=level, min_samples=min_samples, sources=(first.source, second.source))


def of_run(run: Run, *, by_place: bool = False) -> Predictions:
    """The answers of a run at its last evaluation, on full test sets where it has such evaluations.

    The task is a slice, and so are the slices and labels that the run kept with its samples. A sample's id is
    its task and its id in the run's `samples.parquet`; for runs without that file, its place among the
    samples that were evaluated.

    Args:
        run: The run.
        by_place: Whether samples are named by their place, whatever ids they have.

    Raises:
        InputError: The run has no evaluation.
    """
    import polars as pl

    name = str(run.folder or run.id)
    ends = next((ends for ends in (run.ends, run.trace.at_ends()) if len(ends)), None)
    whole, trace = ends is not None, run.trace if ends is None else ends
    run.refuse_only_scores()
    if not len(trace):
        raise InputError(f"the run {name} has no evaluations")
    last = max(trace.step)
    samples = None if by_place else run.samples
    answered = Answers() if whole else run.answers
    frames = []
    for row in (row for row, step in enumerate(trace.step) if step == last):
        right, number = trace.right(row), trace.task[row]
        task = run.task_names[number] if number < len(run.task_names) else str(number)
        known = None if samples is None else samples.of_task(number, whole=whole)
        frame = pl.DataFrame({"correct": right, "task": [task] * len(right)})
        if known is None or len(known) != len(right):
            frame = frame.with_columns(id=pl.Series([str(place) for place in range(len(right))]))
        else:
            frame = frame.hstack(known.drop("task", "position", "drawn"))
        if answered.has(last, number):
            frame = frame.with_columns(prediction=pl.Series(answered.at(last, number).tolist()))
        frames.append(frame)
    table = pl.concat(frames, how="diagonal_relaxed")
    table = table.with_columns(id=pl.format("{}:{}", "task", "id"))
    empty = [column for column in table.columns if table[column].null_count() == len(table)]
    return of_table(table.drop(empty), source=name)


def of_runs(runs: Sequence[Run]) -> list[Predictions]:
    """The answers of several runs, whose samples are named in the same way.

    Samples have the ids that the runs kept; where a run of an earlier version kept none, all are named by
    their places, and the test data must be the same.

    Raises:
        InputError: A run has no evaluation, or samples without ids are not the same ones.
    """
    by_place = any(run.samples is None for run in runs)
    if by_place:
        for run in runs[1:]:
            differing = other_tasks(runs[0].test_data, run.test_data)
            if differing:
                raise InputError(
                    f"the test data of task {differing[0]} differ between {runs[0].folder or runs[0].id} and "
                    f"{run.folder or run.id}, and not both have samples with ids: they cannot be joined"
                )
    return [of_run(run, by_place=by_place) for run in runs]


def read_all(sources: Sequence[tuple[object, str]], score: str | None = None) -> list[Predictions]:
    """The answers of several models, each with what messages call it; see `read_answers`.

    Raises:
        InputError: One cannot be read, or the samples of two runs cannot be joined; or a score is named,
            and nothing has scores.
    """
    runs = [_as_run(source) for source, _ in sources]
    if all(run is not None for run in runs):
        answers = of_runs([run for run in runs if run is not None])
    else:
        answers = [
            read_answers(source, name, score) if run is None else of_run(run)
            for run, (source, name) in zip(runs, sources, strict=True)
        ]
    if score is not None and not any(one.of_lm_eval for one in answers):
        raise InputError(
            f"score chooses a metric of lm-eval's per-sample files, and there are none, got {score!r}: leave "
            "score out"
        )
    return answers


def _as_run(source: object) -> Run | None:
    """The run that a source is or holds; None where it is something else."""
    if isinstance(source, Run):
        return source
    if isinstance(source, str | Path) and _may_be_run(source):
        return one_run(source)
    return None


def _may_be_run(place: str | Path) -> bool:
    return looks_like_run(Path(place)) or is_store(place) or store_of(place) is not None


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
    if (run := _as_run(source)) is not None:
        return of_run(run)
    if isinstance(source, str | Path):
        return read_predictions(source, score=score)
    import polars as pl

    if not isinstance(source, pl.DataFrame | Mapping):
        raise InputError(
            f"{name} must be a file, a run, a table or columns by name, got {type(source).__name__}"
        )
    return consistent(of_table(source, source=name))
