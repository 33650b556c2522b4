"""Tables of results as text: Markdown, and LaTeX with booktabs. Numbers are in percent."""

from __future__ import annotations

import math
from typing import Final

from engram.results.table import Block, Cell, Row, Spread, Table, direction

_SAID: Final = {
    "interval": "mean (95 % interval) over seeds, in percent",
    "sd": "mean ± SD (n − 1) over seeds, in percent",
    "none": "mean over seeds, in percent",
}
_LATEX: Final = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    "–": "--",
    "Ω": r"$\Omega$",
    "λ": r"$\lambda$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


def markdown(table: Table, *, spread: Spread = "interval", digits: int = 2) -> str:
    """A table as Markdown, one block per scenario; the best in bold if it was asked for.

    Example:
        >>> from engram.record.run import Run
        >>> from engram.results.table import table_of
        >>> described = {"method": "er", "label": "er", "seed": 0}
        >>> print(markdown(table_of([Run(description=described, stored={"ACC": 0.5})])))
        | method | ACC ↑ | seeds |
        |---|---:|---:|
        | er | 50.00 | 1 |
        <BLANKLINE>
        mean (95 % interval) over seeds, in percent
    """
    blocks = []
    for block in table.blocks:
        title = [f"### {block.title}", ""] if len(table.blocks) > 1 else []
        heads = [*table.by, *(_head(name) for name in table.metrics), "seeds"]
        lines = [
            _line(heads),
            "|" + "---|" * len(table.by) + "---:|" * (len(table.metrics) + 1),
            *(_line(_cells(row, spread, digits)) for row in block.rows),
        ]
        blocks.append("\n".join([*title, *lines]))
    return "\n\n".join([*blocks, _SAID[spread], *table.notes])


def latex(table: Table, *, spread: Spread = "interval", digits: int = 2) -> str:
    r"""A table as LaTeX, which needs the package booktabs; the best in bold if it was asked for.

    Example:
        >>> from engram.record.run import Run
        >>> from engram.results.table import table_of
        >>> described = {"method": "my_er", "label": "my_er", "seed": 0}
        >>> print(latex(table_of([Run(description=described, stored={"ACC": 0.5})])))
        % \usepackage{booktabs}
        \begin{tabular}{lrr}
        \toprule
        method & ACC $\uparrow$ & seeds \\
        \midrule
        my\_er & 50.00 & 1 \\
        \bottomrule
        \end{tabular}
        % mean (95 \% interval) over seeds, in percent
    """
    columns = len(table.by) + len(table.metrics) + 1
    heads = [*table.by, *(_head(name) for name in table.metrics), "seeds"]
    lines = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{'l' * len(table.by)}{'r' * (columns - len(table.by))}}}",
        r"\toprule",
        _latex_line([escaped(head) for head in heads]),
    ]
    for block in table.blocks:
        lines.append(r"\midrule")
        if len(table.blocks) > 1:
            lines.append(rf"\multicolumn{{{columns}}}{{l}}{{\emph{{{escaped(block.title)}}}}} \\")
        lines += _latex_rows(block, spread, digits)
    notes = [f"% {escaped(note)}" for note in (_SAID[spread], *table.notes)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes])


def escaped(text: str) -> str:
    r"""Text for LaTeX: characters with a meaning are written so that they are printed.

    Example:
        >>> escaped("50 % of a_b & {c}")
        '50 \\% of a\\_b \\& \\{c\\}'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex_rows(block: Block, spread: Spread, digits: int) -> list[str]:
    return [
        _latex_line(
            [
                *map(escaped, row.names),
                *(_in_latex(cell, row, spread, digits) for cell in row.cells.values()),
                str(row.seeds),
            ]
        )
        for row in block.rows
    ]


def _in_latex(cell: Cell, row: Row, spread: Spread, digits: int) -> str:
    text = escaped(_value(cell, row, spread, digits))
    return rf"\textbf{{{text}}}" if cell.best else text


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _head(metric: str) -> str:
    better = direction(metric)
    return metric if better is None else f"{metric} {'↑' if better else '↓'}"


def _line(cells: list[str]) -> str:
    # A bar would begin another cell.
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cells(row: Row, spread: Spread, digits: int) -> list[str]:
    values = [(_value(cell, row, spread, digits), cell.best) for cell in row.cells.values()]
    return [*row.names, *(f"**{text}**" if best else text for text, best in values), str(row.seeds)]


def _value(cell: Cell, row: Row, spread: Spread, digits: int) -> str:
    over = cell.over
    if not math.isfinite(over.mean):
        return "–"
    text = _percent(over.mean, digits)
    if spread == "sd" and math.isfinite(over.sd):
        text += f" ± {_percent(over.sd, digits)}"
    elif spread == "interval" and all(map(math.isfinite, over.ci95)):
        text += f" ({' … '.join(_percent(edge, digits) for edge in over.ci95)})"
    # Some seeds may have no value.
    return text if over.n == row.seeds else f"{text}, n = {over.n}"


def _percent(value: float, digits: int) -> str:
    # Adding zero turns a rounded -0.0 into 0.0.
    return f"{round(100 * value, digits) + 0.0:.{digits}f}".replace("-", "−")
