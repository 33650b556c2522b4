"""Tables of results for papers and web pages: means over seeds with intervals, one block per scenario."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from engram.core.errors import InputError, unknown_name
from engram.core.jsons import Json, JsonObject
from engram.metrics.intervals import Summary
from engram.metrics.registry import higher_is_better
from engram.record.run import Run
from engram.results.compare import chosen_metrics, compare_runs, scenario_variants
from engram.results.runs import RunGroup, Runs, group_runs, settings_of
from engram.results.summaries import over_runs
from engram.results.test_data import other_data_between

if TYPE_CHECKING:
    import polars

Spread = Literal["interval", "sd", "none"]
"""What is written beside a mean: the 95 % interval, the SD (divisor n − 1), or nothing."""

BEST: Final = (
    "Bold: the best mean of a column, and every mean that cannot be told apart from it (sign-flip test "
    "paired by seed, Holm's correction over all pairs and columns of a scenario, level 5 %)."
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of one row.

    Attributes:
        over: Its mean, SD and 95 % interval over seeds.
        best: Whether it is the best of its column, or cannot be told apart from it; None if that was not
            asked for, or cannot be said.
    """

    over: Summary
    best: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one experiment.

    Attributes:
        names: What the row is called: the method, or the columns that were asked for.
        seeds: The number of runs.
        cells: The metrics by name.
    """

    names: tuple[str, ...]
    seeds: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one scenario.

    Attributes:
        scenario: Its name; empty for runs from a custom training loop.
        setting: Its setting; empty likewise.
        variant: What tells it from others with the same name and setting, if there are any.
        rows: The experiments.
        notes: Why nothing is marked as best in some columns, and what else must be known.
    """

    scenario: str
    setting: str
    variant: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The scenario in words."""
        name = f"{self.scenario or 'custom loops'}{f' ({self.setting})' if self.setting else ''}"
        return f"{name}, {self.variant}" if self.variant else name


@dataclass(frozen=True, slots=True)
class Table:
    """Results of some runs: rows are experiments, columns are metrics; one block per scenario.

    Attributes:
        by: The names of the columns that tell rows apart.
        metrics: The metrics.
        blocks: The scenarios.
        best: Whether the best of each column was asked for.
    """

    by: tuple[str, ...]
    metrics: tuple[str, ...]
    blocks: tuple[Block, ...]
    best: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known to read the table."""
        several = len(self.blocks) > 1
        notes = [
            f"{block.title}: {note}" if several else note for block in self.blocks for note in block.notes
        ]
        marked = any(cell.best for block in self.blocks for row in block.rows for cell in row.cells.values())
        return (*([BEST] if marked else []), *notes)

    def frame(self) -> polars.DataFrame:
        """A data frame with one row per experiment; numbers are fractions, as in all files.

        Each metric has the columns `ACC`, `ACC sd`, `ACC low`, `ACC high` (the 95 % interval) and `ACC
        seeds`; if asked for, also `ACC best`.
        """
        import polars as pl

        rows = [self._row(block, row) for block in self.blocks for row in block.rows]
        return pl.DataFrame(rows, infer_schema_length=None)

    def markdown(self, *, spread: Spread = "interval", digits: int = 2) -> str:
        """The table as Markdown, in percent.

        Args:
            spread: What is written beside a mean: its 95 % `interval`, the `sd` (n − 1), or `none`.
            digits: Decimal places.
        """
        from engram.results.table_text import markdown

        return markdown(self, spread=spread, digits=digits)

    def latex(self, *, spread: Spread = "interval", digits: int = 2) -> str:
        """The table as LaTeX with booktabs, in percent; arguments as for `markdown`."""
        from engram.results.table_text import latex

        return latex(self, spread=spread, digits=digits)

    def _row(self, block: Block, row: Row) -> JsonObject:
        known = {"scenario": block.scenario, "setting": block.setting, "variant": block.variant}
        columns: JsonObject = {name: value for name, value in known.items() if value or name == "scenario"}
        if any(other.variant for other in self.blocks):
            columns["variant"] = block.variant
        columns |= {**dict(zip(self.by, row.names, strict=True)), "seeds": row.seeds}
        for name, cell in row.cells.items():
            over = cell.over
            low, high = over.ci95
            numbers = {name: over.mean, f"{name} sd": over.sd, f"{name} low": low, f"{name} high": high}
            columns |= {key: value if math.isfinite(value) else None for key, value in numbers.items()}
            columns[f"{name} seeds"] = over.n
            if self.best:
                columns[f"{name} best"] = cell.best
        return columns


def table_of(
    runs: Iterable[Run], metrics: Sequence[str] = (), *, by: Sequence[str] = (), best: bool = False
) -> Table:
    """Lay out runs as a table: experiments by metrics, over seeds.

    Runs that differ only in the seed are one row. Bold in a paper is a claim, so `best` marks a mean only if
    it holds: the best one of a column, and all that cannot be told apart from it. Where there are too few
    seeds to tell any two apart, or the runs cannot be compared, nothing is marked, and a note says why.

    Args:
        runs: Finished runs, of any number of scenarios.
        metrics: The metrics (default: those of ACC, FORG, min-ACC, WC-ACC and plugins that the runs have).
        by: The settings that name the rows, such as `method` and `settings.memory`; see `Runs.frame`
            (default: the method, with whatever else tells experiments apart).
        best: Whether to mark the best.

    Raises:
        InputError: No run has such a metric or setting, or two experiments would have the same name.

    Example:
        >>> values = {"er": (0.5, 0.75), "finetune": (0.25, 0.25)}
        >>> runs = [
        ...     Run(description={"method": method, "label": method, "seed": seed}, stored={"ACC": value})
        ...     for method, seeds in values.items() for seed, value in enumerate(seeds)
        ... ]
        >>> table_of(runs, ["acc"]).frame().select("method", "ACC", "seeds").rows()
        [('er', 0.625, 2), ('finetune', 0.25, 2)]
    """
    listed = Runs(runs)
    names = chosen_metrics(metrics, listed)
    parts = listed.by_scenario()
    variants = scenario_variants([part[0] for part in parts])
    blocks = [
        Block(
            part[0].scenario,
            part[0].setting,
            variant,
            *_rows(group_runs(part), names, _checked(by, listed), best=best),
        )
        for part, variant in zip(parts, variants, strict=True)
    ]
    return Table(tuple(by) or ("method",), tuple(names), tuple(blocks), best)


def _rows(
    groups: Sequence[RunGroup], metrics: Sequence[str], by: Sequence[str], *, best: bool
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows of one scenario, and the notes on them."""
    apart = other_data_between(groups)
    marks, notes = _best(groups, metrics) if best else ({}, (apart,) if apart else ())
    rows = [
        Row(
            names,
            len(group.runs),
            {
                metric: Cell(over_runs(group.runs, metric), marks.get((group.label, metric)))
                for metric in metrics
            },
        )
        for group, names in zip(groups, _names(groups, by), strict=True)
    ]
    return tuple(rows), notes


def _checked(by: Sequence[str], runs: Runs) -> Sequence[str]:
    """The settings that name rows; each must be one that some run has."""
    known = dict.fromkeys(name for run in runs for name in settings_of(run) if name != "seed")
    for name in by:
        if name not in known:
            raise unknown_name("column", name, known)
    return by


def _names(groups: Sequence[RunGroup], by: Sequence[str]) -> list[tuple[str, ...]]:
    """What each row is called.

    Raises:
        InputError: Two rows would have the same name.
    """
    if not by:
        return [(group.label,) for group in groups]
    settings = [settings_of(group.runs[0]) for group in groups]
    names = [tuple(_written(values.get(name)) for name in by) for values in settings]
    for number, name in enumerate(names):
        if name not in names[:number]:
            continue
        first, second = settings[names.index(name)], settings[number]
        differing = [
            key for key in {**first, **second} if first.get(key) != second.get(key) and key != "seed"
        ]
        raise InputError(
            f"two experiments are {', '.join(name)}: they differ in {', '.join(differing[:3])}; "
            f"add that: --by {','.join([*by, differing[0]])}"
        )
    return names


def _written(value: Json) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _best(
    groups: Sequence[RunGroup], metrics: Sequence[str]
) -> tuple[dict[tuple[str, str], bool], tuple[str, ...]]:
    """Which means are the best of their column or cannot be told apart from it; and what to note."""
    if len(groups) < 2:
        return {}, ()
    runs = [run for group in groups for run in group.runs]
    known = [name for name in metrics if any(name in run.metrics for run in runs)]
    try:
        compared = compare_runs(runs, metrics=known, together=len(known) > 1)
    except InputError as error:
        return {}, (f"nothing is marked as best: {error}",)
    notes = [f"compared on the {len(compared.seeds)} seeds that all rows share"] if compared.left_out else []
    notes += [*compared.notes, *(f"{name}: {why}" for name, why in compared.undefined.items())]
    marks: dict[tuple[str, str], bool] = {}
    unmarked: dict[str, list[str]] = {}
    for metric, ranking in compared.rankings.items():
        reason = ranking.too_few or _shows_others(groups, metric, ranking.n)
        if reason:
            unmarked.setdefault(reason, []).append(metric)
            continue
        first = ranking.standings[0].name
        worse = {pair.second for pair in ranking.pairs if pair.first == first and pair.told_apart}
        marks |= {(group.label, metric): group.label not in worse for group in groups}
    for reason, columns in unmarked.items():
        where = f"in {', '.join(columns)}, " if len(columns) < len(compared.rankings) else ""
        notes.append(f"{where}nothing is marked as best: {reason}")
    return marks, tuple(dict.fromkeys(notes))


def _shows_others(groups: Sequence[RunGroup], metric: str, n: int) -> str:
    """Why a shown mean may not be what was compared: it includes seeds that not all rows have."""
    shown = [over_runs(group.runs, metric).n for group in groups]
    if max(shown) == n:
        return ""
    least = f"{min(shown)} to " if min(shown) < max(shown) else ""
    return f"the means are over {least}{max(shown)} seeds, and all rows share {n}: run the missing seeds"


def direction(metric: str) -> bool | None:
    """Whether higher values are better; None for a metric that is not registered.

    Example:
        >>> direction("ACC"), direction("FORG"), direction("of a plugin that is not loaded")
        (True, False, None)
    """
    try:
        return higher_is_better(metric)
    except InputError:
        return None
