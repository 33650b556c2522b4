"""How the pages of the documentation are executed: their blocks in order, in one empty folder.

- A block with a title (```` ```python title="train.py" ````) is written to a file of that name. A later block
  must use it; YAML, TOML and JSON are parsed, which is enough for files that other programs read.
- `python`: the blocks of a page share their names. Examples with `>>>` are doctests; of the others, what is
  printed is compared with the block `text` that follows, if there is one. Set-up that readers need not see is
  a comment, `<!--`, with lines that begin with `>>>`.
- `console`: lines that begin with `$ ` are commands, the others what they print on stdout and stderr; without
  any, nothing is compared. `[exit 1]` is an exit code other than 0.
- `yaml`, `toml` and `json` without a title are parsed.

In what is printed, `...` stands for anything, and spaces and line breaks count the same.

Pages with commands are executed by `make test-slow`, as each starts a process, others by `make test`.
A comment at the top of a page says otherwise: `<!-- tests: slow -->`, or `<!-- tests: integrations
needs=lightning,torchmetrics -->` where other libraries are required; with `environment=avalanche`, commands
run in the environment of that name. A comment before a block, `<!-- not run: REASON -->`, exempts it:
commands in it are then checked against the command line and the Makefile only.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
import yaml
from benchmarks import avalanche_env
from markdown_it import MarkdownIt
from typer import Context
from typer.main import get_command

from engram.cli.app import app
from engram.cli.verbs import Verbs

ROOT = Path(__file__).parents[2]
SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]


class Environment(Protocol):
    """An environment of its own, which a module of the benchmarks makes."""

    COMMAND: str

    def python(self) -> Path | None:
        """Its interpreter, if it was made."""


ENVIRONMENTS: dict[str, Environment] = {"avalanche": avalanche_env}

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_PARSED = ("yaml", "toml", "json")
_SECONDS = 300


class NothingExecutes(AssertionError):
    """A block that the tests cannot execute."""


@dataclass(frozen=True)
class Block:
    """A block of code on a page.

    Attributes:
        kind: What is written after the opening fence; `indented` for blocks without fences.
        title: The name of the file that it is.
        text: Its lines.
        line: Where it begins on the page.
        exempt: Why it is not run, if it is not.
    """

    kind: str
    title: str
    text: str
    line: int
    exempt: str = ""

    @property
    def examples(self) -> bool:
        """Whether it is a doctest."""
        return self.kind == "python" and not self.title and self.text.lstrip().startswith(">>>")

    @property
    def runs(self) -> bool:
        """Whether it does something that may use a file."""
        return not self.exempt and not self.title and self.kind in ("python", "console")


class Command(NamedTuple):
    """A command of a block `console`, what it prints, and its exit code."""

    line: str
    output: str
    code: int


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The blocks of a page, and the set-up in its comments."""
    return tuple(_blocks(page.read_text("utf-8")))


def _blocks(text: str) -> Iterator[Block]:
    exempt = ""
    for token in MarkdownIt("commonmark").parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            reason = re.match(r"<!-- not run: (.+?) -->", token.content, re.DOTALL)
            exempt = reason[1] if reason else ""
            if hidden := re.match(r"<!--\n(>>>.*?)-->", token.content, re.DOTALL):
                yield Block("python", "", hidden[1], line + 1)
        elif token.type in ("fence", "code_block"):
            info = re.fullmatch(r"(\w*)(?: title=\"([^\"]+)\")?", token.info.strip())
            kind, title = (info[1], info[2] or "") if info else (token.info, "")
            named = re.match(r"# ([\w.-]+\.py)\n", token.content)
            yield Block(
                "indented" if token.type == "code_block" else kind,
                named[1] if named and not title else title,
                token.content,
                line + (token.type == "fence"),
                exempt,
            )
            exempt = ""
        elif token.type == "inline":
            exempt = ""


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """When a page is executed, as its first comment says; by default, pages with commands are slow."""
    note = re.search(r"^<!-- tests: (.+?) -->$", page.read_text("utf-8"), re.MULTILINE)
    chosen: list[pytest.MarkDecorator] = []
    for word in note[1].split() if note else ():
        name, _, libraries = word.partition("=")
        if name == "needs":
            missing = [library for library in libraries.split(",") if find_spec(library) is None]
            chosen.append(pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}"))
        elif name == "integrations":
            # What other libraries warn of is not ours.
            chosen += [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
        elif name == "environment":
            made = ENVIRONMENTS[libraries].python() is not None
            chosen.append(pytest.mark.skipif(not made, reason=f"needs `{ENVIRONMENTS[libraries].COMMAND}`"))
        elif name == "slow":
            chosen.append(pytest.mark.slow)
        else:
            raise ValueError(f"{page}: use `slow`, `integrations`, `needs=` or `environment=`, not {word!r}")
    if not chosen and any(block.kind == "console" and block.runs for block in blocks(page)):
        chosen.append(pytest.mark.slow)
    return chosen


def interpreter(page: Path) -> Path:
    """The Python with which the commands of a page run: that of its environment, or this one."""
    note = re.search(r"^<!-- tests: .*environment=(\w+)", page.read_text("utf-8"), re.MULTILINE)
    python = ENVIRONMENTS[note[1]].python() if note else None
    return python or Path(sys.executable)


def commands(text: str) -> Iterator[Command]:
    """The commands of a block `console`; a line that ends in a backslash goes on."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        typed = re.match(r"(?:.*\\\n)*.*", part)
        assert typed is not None
        line, output = re.sub(r"\\\n(> )?", "", typed[0]), part[typed.end() :].removeprefix("\n")
        code = re.search(r"^\[exit (\d+)\]\n", output, re.MULTILINE)
        yield Command(
            line, output if code is None else output.replace(code[0], ""), int(code[1]) if code else 0
        )


# Execution ------------------------------------------------------------------------------------------


def execute(page: Path, folder: Path) -> None:
    """Execute the blocks of a page in a folder, which is the current one and on the path of imports.

    Raises:
        AssertionError: A block does not do what the page says.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(page):
        place = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.exempt:
            continue
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.examples:
            _examples(block, names, page)
        elif block.kind == "python":
            printed = _statements(block, names, page)
            continue
        elif block.kind == "text" and printed is not None:
            assert _same(block.text, printed), f"{place}: printed\n{printed}"
        elif block.kind == "console":
            for command in commands(block.text):
                _command(command, folder, place, interpreter(page))
        printed = None


def _examples(block: Block, names: dict[str, object], page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, page.stem, str(page), block.line - 1)
    test.globs = names
    report = io.StringIO()
    outcome = doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=report.write, clear_globs=False)
    assert not outcome.failed, report.getvalue()


def _statements(block: Block, names: dict[str, object], page: Path) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # Line numbers in tracebacks are those of the page.
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
    return printed.getvalue()


def _command(command: Command, folder: Path, place: str, python: Path) -> None:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    said = f"{place}: {command.line}\n{done.stdout}"
    assert done.returncode == command.code, said
    assert not command.output.strip() or _same(command.output, done.stdout), said


def _same(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, _FLAGS)


# What nothing executes ------------------------------------------------------------------------------


def check_executed(page: Path) -> None:
    """Check that the tests execute every block of a page, or at least check what is exempt.

    Raises:
        NothingExecutes: They do not.
    """
    every = blocks(page)
    for number, block in enumerate(every):
        place = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.exempt:
            if len(block.exempt) < 10:
                raise NothingExecutes(f"{place}: say why it is not run, got {block.exempt!r}")
            for line in _typed(block):
                check_accepted(line, place)
        elif block.kind in _PARSED:
            _parse(block, place)
        elif block.title:
            name = Path(block.title).stem
            if not any(later.runs and name in later.text for later in every[number + 1 :]):
                raise NothingExecutes(f"{place}: no later block uses {block.title}")
        elif not (block.runs or (block.kind == "text" and _follows_code(every, number))):
            raise NothingExecutes(f"{place}: nothing executes this block ({block.kind or 'of no kind'})")


def _follows_code(every: tuple[Block, ...], number: int) -> bool:
    before = every[number - 1] if number else None
    return before is not None and before.kind == "python" and before.runs and not before.examples


def _parse(block: Block, place: str) -> None:
    parsers: dict[str, Callable[[str], object]] = {
        "yaml": yaml.safe_load,
        "toml": tomllib.loads,
        "json": json.loads,
    }
    try:
        parsers[block.kind](block.text)
    except (yaml.YAMLError, ValueError) as error:
        raise NothingExecutes(f"{place}: not valid {block.kind}: {error}") from error


def _typed(block: Block) -> Iterator[str]:
    """The lines of a block that are commands, without comments; of `a|b`, the first."""
    if block.kind == "console":
        yield from (command.line for command in commands(block.text))
    for line in block.text.splitlines() if block.kind in ("indented", "text") else ():
        if line.startswith(("engram ", "make ")):
            yield re.sub(r"\|\S*", "", line.partition("#")[0].strip())


def check_accepted(line: str, place: str) -> None:
    """Check that the command line, or the Makefile, takes a command; nothing is run.

    Raises:
        NothingExecutes: It does not.
    """
    words = shlex.split(line)
    if words[:1] == ["make"]:
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        if unknown := [word for word in words[1:] if "=" not in word and word not in targets]:
            raise NothingExecutes(f"{place}: the Makefile has no {', '.join(unknown)}")
    if words[:1] != ["engram"]:
        return
    command, words = get_command(app), words[1:]
    while isinstance(command, Verbs):
        _, command, words = command.resolve_command(Context(command), words)
    command.make_context("engram", words)
