"""`python -m engram.papers.renew`: judge all records anew, and write the pages that show them.

In a copy of the repository. With `--extend NAME FOLDER`, finished runs in a folder of runs are added to the
record of a table first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engram.core.files import write_json, write_whole
from engram.core.jsons import JsonMapping
from engram.papers.extend import judged, with_finished
from engram.papers.recorded import document, everything
from engram.papers.summary import filled

RECORDS = Path(__file__).parent / "recorded"


def main() -> None:
    """Write what changed, and say which files these are."""
    parser = argparse.ArgumentParser(prog="python -m engram.papers.renew", description=__doc__)
    parser.add_argument(
        "--extend",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "FOLDER"),
        help="add the finished runs in FOLDER to the record of the table NAME; may be repeated",
    )
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the pages are (default: docs)")
    arguments = parser.parse_args()
    summary = arguments.docs / "reproduced.md"
    if not summary.is_file():
        parser.error(f"{summary} does not exist: run this in a copy of the repository, or give --docs")
    for name, folder in arguments.extend:
        _keep(with_finished(name, Path(folder)))
        # The next may extend the same table.
        everything.cache_clear()
    for written in everything():
        _keep(judged(written))
    everything.cache_clear()
    _write(arguments.docs / "reproduction.md", document())
    _write(summary, filled(summary.read_text("utf-8")))


def _keep(written: JsonMapping) -> None:
    name = "-".join(word for word in (written["name"], written["follow"]) if word)
    before = next(
        (old for old in everything() if (old["name"], old["follow"]) == (written["name"], written["follow"])),
        None,
    )
    if written != before:
        write_json(RECORDS / f"{name}.json", written)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in written["verdicts"].items())
        sys.stdout.write(f"{name}: {counts}\n")


def _write(page: Path, text: str) -> None:
    if not page.is_file() or page.read_text("utf-8") != text:
        write_whole(page, lambda beside: beside.write_text(text, encoding="utf-8"))
        sys.stdout.write(f"{page}\n")


if __name__ == "__main__":
    main()
