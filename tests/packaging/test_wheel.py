"""The wheel, installed by its name into fresh environments outside the checkout, has all that it needs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import engram

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"])


def command(*arguments: object, folder: Path) -> str:
    """Run a program in a folder, without the checkout on its path; its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment(NamedTuple):
    """A virtual environment with the wheel in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        [place] = (self.folder / "lib").glob("python*/site-packages")
        return place

    def distributions(self) -> set[str]:
        """The names of everything that is installed."""
        code = "import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))"
        names: list[str] = json.loads(command(self.python, "-c", code, folder=self.folder))
        return {canonicalize_name(name) for name in names}


def install(wheel: Path, extra: str | None, folder: Path, *, shared: Path | None = None) -> Environment:
    """Install the wheel and an extra through constraints.txt into a fresh environment.

    The packages in the folder `shared` count as installed, so that torch is unpacked only once.
    """
    command(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    environment = Environment(folder)
    if shared is not None:
        (environment.site_packages / "shared.pth").write_text(f"{shared}\n")
    name = PROJECT["name"] if extra is None else f"{PROJECT['name']}[{extra}]"
    pip = (sys.executable, "-m", "pip", "--python", environment.python)
    what = ("-c", ROOT / "constraints.txt", f"{name} @ {wheel.as_uri()}")
    command(*pip, "install", "--quiet", "--no-compile", *what, folder=folder)
    return environment


def check_command(environment: Environment, folder: Path) -> Path:
    """The package is the installed one, and the command says its version; its path."""
    place = command(environment.python, "-c", "import engram; print(engram.__file__)", folder=folder)
    assert Path(place.strip()).is_relative_to(environment.site_packages)
    program = environment.folder / "bin" / "engram"
    assert PROJECT["version"] in command(program, "--version", folder=folder)
    return program


def check_demo(environment: Environment, folder: Path) -> None:
    """The command runs the demo, from an empty folder."""
    command(check_command(environment, folder), "demo", folder=folder)
    assert (folder / "demo" / "report.html").is_file()
    versions = [json.loads(path.read_text())["versions"] for path in folder.glob("demo/*/result.json")]
    assert versions and all(recorded["engram"] == PROJECT["version"] for recorded in versions)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder outside the checkout. It is removed afterwards: environments with torch are large.

    That takes minutes on some disks, and no test waits for it.
    """
    folder = tempfile.mkdtemp(prefix="engram-wheel-")
    yield Path(folder)
    subprocess.run(["sh", "-c", 'rm -rf "$0" &', folder], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make dist` builds it: from the sdist, which is built from a clean copy."""
    copy = tmp_path_factory.mktemp("copy")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    dist = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "build", "--outdir", dist, copy, folder=copy)
    [built] = dist.glob("*.whl")
    assert built.name.startswith(f"engram_eval-{engram.__version__}-")
    assert len(list(dist.glob("*.tar.gz"))) == 1
    return built


@pytest.fixture(scope="module")
def plain(wheel: Path, place: Path) -> Environment:
    """Without any extra, and so without torch."""
    return install(wheel, None, place / "plain")


@pytest.fixture(scope="module")
def with_torch(wheel: Path, place: Path) -> Environment:
    return install(wheel, "torch", place / "torch")


@pytest.fixture(scope="module")
def shared(with_torch: Environment, place: Path) -> Path:
    """What engram and torch depend on, without engram: an extra's environment has to install that itself."""
    folder = place / "shared"
    folder.mkdir()
    for entry in with_torch.site_packages.iterdir():
        if entry.name != "engram" and not entry.name.startswith("engram_eval"):
            (folder / entry.name).symlink_to(entry)
    return folder


def test_the_versions_agree() -> None:
    assert PROJECT["name"] == "engram-eval"
    assert PROJECT["version"] == engram.__version__
    assert f"version: {engram.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    package = ROOT / "src" / "engram"
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(file).suffix for file in files} >= {
        ".css",
        ".csv",
        ".html",
        ".js",
        ".json",
        ".toml",
        ".typed",
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    # The pytest plugin is a module beside the package.
    assert names == files | {"engram_pytest.py"}


def test_it_works_without_torch(plain: Environment, tmp_path: Path) -> None:
    assert not {"torch", "scikit-learn"} & plain.distributions()
    shutil.copy(ROOT / "tests" / "packaging" / "without_torch.py", tmp_path)
    output = command(plain.python, "without_torch.py", folder=tmp_path)
    assert output.splitlines()[-1] == "all of it works"


def test_the_demo_runs_with_torch(with_torch: Environment, plain: Environment, tmp_path: Path) -> None:
    assert {"torch", "scikit-learn"} <= with_torch.distributions() - plain.distributions()
    check_demo(with_torch, tmp_path)


@pytest.mark.parametrize("extra", [extra for extra in EXTRAS if extra != "torch"])
def test_an_extra_brings_what_it_needs(
    extra: str, wheel: Path, plain: Environment, shared: Path, place: Path, tmp_path: Path
) -> None:
    requirements = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
    names = {canonicalize_name(requirement.name) for requirement in requirements} - {PROJECT["name"]}
    assert not names & plain.distributions(), "these would be there without the extra"
    environment = install(wheel, extra, place / extra, shared=shared)
    assert names <= environment.distributions()
    check_command(environment, tmp_path)


def test_every_extra_is_installed_for_some_tests() -> None:
    """Light ones are part of the development extra; the others have the environments of the Makefile."""
    light = {
        extra
        for text in PROJECT["optional-dependencies"]["dev"]
        if (requirement := Requirement(text)).name == PROJECT["name"]
        for extra in requirement.extras
    }
    [line] = [
        line
        for line in (ROOT / "Makefile").read_text().splitlines()
        if "tests/interop/req" in line and "pip" in line
    ]
    [listed] = re.findall(r"'\.\[(.*?)\]'", line)
    assert light | set(listed.split(",")) | {"docs"} == set(EXTRAS)
    assert '["optional-dependencies"]["docs"]' in (ROOT / "Makefile").read_text()
