"""`python -m benchmarks [NAME …]`: run benchmarks, and print ratios measured side by side."""

from __future__ import annotations

import argparse
import json
from importlib import import_module

from rich.console import Console

from benchmarks.report import Options, Report, Skipped

BENCHMARKS = {
    "startup": "import engram and engram --help",
    "streaming": "the streaming metrics",
    "methods": "time of an update and bytes kept, of every method",
    "layout": "convolutions of images with channels last and first in memory",
    "probing": "k-shot probes of the next task against an epoch",
    "threads": "one and two threads on a quiet and a busy machine",
    "sweep": "sixteen runs: two processes against one",
    "job": "Split-Fashion-MNIST with replay: engram, a loop by hand, matrix products, Avalanche",
}
ROUNDS, QUICK_ROUNDS = 5, 3


def main() -> None:
    listed = "\n".join(f"  {name:<10} {what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Measure engram against other ways of doing the same work.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; all unless named")
    parser.add_argument("--quick", action="store_true", help="rough figures, from less work")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, help=f"measurements of each figure ({ROUNDS} unless said)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the job (2 unless said)")
    parser.add_argument(
        "--tasks", type=int, default=3, help="tasks that methods have learned (3 unless said)"
    )
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}: choose of {', '.join(BENCHMARKS)}")
    for name in ("rounds", "threads", "tasks"):
        if (value := getattr(given, name)) is not None and value < 1:
            parser.error(f"--{name} {value} cannot be used: give 1 or more")
    options = Options(
        rounds=given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS),
        quick=given.quick,
        threads=given.threads,
        tasks=given.tasks,
    )
    console = Console(stderr=given.json, width=None if Console().is_terminal else 140)
    found: dict[str, list[Report] | str] = {}
    for name in given.names or BENCHMARKS:
        try:
            found[name] = reports = import_module(f"benchmarks.{name}").measure(options)
        except Skipped as reason:
            found[name] = str(reason)
            console.print(f"{name} is skipped: {reason}\n", soft_wrap=True, markup=False, highlight=False)
            continue
        for report in reports:
            report.show(console)
    if given.json:
        print(json.dumps({name: as_json(outcome) for name, outcome in found.items()}, indent=2))


def as_json(outcome: list[Report] | str) -> object:
    """What `--json` prints of one benchmark."""
    return {"skipped": outcome} if isinstance(outcome, str) else [report.as_json() for report in outcome]


if __name__ == "__main__":
    main()
