"""What `engram explain` says about one thing, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.text import Text

from engram.cli.output import stdout
from engram.cli.tables import print_facts, wrapped
from engram.core.jsons import JsonObject


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one thing.

    Attributes:
        kind: What it is: a method, a metric, …
        name: What people type.
        heading: Its name and title.
        text: A few sentences.
        lines: Facts by their labels, in the order in which they are shown; empty ones are left out.
    """

    kind: str
    name: str
    heading: str
    text: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """The explanation as JSON.

        Example:
            >>> Explanation("model", "mlp", "mlp", lines={"options": ""}).as_json()["facts"]
            {}
        """
        facts = {label: text for label, text in self.lines.items() if text}
        return {
            "kind": self.kind,
            "name": self.name,
            "heading": self.heading,
            "text": self.text,
            "facts": facts,
        }

    def show(self) -> None:
        """Print it."""
        stdout.print()
        stdout.print(Text(self.heading, "bold"), soft_wrap=True)
        if self.text:
            stdout.print(Text("\n".join(wrapped(flowing(self.text), stdout.width))), soft_wrap=True)
        facts = {label: text for label, text in self.lines.items() if text}
        if self.text and facts:
            stdout.print()
        print_facts(facts)


def flowing(text: str) -> str:
    """Text without the line ends of the source; lists, examples and lines such as `Source:` begin anew.

    Example:
        >>> flowing("One\\ntwo.\\nSource: here.\\n\\n- a\\n- b")
        'One two.\\nSource: here.\\n\\n- a\\n- b'
    """
    return re.sub(r"(?<!\n)\n(?![\n\s\-]|[A-Z]\w*:|>>>)", " ", text)


def prose(docstring: str) -> str:
    """A docstring without its sections for programmers.

    Example:
        >>> prose("A network.\\n\\nMore of it.\\n\\nExample:\\n    >>> net = make()")
        'A network.\\n\\nMore of it.'
    """
    return re.split(r"\n\n?(?:Args|Attributes|Example|Examples|Raises|Returns):\n", docstring)[0].strip()
