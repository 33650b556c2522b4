"""The pages do what they show: files with a title are written, commands run, and their output is compared.

In a block of the kind `console`, lines that begin with `$ ` are commands, and the others what they print;
`...` means anything, and `[exit 1]` an exit code other than 0. Python examples with `>>>` are doctests.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Command(NamedTuple):
    line: str
    output: str
    code: int


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(page.read_text("utf-8")))


def commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        code = re.search(r"^\[exit (\d+)\]\n", output, re.MULTILINE)
        yield Command(
            line, output if code is None else output.replace(code[0], ""), int(code[1]) if code else 0
        )


def with_commands() -> list[Path]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if any(block["kind"] == "console" for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in with_commands()])
def test_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    for block in blocks(page):
        if block["title"]:
            place = tmp_path / block["title"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block["text"])
        elif block["kind"] == "console":
            for command in commands(block["text"]):
                done = subprocess.run(
                    ["bash", "-c", command.line],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
                assert done.returncode == command.code, f"{command.line}\n{done.stdout}"
                same = doctest.OutputChecker().check_output(
                    command.output, done.stdout, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                )
                assert same or not command.output.strip(), f"{command.line}\n{done.stdout}"


def test_there_are_pages_with_commands() -> None:
    assert with_commands()
