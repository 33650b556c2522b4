"""`python -m benchmarks [NAME …]`: run benchmarks, and print ratios measured side by side."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path

from rich.console import Console

from benchmarks.report import Options, Report, Skipped

BENCHMARKS = {
    "startup": "import engram and engram --help",
    "streaming": "the streaming metrics",
    "methods": "time of an update and bytes kept, of every method",
    "layout": "convolutions of images with channels last and first in memory",
    "precision": "half precision, checked: wrong bits, samples asked again, time",
    "isolation": "restoring the network after every evaluation against the whole run",
    "probing": "k-shot probes of the next task against an epoch",
    "threads": "one and two threads on an idle and a busy machine",
    "memory": "updates of a large network, with freed memory kept and returned to the system",
    "parallel": "learner and evaluators side by side, in line, and each alone",
    "extremes": "extremes on subsets: bias, error and coverage, as measured and corrected",
    "checkpoints": "one checkpoint, and the part of a run that they take by default",
    "compare": "engram compare of 2,000 runs",
    "statistics": "coverage, false positives and power of intervals and tests, simulated",
    "sweep": "sixteen runs: two processes against one",
    "many_runs": "the list of tables beside two thousand finished runs",
    "scale": "sizes, files, time and memory of 1,000 and 10,000 runs",
    "gate": "engram gate on a million samples in a thousand slices",
    "large_results": "commands on a compact store of 10,000 runs",
    "two_level": "two-level samples: errors against all samples at every update, and their price",
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
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="rough figures from less work")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, help=f"measurements per figure (default: {ROUNDS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of the job (default: 2)")
    parser.add_argument("--tasks", type=int, default=3, help="tasks that methods have learned (default: 3)")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="table of what was measured; continued if it exists (precision)",
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    for name in ("rounds", "threads", "tasks"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} must be at least 1, got {value}")
    options = Options(
        rounds=arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS),
        quick=arguments.quick,
        threads=arguments.threads,
        tasks=arguments.tasks,
        keep=arguments.keep,
    )
    console = Console(stderr=arguments.json, width=None if Console().is_terminal else 140)
    outcomes: dict[str, list[Report] | str] = {}
    for name in arguments.names or BENCHMARKS:
        try:
            outcomes[name] = reports = import_module(f"benchmarks.{name}").measure(options)
        except Skipped as reason:
            outcomes[name] = str(reason)
            console.print(f"{name} is skipped: {reason}\n", soft_wrap=True, markup=False, highlight=False)
            continue
        for report in reports:
            report.show(console)
    if arguments.json:
        print(json.dumps({name: as_json(outcome) for name, outcome in outcomes.items()}, indent=2))


def as_json(outcome: list[Report] | str) -> object:
    """What `--json` prints of one benchmark."""
    return {"skipped": outcome} if isinstance(outcome, str) else [report.as_json() for report in outcome]


if __name__ == "__main__":
    main()
