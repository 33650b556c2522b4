"""The report: one self-contained HTML page about some runs."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engram.core.errors import InputError
from engram.core.files import write_whole
from engram.core.jsons import Json, JsonMapping
from engram.metrics.extremes import Estimate
from engram.metrics.gaps import stability_gaps
from engram.metrics.intervals import Summary
from engram.metrics.registry import Metric, find, users_metrics
from engram.metrics.scores import MEANINGS, shown_times
from engram.record.incomplete import place_of, why_incomplete
from engram.record.run import Run
from engram.results.card_section import cards_section
from engram.results.document import document
from engram.results.figures import (
    MAX_POINTS,
    Figure,
    bar_figure,
    method_figure,
    probe_figures,
    task_figure,
)
from engram.results.markup import Html, element, joined
from engram.results.page_parts import look_closer
from engram.results.query import (
    MatrixSummary,
    MetricsTable,
    accuracy_matrix,
    deepest_dip,
    forgetting_events,
    metrics_table,
    stability_gap,
    stored_extremes,
)
from engram.results.runs import RunGroup, Runs, without_damaged
from engram.results.sampling import sampling_note
from engram.results.test_data import other_data_among, other_data_between
from engram.results.zoom import zoom_command

_FEW = 10
"""Up to this many tasks, a plot shows both the full curves and their values at task ends by default."""

DRAWN = 30
"""Curves, matrices, samples and cards of a group with more seeds than this are those of its first ones."""

FIRST: Final = (
    "ACC",
    "FORG",
    "RAA",
    "RAF",
    "min-ACC",
    "WC-ACC",
    "WF10",
    "WP10",
    "gap-depth",
    "gap-duration",
    "SF",
)
"""The metrics of the first table; the others are folded below it."""

_DENSE = 16
"""With more tasks than this, the matrix is drawn as small squares without numbers."""


def write_report(runs: Iterable[Run], path: Path) -> Runs:
    """Write one self-contained HTML page about some runs; the file is replaced atomically.

    Runs that differ only in the seed are drawn as their mean with a band. With several groups, the page
    begins with a comparison. The same runs always produce the same bytes. Runs that did not finish or are
    damaged are left out, and named.

    Returns:
        The runs that the page shows; what was left out is in `incomplete`.

    Raises:
        InputError: There is no finished run, or all are damaged.
    """
    shown = without_damaged(runs, most=DRAWN)
    if not shown:
        left_out = "".join(f"; {place_of(run)}: {why_incomplete(run)}" for run in shown.incomplete[:3])
        raise InputError(f"nothing to report: at least one finished run is required, got none{left_out}")
    text = page(shown.groups(), shown.incomplete)
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return shown


def page(groups: Sequence[RunGroup], incomplete: Sequence[Run] = ()) -> str:
    """The HTML of the report.

    Args:
        groups: The finished runs.
        incomplete: Runs that are left out, because they are not finished.
    """
    figures: dict[str, Figure] = {}
    drawn = [group.first(DRAWN) for group in groups]
    for run in (run for group in drawn for run in group.runs):
        # Curves come from these traces, which are read anyway, and not from columns of all runs of a store.
        with suppress(InputError):
            _ = run.trace
    sections = [_group_section(group, i, figures, of=len(groups[i].runs)) for i, group in enumerate(drawn)]
    table = metrics_table(groups)
    metrics = joined(_metrics_section(groups, table), cards_section(drawn))
    if len(groups) > 1:
        content = joined(_overview(groups, drawn, figures, table), metrics, *sections)
    else:
        content = joined(*sections, metrics)
    names = ", ".join(dict.fromkeys(group.label for group in groups))
    scenarios = ", ".join(
        dict.fromkeys(run.scenario for group in groups for run in group.runs if run.scenario)
    )
    return document(
        title=" – ".join(part for part in ("engram report", scenarios, names) if part),
        kicker="engram report",
        heading=scenarios or names,
        lead=_lead(groups, incomplete),
        links=[(group.label, f"group-{i}") for i, group in enumerate(groups)],
        content=joined(content, _definitions_section(table)),
        figures=figures,
    )


def _lead(groups: Sequence[RunGroup], incomplete: Sequence[Run]) -> Html:
    runs = [run for group in groups for run in group.runs]
    tasks = max(run.curve.accuracy.shape[1] for group in groups for run in group.runs[:DRAWN])
    evaluations = sum(run.evaluations or len(run.curve) for run in runs)
    experiments = f"{_count(len(groups), 'experiment')}, {_count(len(runs), 'run')}, {_count(tasks, 'task')}"
    rest = f" Left out: {', '.join(f'{run.id} ({run.status})' for run in incomplete)}." if incomplete else ""
    most = max(len(group.runs) for group in groups)
    part = (
        f" Curves, matrices, samples and cards are those of the first {DRAWN} seeds." if most > DRAWN else ""
    )
    return joined(f"{experiments}, {evaluations:,} evaluations.{part}{rest}")


def _overview(
    groups: Sequence[RunGroup], drawn: Sequence[RunGroup], figures: dict[str, Figure], table: MetricsTable
) -> Html:
    figures["methods"] = method_figure(drawn)
    parts = [
        element("h2", "Comparison"),
        _warning(other_data_between(groups)),
        _figure(
            "methods",
            "Mean accuracy over the tasks seen so far, at every evaluation."
            + _own_boundaries(
                figures["methods"],
                of="in the colour of a curve are its task boundaries, grey ones are shared",
            ),
            label="Line chart: mean accuracy over the tasks seen so far, one line per experiment",
        ),
    ]
    bars = bar_figure(groups, table)
    if bars:
        figures["bars"] = bars
        note = (
            "ACC is measured at task ends; min\u2011ACC and WC\u2011ACC count all evaluations. "
            "Error bars: 95 % intervals over seeds, on the logit scale."
        )
        parts.append(
            _figure("bars", note, label=f"Bar chart: {', '.join(bars['metrics'])} of each experiment")
        )
    return element("section", *parts, id="overview")


def _group_section(group: RunGroup, number: int, figures: dict[str, Figure], *, of: int) -> Html:
    run = group.runs[0]
    name = f"tasks-{number}"
    figures[name] = task_figure(group)
    seeds = len(group.runs)
    several = f"{seeds} seeds" if seeds == of else f"the first {seeds} of {of:,} seeds"
    spread = f"Lines: mean over {several}; bands: ± 1 SD." if seeds > 1 else "One seed."
    thinned = len(run.curve) > MAX_POINTS
    few = run.curve.accuracy.shape[1] <= _FEW
    note = (
        f"Accuracy of each task at every evaluation. {spread} Dashed lines with circles: accuracy at task "
        "ends only. Dotted line: min\u2011ACC."
        + (" Long curves are downsampled; minima and maxima are preserved." if thinned else "")
        + _own_boundaries(figures[name], of="are the task boundaries of all seeds")
    )
    probes = []
    for i, (probe, figure) in enumerate(probe_figures(group).items()):
        key = f"probe-{number}-{i}"
        figures[key] = figure
        chart = _figure(key, "", label=f"Line chart: {probe} at every evaluation", size="small")
        probes.append(element("div", element("h3", probe), chart))
    return element(
        "section",
        element("h2", group.label),
        element("p", " · ".join(_facts(group)), class_="note"),
        _warning(_sentence(other_data_among(group.runs))),
        _gap_sentence(group),
        _note(sampling_note(group.runs)),
        _figure(
            name,
            note,
            label=f"Line chart: accuracy of each task, {group.label}",
            size="tall",
            views="both" if few else "all",
        ),
        element("div", _matrix_table(group), _events_table(group), class_="columns"),
        element("div", *probes, class_="columns") if probes else "",
        _settings(group),
        id=f"group-{number}",
    )


def _warning(text: str) -> Html:
    """A paragraph that cannot be overlooked; nothing for an empty text."""
    return element("p", text, class_="warning", role="note") if text else Html("")


def _note(text: str) -> Html:
    """A paragraph of explanation; nothing for an empty text."""
    return element("p", text, class_="note") if text else Html("")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _facts(group: RunGroup) -> list[str]:
    run = group.runs[0]
    facts = [run.scenario, f"{run.setting} setting" if run.setting else "", run.method]
    facts.append(_count(len(group.runs), "seed"))
    if run.updates:
        facts.append(f"{run.updates:,} updates")
    seconds = [run.seconds.total for run in group.runs if run.seconds.total]
    if seconds:
        facts.append(f"{np.mean(seconds):.1f} s per run")
    return [fact for fact in dict.fromkeys(facts) if fact and fact != group.label]


def _own_boundaries(figure: Figure, *, of: str) -> str:
    """A sentence for the caption if runs in a figure differ in their task boundaries; empty otherwise."""
    if "boundaries" not in figure:
        return ""
    return f" Runs differ in the length of their tasks: dotted vertical lines {of}."


def _gap_sentence(group: RunGroup) -> Html:
    """The stability gap in numbers: the lowest accuracy of earlier tasks at task ends and at any time."""
    gap = stability_gap(group.runs)
    if gap is None:
        return element("p", "Only one task was learned, so there is no forgetting to measure.", class_="gap")
    parts: list[str] = [
        "The lowest accuracy of earlier tasks, averaged over tasks, is ",
        element("strong", _pct(gap.shown)),
        " at task ends and ",
        element("strong", _pct(gap.lowest)),
        " over all evaluations.",
    ]
    dip = deepest_dip(group.runs)
    if dip is not None:
        run = group.runs[0]
        parts += [
            f" The deepest dip between task ends: while {run.phase_name(dip.phase)} was being learned, "
            f"{run.task_name(dip.task)} fell from {_pct(dip.before)} to ",
            element("strong", _pct(dip.lowest)),
            f" and ended at {_pct(dip.after)}.",
        ]
    return joined(element("p", *parts, class_="gap"), look_closer(_deepest_again(group)))


def _deepest_again(group: RunGroup) -> str | None:
    """The command that looks again at the deepest gap of the group's first run; None where it has none."""
    run = group.runs[0]
    deepest = max(stability_gaps(run.curve), key=lambda gap: gap.depth, default=None)
    return None if deepest is None or deepest.depth <= 0 else zoom_command(run, deepest)


def _matrix_table(group: RunGroup) -> Html:
    matrix = accuracy_matrix(group.runs)
    run = group.runs[0]
    dense = len(matrix.mean) > _DENSE
    tasks = range(len(matrix.mean))
    columns = [
        element("th", "" if dense else f"{task + 1}", title=run.task_name(task), scope="col")
        for task in tasks
    ]
    rows = [
        element(
            "tr",
            element("th", _row_name(learned, dense=dense), title=run.task_name(learned), scope="row"),
            *(_cell(run, matrix, learned, task, dense=dense) for task in tasks),
        )
        for learned in tasks
        if np.isfinite(matrix.mean[learned]).any()
    ]
    table = element(
        "table",
        element("thead", element("tr", element("td"), *columns)),
        element("tbody", *rows),
        class_="heat dense" if dense else "heat",
    )
    note = (
        "Accuracy in % on each task (columns) after learning each task (rows). Outlined: task just learned."
    )
    return element(
        "div",
        element("h3", "Accuracy matrix"),
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Accuracy matrix"),
        element("p", note, class_="note"),
        _warning(_sentence(_reservation(group))),
    )


def _reservation(group: RunGroup) -> str:
    """What is to be said about the accuracies at task ends, such as tasks that were never learned."""
    reasons = (run.why.get("ACC", "") for run in group.runs if np.isfinite(run.stored.get("ACC", np.nan)))
    return next((reason for reason in reasons if reason), "")


def _row_name(learned: int, *, dense: bool) -> str:
    if dense:
        return str(learned + 1) if learned % 10 == 9 or learned == 0 else ""
    return f"Task {learned + 1}"


def _cell(run: Run, matrix: MatrixSummary, learned: int, task: int, *, dense: bool) -> Html:
    mean, sd = float(matrix.mean[learned, task]), float(matrix.sd[learned, task])
    if not np.isfinite(mean):
        return element("td")
    spread = f" (SD {100 * sd:.1f})" if np.isfinite(sd) else ""
    marks = ["strong"] if mean >= 0.6 else []
    if task == learned:
        marks.append("learned")
    return element(
        "td",
        "" if dense else f"{100 * mean:.1f}",
        style=f"--v:{100 * mean:.1f}",
        class_=" ".join(marks) or None,
        title=f"{run.task_name(task)} after {run.task_name(learned)}: {_pct(mean)}{spread}",
    )


def _events_table(group: RunGroup) -> Html:
    """How many samples of each task were forgotten after it was learned; empty where this is unknown."""
    rows = []
    for task in range(group.runs[0].curve.accuracy.shape[1]):
        counts = [events for run in group.runs if (events := _events(run, task)) is not None]
        if counts:
            once = float(np.mean([np.mean(events > 0) for events in counts]))
            times = float(np.mean([np.mean(events) for events in counts]))
            rows.append(
                element(
                    "tr",
                    element("th", group.runs[0].task_name(task), scope="row"),
                    element("td", _pct(once), class_="number"),
                    element("td", f"{times:.1f}", class_="number"),
                )
            )
    if not rows:
        return Html("")
    head = element(
        "tr",
        element("th", "Task", scope="col"),
        element("th", "Forgotten at least once", scope="col", class_="number"),
        element("th", "Times per sample", scope="col", class_="number"),
    )
    table = element("table", element("thead", head), element("tbody", *rows), class_="plain")
    note = (
        "A sample is forgotten when its answer changes from right to wrong between two evaluations, after "
        "its task was learned."
    )
    return element(
        "div",
        element("h3", "Forgotten samples"),
        element(
            "div", table, class_="scroll high", tabindex="0", role="region", aria_label="Forgotten samples"
        ),
        element("p", note, class_="note"),
    )


def _events(run: Run, task: int) -> NDArray[np.int64] | None:
    """The forgetting events of each sample of a task since it was learned.

    None if no evaluation followed, or if the evaluated samples changed.
    """
    learned = np.flatnonzero(run.curve.being_learned()[:, task])
    if run.redrawn or not learned.size or learned[-1] == len(run.curve) - 1:
        return None
    try:
        return forgetting_events(
            run.trace, int(run.curve.tasks[task]), since=int(run.curve.step[learned[-1]])
        )
    except InputError:
        return None


def _metrics_section(groups: Sequence[RunGroup], table: MetricsTable) -> Html:
    if not table:
        return Html("")
    extremes = [stored_extremes(group) for group in groups]
    head = [element("th", "Metric", scope="col")] + [
        element("th", group.label, scope="col") for group in groups
    ]
    rows = {
        name: element(
            "tr",
            element("th", _term(name), scope="row"),
            *(
                _metric_cell(name, summary, corrected.values.get(name))
                for summary, corrected in zip(summaries, extremes, strict=True)
            ),
        )
        for name, summaries in table.items()
    }
    first = [name for name in rows if name in FIRST or name in users_metrics()] or list(rows)
    others = [name for name in rows if name not in first]
    scores = ", scores as they are" if set(rows) & set(MEANINGS) else ""
    note = (
        f"Values in percent{scores}: mean and 95 % interval over seeds (on the logit scale where the metric "
        "has bounds, otherwise Student t), with the sample standard deviation and the number of seeds below. "
        "A dash means undefined. Hover over or focus a name to see its definition."
    )
    if any(corrected.values and not corrected.exact for corrected in extremes):
        note += (
            " Corrected: a minimum or a largest change over evaluations of a subset, without the bias of the "
            "subset, and the 95 % interval of its value on the whole test sets, which covers the choice of "
            "samples but not that of seeds; means over seeds."
        )
    note += "".join(
        f" {group.label}: extremes are not corrected, because {corrected.why}."
        for group, corrected in zip(groups, extremes, strict=True)
        if corrected.why
    )
    return element(
        "section",
        element("h2", "Metrics"),
        element("p", note, class_="note"),
        _metrics_table(head, [rows[name] for name in first], "Metrics of all experiments"),
        element(
            "details",
            element("summary", f"{len(others)} more metrics: {', '.join(others[:3])}, …"),
            _metrics_table(head, [rows[name] for name in others], "Further metrics of all experiments"),
        )
        if others
        else "",
        id="metrics",
    )


def _metrics_table(head: Sequence[Html], rows: Sequence[Html], label: str) -> Html:
    return element(
        "div",
        element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_="metrics"),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=label,
    )


def _term(name: str) -> Html:
    metric = _registered(name)
    tip = MEANINGS.get(name) if metric is None else metric.short()
    if tip is None:
        return element("span", name)
    return element("button", name, type="button", class_="term", data_tip=tip)


def _metric_cell(name: str, summary: Summary, estimate: Estimate | None) -> Html:
    times = shown_times(name)
    seeds = f"n = {summary.n}"
    if not np.isfinite(summary.mean):
        return element("td", "–", element("small", seeds))
    mean, corrected = _points(times * summary.mean), ""
    if estimate is not None and estimate.low < estimate.high:
        low, middle, high = (
            _points(times * part) for part in (estimate.low, estimate.corrected, estimate.high)
        )
        corrected = element("small", f"corrected {middle} ({low} to {high})")
    if not np.isfinite(summary.sd):
        return element("td", mean, element("small", seeds), corrected)
    edges = [_points(times * edge) for edge in summary.ci95]
    interval = element("span", f"({edges[0]} … {edges[1]})", class_="interval")
    spread = element("small", f"SD {times * summary.sd:.1f} · {seeds}")
    return element("td", f"{mean} ", interval, spread, corrected)


def _points(value: float) -> str:
    # Adding zero turns a rounded −0.0 into 0.0.
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")


def _settings(group: RunGroup) -> Html:
    run = group.runs[0]
    experiment = {name: value for name, value in run.description.items() if name not in ("id", "seed")}
    lines = [
        *_lines(experiment),
        ("seeds", ", ".join("–" if run.seed is None else str(run.seed) for run in group.runs)),
        ("runs", ", ".join(run.id for run in group.runs)),
        *_lines({"versions": run.versions}),
    ]
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in lines]
    return element(
        "details",
        element("summary", "Settings and versions"),
        element("div", element("table", element("tbody", *rows), class_="plain"), class_="scroll"),
    )


def _definitions_section(names: Iterable[str]) -> Html:
    registered = [metric for name in names if (metric := _registered(name))]
    if not registered:
        return Html("")
    entries = [
        part
        for metric in dict.fromkeys(registered)
        for part in (
            element("dt", f"{metric.name}: {metric.title}"),
            element("dd", f"{metric.definition.meaning} {metric.direction}"),
            element("dd", metric.definition.formula, class_="formula") if metric.definition.formula else "",
            element("dd", f"Source: {metric.source}.", class_="source") if metric.source else "",
        )
    ]
    return element(
        "section",
        element("details", element("summary", "Metric definitions"), element("dl", *entries)),
    )


def _figure(
    name: str, caption: str, *, label: str, size: str | None = None, views: str | None = None
) -> Html:
    controls = [element("div", class_="legend", role="group", aria_label="Show or hide curves")]
    if views:
        controls.append(_views(name, chosen=views))
    return element(
        "figure",
        element("div", *controls, class_="controls") if size != "small" else "",
        element(
            "div",
            class_=f"plot {size}" if size else "plot",
            data_figure=name,
            role="img",
            aria_label=label,
        ),
        element("figcaption", caption) if caption else "",
    )


def _views(name: str, *, chosen: str) -> Html:
    choices = (("all", "Every evaluation"), ("ends", "Task ends only"), ("both", "Both"))
    labels = [
        element(
            "label", element("input", type="radio", name=name, value=value, checked=value == chosen), text
        )
        for value, text in choices
    ]
    return element("fieldset", element("legend", "Show"), *labels, class_="views")


def _lines(fields: JsonMapping) -> list[tuple[str, str]]:
    """Nested fields as rows of a table: dotted names, and values as text."""
    lines: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            lines += [(f"{name}.{inner}", text) for inner, text in _lines(value)]
        else:
            lines.append((str(name), _text(value)))
    return lines


def _text(value: Json) -> str:
    """A setting as text; entries that have a name are shown by their name."""
    if isinstance(value, list):
        parts = [
            _text(entry.get("name") or entry) if isinstance(entry, Mapping) else _text(entry)
            for entry in value
        ]
        return (" | " if any(", " in part for part in parts) else ", ").join(parts)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return "–" if value is None else str(value)


def _registered(name: str) -> Metric | None:
    """The metric that runs record under this name; None if its plugin is not loaded."""
    try:
        return find(name)[0]
    except InputError:
        return None


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _pct(value: float) -> str:
    return f"{100 * value:.1f} %"
