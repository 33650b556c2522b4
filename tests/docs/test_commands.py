"""The command lines on the pages are ones that the command line accepts; nothing is run."""

import re
import shlex
from pathlib import Path

import pytest
from typer import Context
from typer.main import get_command

from engram.cli.app import app
from engram.cli.verbs import Verbs

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "overview.md")


def command_lines() -> list[str]:
    """The lines of code that begin with `engram`, without their comments; for `a|b`, the first."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    lines = re.findall(r"^ {4}(engram .*)$", text, re.MULTILINE)
    return sorted({re.sub(r"\|\S*", "", line.partition("#")[0].strip()) for line in lines})


@pytest.mark.parametrize("line", command_lines())
def test_a_command_is_accepted(line: str) -> None:
    command, words = get_command(app), shlex.split(line)[1:]
    while isinstance(command, Verbs):
        _, command, words = command.resolve_command(Context(command), words)
    command.make_context("engram", words)


def test_there_are_commands() -> None:
    assert len(command_lines()) > 10
