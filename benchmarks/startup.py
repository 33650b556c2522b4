"""The time of `import engram` and `engram --help`, and the heavy modules that they import."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.report import Options, Report, figure, ratios

HEAVY = ("torch", "sklearn", "plotly", "scipy", "polars")
LEAN = f"import json, sys; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
HELP = "import sys; sys.argv[1:] = ['--help']; from engram.cli import main; main()"


def measure(options: Options) -> list[Report]:
    """Time fresh interpreters: one that does nothing, one that imports, one that prints the help."""
    codes = {"nothing": "pass", "import": "import engram", "help": HELP}
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(options.rounds):
        for name, code in codes.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    # The time that the import adds to the start of an interpreter, round by round.
    added = [one - other for one, other in zip(seconds["import"], seconds["nothing"], strict=True)]
    loaded = {name: heavy_modules(codes[name]) for name in ("import", "help")}
    shown = Report("Start-up, against an interpreter that does nothing")
    shown.figures = [
        figure("import engram / nothing", ratios(seconds["import"], seconds["nothing"])),
        figure("engram --help / nothing", ratios(seconds["help"], seconds["nothing"])),
        figure("import engram", added, unit="s", target=0.15, note="on an idle machine"),
        figure("engram --help", seconds["help"], unit="s", target=0.5, note="on an idle machine"),
        figure(
            "heavy modules imported",
            [float(sum(map(len, loaded.values())))],
            unit="modules",
            target=0,
            note=f"of {', '.join(HEAVY)}",
        ),
    ]
    shown.remarks = [f"{name} imports {', '.join(modules)}" for name, modules in loaded.items() if modules]
    return [shown]


def heavy_modules(code: str) -> list[str]:
    """Which of the heavy modules some code imports."""
    program = f"try:\n    exec({code!r})\nexcept SystemExit:\n    pass\n{LEAN}"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules
