"""Avalanche in an environment of its own, so that its 60 packages never mix with those that engram needs.

`python -m benchmarks.avalanche_env` creates `benchmarks/.avalanche-venv` on top of the environment that it
runs in, whose torch it uses; after that the contestants of `python -m benchmarks job` include Avalanche, and
the tests of its plugin run.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / ".avalanche-venv"
OPERATORS = Path(__file__).with_name("torchvision_operators.py")
COMMAND = "python -m benchmarks.avalanche_env"
AVALANCHE = "0.6.0"
TORCHVISION = {"2.13": "0.28.0"}
"""The torchvision version for each torch version."""


def python() -> Path | None:
    """The environment's interpreter, if the environment is complete."""
    interpreter = FOLDER / "bin" / "python"
    return interpreter if (FOLDER / "complete").exists() else None


def main() -> None:
    torch = version("torch").partition("+")[0]
    series = torch.rpartition(".")[0]
    if series not in TORCHVISION:
        sys.exit(f"error: no torchvision is known for torch {torch}: add its version to {__file__}")
    venv.create(FOLDER, with_pip=True, clear=True)
    # Keep git, ruff and mypy out of the environment.
    (FOLDER / ".gitignore").write_text("*\n")
    [packages] = FOLDER.glob("lib/python*/site-packages")
    # What engram needs counts as installed, so that torch, which is large, is not unpacked once more.
    (packages / "engram_needs.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    wanted = [f"torch=={torch}", f"torchvision=={TORCHVISION[series]}", f"avalanche-lib=={AVALANCHE}"]
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    options = ["--quiet", "--no-compile", *constraints]
    subprocess.run([*pip, "install", *options, *wanted, "-e", f"{ROOT}[torch]"], check=True)
    shutil.copy(OPERATORS, packages)
    (packages / f"{OPERATORS.stem}.pth").write_text(f"import {OPERATORS.stem}\n")
    (FOLDER / "complete").touch()
    print(f"Avalanche {AVALANCHE} is in {FOLDER}")


if __name__ == "__main__":
    main()
