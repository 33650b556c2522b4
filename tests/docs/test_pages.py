"""The pages do what they show: `pages.py` says how their blocks are executed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.docs import pages
from tests.docs.pages import NothingExecutes, check_executed, execute, marks


def _name(page: Path) -> str:
    return str(page.relative_to(pages.ROOT).with_suffix(""))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_name(page), marks=marks(page))
        for page in pages.PAGES
        if any(block.runs for block in pages.blocks(page))
    ],
)
def test_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        execute(page, tmp_path)
    finally:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[name]


@pytest.mark.parametrize("page", pages.SITE, ids=_name)
def test_every_block_is_executed(page: Path) -> None:
    check_executed(page)


def commands_of_lists() -> list[str]:
    """The commands in blocks without fences on the pages that are not on the site."""
    outside = [page for page in pages.PAGES if page not in pages.SITE]
    texts = [block.text for page in outside for block in pages.blocks(page) if block.kind == "indented"]
    lines = [line.partition("#")[0].strip() for text in texts for line in text.splitlines()]
    return sorted({line for line in lines if line.startswith(("engram ", "make "))})


@pytest.mark.parametrize("line", commands_of_lists())
def test_a_command_is_accepted(line: str) -> None:
    pages.check_accepted(line, "README.md or CONTRIBUTING.md")


# The mechanism itself -------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page that is yet to be written, beside which its blocks are executed."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "page.md"


def test_blocks_are_executed_in_order(written: Path) -> None:
    written.write_text(
        "<!--\n>>> hidden = 2\n\n-->\n"
        '```python title="double.py"\nimport sys\nprint(2 * int(sys.argv[1]))\n```\n\n'
        "```console\n$ python double.py \\\n> 21\n42\n$ python -c 'raise SystemExit(3)'\n[exit 3]\n```\n\n"
        '```text title="slash.txt"\na \\\nb\n```\n\n```console\n$ cat slash.txt\na \\\nb\n```\n\n'
        "```python\nfor number in range(hidden):\n    print(number)\n```\n\n```text\n0\n...\n```\n\n"
        "```python\n>>> number\n1\n```\n"
    )
    check_executed(written)
    execute(written, written.parent)


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ true\n[exit 1]\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nassert False\n```\n",
    ],
)
def test_what_a_page_shows_must_be_so(written: Path, text: str) -> None:
    written.write_text(text)
    check_executed(written)
    with pytest.raises(AssertionError):
        execute(written, written.parent)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```bash\nls\n```\n", "nothing executes this block"),
        ("```\nls\n```\n", "nothing executes this block"),
        ("Some words.\n\n    engram list methods\n", "nothing executes this block"),
        ("```text\nwords\n```\n", "nothing executes this block"),
        ('```python title="unused.py"\n1\n```\n', "no later block uses unused.py"),
        ("```yaml\na: [\n```\n", "not valid yaml"),
        ("```json\n{a}\n```\n", "not valid json"),
        ("<!-- not run: dull -->\n```console\n$ ls\n```\n", "say why it is not run"),
        ("<!-- not run: it would take a while -->\n\n    make it-so\n", "the Makefile has no it-so"),
    ],
)
def test_a_block_that_nothing_executes_is_noticed(written: Path, text: str, reason: str) -> None:
    written.write_text(text)
    (written.parent / "Makefile").write_text("test:\n")
    with pytest.raises(NothingExecutes, match=reason):
        check_executed(written)


def test_commands_that_are_not_run_are_checked(written: Path) -> None:
    written.write_text("<!-- not run: it needs a large data set -->\n\n    engram run --no-such-option 1\n")
    with pytest.raises(Exception, match="no-such-option"):
        check_executed(written)


def test_pages_say_when_they_are_executed(written: Path) -> None:
    written.write_text("<!-- tests: slow integrations needs=engram,no_such_library -->\n# A page\n")
    names = [mark.name for mark in marks(written)]
    assert names == ["slow", "integrations", "filterwarnings", "skipif"]
    assert marks(written)[-1].mark.kwargs["reason"] == "needs no_such_library"
    written.write_text("<!-- tests: integrations environment=avalanche -->\n# A page\n")
    assert [mark.name for mark in marks(written)] == ["integrations", "filterwarnings", "skipif"]
    written.write_text("<!-- tests: seldom -->\n# A page\n")
    with pytest.raises(ValueError, match="seldom"):
        marks(written)


def test_commands_run_in_the_environment_of_a_page(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "made" / "python"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho the other one\n")
    script.chmod(0o755)
    made = SimpleNamespace(python=lambda: script, COMMAND="python -m made")
    monkeypatch.setitem(pages.ENVIRONMENTS, "avalanche", made)
    block = "```console\n$ python -c 'print(1)'\nthe other one\n```\n"
    written.write_text(f"<!-- tests: environment=avalanche -->\n{block}")
    assert not marks(written)[0].mark.args[0]
    execute(written, tmp_path)
    written.write_text(block.replace("the other one", "1"))
    pages.blocks.cache_clear()
    execute(written, tmp_path)
