"""Reads the definition of a metric from its docstring."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LABELS: Final = ("Formula", "Divisor", "Direction", "NaN", "Elsewhere", "Worked")
_LABEL: Final = re.compile(rf"({'|'.join(_LABELS)}):\s*(.*)")
_SECTION: Final = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Examples?|Note|Notes|See Also):$")


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a metric.

    Attributes:
        meaning: One sentence.
        formula: The formula.
        divisor: The divisor of sums.
        direction: Notes on its sign and size.
        undefined: When it is NaN.
        worked: The formula with the numbers of the worked example in place.
        notes: Edge cases and options.
        elsewhere: What other tools compute under the same name.
    """

    meaning: str
    formula: str = ""
    divisor: str = ""
    direction: str = ""
    undefined: str = ""
    worked: str = ""
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def read_definition(docstring: str, *, meaning: str = "", formula: str = "") -> Definition:
    """The definition in a docstring without its indentation, as `inspect.getdoc` returns it.

    The first paragraph is the meaning. A line that begins with a label (`Formula:`, `Divisor:`, `Direction:`,
    `NaN:`, `Elsewhere:`, `Worked:`) starts that part, which includes the indented lines below it. Other
    paragraphs are notes. Sections such as `Args:` and `Example:` are ignored.

    Args:
        docstring: The docstring.
        meaning: Replaces the first paragraph.
        formula: Replaces the formula.

    Example:
        >>> text = read_definition("What it means.\\n\\nFormula: a +\\n    b\\nNaN: never\\n\\nMore\\ntext.")
        >>> text.meaning, text.formula, text.undefined, text.notes
        ('What it means.', 'a + b', 'never', ('More text.',))
    """
    first, *paragraphs = re.split(r"\n\s*\n", docstring.strip())
    parts: dict[str, list[str]] = {label: [] for label in _LABELS}
    notes = []
    for paragraph in paragraphs:
        lines = paragraph.split("\n")
        # Indented paragraphs belong to the section above them.
        if _SECTION.match(lines[0]) or lines[0].startswith(" "):
            continue
        if _LABEL.match(lines[0]):
            _read_labels(lines, parts)
        else:
            notes.append(_flowing(lines))
    return Definition(
        meaning=meaning or _flowing(first.split("\n")),
        formula=formula or " ".join(parts["Formula"]),
        divisor=" ".join(parts["Divisor"]),
        direction=" ".join(parts["Direction"]),
        undefined=" ".join(parts["NaN"]),
        worked=" ".join(parts["Worked"]),
        notes=tuple(notes),
        elsewhere=tuple(parts["Elsewhere"]),
    )


def _read_labels(lines: list[str], parts: dict[str, list[str]]) -> None:
    label = ""
    for line in lines:
        labelled = _LABEL.match(line)
        if labelled:
            label = labelled[1]
            parts[label].append(labelled[2].strip())
        else:
            parts[label][-1] += f" {line.strip()}"


def _flowing(lines: list[str]) -> str:
    """Lines joined into one text; only list items start a new line."""
    return re.sub(r"\n(?!- )\s*", " ", "\n".join(lines))
