"""A gate's outcome for other programs: JUnit XML for CI servers, Markdown for pull requests."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from engram.results.gate.judging import MEANING, Change, Gate

_ROWS = 20
"""The most slices in a Markdown table; the JSON and HTML outputs have all."""


def percent(share: float) -> str:
    """A share in percent with two digits; a dash if it is not a number.

    Example:
        >>> percent(0.12345), percent(math.nan)
        ('12.35', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.2f}"


def p_value(p: float) -> str:
    """A p-value with three digits.

    Example:
        >>> p_value(0.00001), p_value(0.25)
        ('<0.001', '0.250')
    """
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def headline(gate: Gate) -> str:
    """The verdict in one sentence.

    Example:
        >>> from engram.results.gate import join, judge, of_table
        >>> old = of_table({"id": [1, 2], "correct": [1, 1]}, source="old")
        >>> headline(judge(join(old, old), []))
        '2 samples: accuracy 100.00 % before, 100.00 % after; 0 lost, 0 gained'
    """
    overall = gate.overall
    return (
        f"{overall.total:,} samples: accuracy {percent(overall.before)} % before, {percent(overall.after)} % "
        f"after; {overall.lost:,} lost, {overall.gained:,} gained"
    )


def markdown(gate: Gate) -> str:
    """The outcome as Markdown: verdict, rules, and the slices with the largest drops."""
    word = "passed" if gate.passed else "FAILED"
    lines = [f"### Forgetting gate {word}", "", f"{headline(gate)}.", ""]
    if gate.judgements:
        lines += ["| rule | verdict | why |", "|---|---|---|"]
        lines += [
            f"| {judgement.rule} | {_word(judgement.passed)} | {_cell(judgement.reason)} |"
            for judgement in gate.judgements
        ]
        lines.append("")
    confidence = f"{100 * (1 - gate.level):g} %"
    lines += [
        f"| slice | samples | before | after | lost | gained | change, {confidence} interval | p (Holm) "
        "| smallest drop it would show |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    shown = [gate.overall, *gate.slices[:_ROWS]]
    lines += [f"| {' | '.join(map(_cell, cells(change)))} |" for change in shown]
    if len(gate.slices) > _ROWS:
        lines += ["", f"{len(gate.slices) - _ROWS} more slices fell less."]
    return "\n".join(lines) + "\n"


def cells(change: Change) -> list[str]:
    """A slice as the cells of a table, in percent."""
    return [
        change.name,
        f"{change.total:,}",
        percent(change.before),
        percent(change.after),
        f"{change.lost:,}",
        f"{change.gained:,}",
        f"{100 * change.change:+.2f} ({percent(change.low)} … {percent(change.high)})",
        p_value(change.p_holm),
        percent(change.smallest_drop),
    ]


def junit(gate: Gate) -> str:
    """The outcome as JUnit XML: one test case per rule.

    Example:
        >>> from engram.results.gate import join, judge, of_table, parse_rule
        >>> old = of_table({"id": [1, 2], "correct": [1, 1]}, source="old")
        >>> gate = judge(join(old, old), [parse_rule("max-drop", "1pp")])
        >>> 'tests="1" failures="1"' in junit(gate)
        True
    """
    failed = sum(not judgement.passed for judgement in gate.judgements)
    counts = {"tests": str(len(gate.judgements)), "failures": str(failed), "errors": "0"}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "engram gate", **counts})
    for judgement in gate.judgements:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "engram.gate", "name": str(judgement.rule)}
        )
        if not judgement.passed:
            failure = ElementTree.SubElement(
                case, "failure", {"type": judgement.rule.shown, "message": judgement.reason}
            )
            failure.text = f"{headline(gate)}; a {judgement.rule.shown} rule {MEANING[judgement.rule.shown]}"
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _word(passed: bool) -> str:
    return "passed" if passed else "**failed**"


def _cell(text: str) -> str:
    """A text that cannot break a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
