"""What asks for too much, or what a machine has too little of, is one line and exit code 2."""

import errno
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from tests.cli.command import Engram

from engram.cli import main
from engram.core.errors import InputError
from engram.core.files import read_json
from engram.core.registry import Registry
from engram.datasets import formats
from engram.datasets.download import fetch
from engram.datasets.sources import Remote
from engram.engine.recipe import experiment
from engram.protocols.sweep_file import expand
from engram.record.experiment import Experiment
from engram.scenarios.values import Scenario


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--threads", "100000"], "threads must be at most"),
        (["--seeds", "100000000"], "seeds must be at most 100000, got 100000000"),
    ],
)
def test_too_much_is_refused(engram: Engram, options: list[str], words: str) -> None:
    done = engram("run", "split-digits", "finetune", *options)
    assert done.returncode == 2
    assert words in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_too_many_seeds_of_a_sweep_are_refused() -> None:
    with pytest.raises(InputError, match="seeds must be at most 100000"):
        expand({"scenario": "split-digits", "method": "er", "seeds": 10**8})


def test_too_many_combinations_of_a_sweep_are_refused() -> None:
    """Each axis on its own is short enough."""
    grid = {"lr": [0.001 * (n + 1) for n in range(199)], "seeds": 1000}
    fields = {"er": {"memory": list(range(1, 200))}, "ewc": {"strength": [1.0, 2.0]}}
    table = {"scenario": "split-digits", "method": ["er", "ewc"], "set": fields, **grid}
    with pytest.raises(InputError, match="at most 100,000 runs, got 39,999,000"):
        expand(table)
    assert len(expand({**table, "seeds": 1, "lr": 0.1}).experiments) == 201


def test_a_configuration_that_is_nested_too_deeply(engram: Engram, tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("x = " + "[" * 20000 + "]" * 20000)
    for command in (["run", "split-digits", "er", "--config", str(file)], ["sweep", str(file)]):
        done = engram(*command)
        assert done.returncode == 2 and "nested too deeply" in done.stderr and "Traceback" not in done.stderr


def test_json_that_is_nested_too_deeply(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100000 + "]" * 100000)
    with pytest.raises(InputError, match="nested too deeply"):
        read_json(file)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "ulimit -v"),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), "set TMPDIR"),
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/x"), "cannot write /tmp/x: No space left"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory"),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(**_: object) -> int:
        raise error

    monkeypatch.setattr("engram.cli.entry.app", failing)
    with pytest.raises(SystemExit) as end:
        main([])
    shown = capsys.readouterr().err
    assert end.value.code == 2 and words in shown and len(shown.strip().splitlines()) == 1


def test_other_errors_stay_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(**_: object) -> int:
        raise ImportError("No module named 'nowhere'")

    monkeypatch.setattr("engram.cli.entry.app", failing)
    with pytest.raises(ImportError):
        main([])


@pytest.fixture
def little_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be gigabytes is megabytes, so that these tests are short."""
    monkeypatch.setattr(formats, "ALWAYS_ALLOWED", 1 << 20)


@pytest.mark.usefixtures("little_allowed")
def test_a_small_file_that_unpacks_to_much_is_stopped(tmp_path: Path) -> None:
    """Zeros: as an idx file, and as an npz."""
    zeros = bytes(2 << 20)
    for file in formats.IDX_FILES:
        (tmp_path / f"{file}.gz").write_bytes(gzip.compress(zeros, 1))
    with pytest.raises(InputError, match="unpacks to more than 50 times its size"):
        formats.read_idx_folder(tmp_path)
    with zipfile.ZipFile(tmp_path / "all.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", zeros)
    with pytest.raises(InputError, match="unpacks to more than 50 times its size"):
        formats.read_npz(tmp_path / "all.npz")
    honest = np.random.default_rng(0).integers(255, size=1 << 20, dtype=np.uint8).tobytes()
    packed = gzip.compress(honest)
    assert formats.unpacked(packed, gzip.GzipFile(fileobj=io.BytesIO(packed)), tmp_path) == honest


@pytest.mark.usefixtures("little_allowed")
@pytest.mark.parametrize("packing", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("name", ["train.bin", "another.bin"])
def test_a_small_archive_that_unpacks_to_much_is_stopped(tmp_path: Path, packing: str, name: str) -> None:
    """Zeros, in a file that is read or in one that is skipped."""
    place = tmp_path / "cifar-100-binary.tar.gz"
    mode: Any = f"w:{packing}"
    with tarfile.open(place, mode) as archive:
        member = tarfile.TarInfo(f"cifar-100-binary/{name}")
        member.size = 2 << 20
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(InputError, match=r"tar\.gz unpacks to more than 50 times its size") as error:
        formats.read_cifar(place, formats.CIFAR100)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("little_allowed")
@pytest.mark.parametrize("kind", [b"x", b"S"])
def test_headers_of_archives_that_promise_much_are_stopped(tmp_path: Path, kind: bytes) -> None:
    """A large header that tarfile would read whole, and a sparse file, of which the archive has nothing."""
    member = tarfile.TarInfo("train.bin")
    member.size, member.type = 2 << 20, kind
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    stored = bytes(member.size) if kind == b"x" else b""
    if kind == b"S":
        # No data; the size of the whole file is in the header of a sparse file.
        block[124:136], block[483:495] = b"%011o\0" % 0, b"%011o\0" % member.size
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    place = tmp_path / "cifar-100-binary.tar.gz"
    place.write_bytes(gzip.compress(bytes(block) + stored + bytes(1024), 1))
    with pytest.raises(InputError, match="unpacks to more than 50 times its size"):
        formats.read_cifar(place, formats.CIFAR100)


@pytest.mark.usefixtures("little_allowed")
def test_a_small_mat_file_that_unpacks_to_much_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "train_32x32.mat"
    scipy.io.savemat(path, {"X": np.zeros((32, 32, 3, 700), np.uint8), "y": [1]}, do_compression=True)
    with pytest.raises(InputError, match=r"train_32x32\.mat unpacks to more than 50 times its size"):
        formats.read_svhn(tmp_path)


def test_a_mat_file_of_cells_is_refused(tmp_path: Path) -> None:
    """A cell array says how many entries it has, and need not have them."""
    scipy.io.savemat(tmp_path / "train_32x32.mat", {"X": np.full((2, 2), "", object), "y": [1]})
    with pytest.raises(InputError, match=r"is not SVHN's mat file \(X is no array of numbers"):
        formats.read_svhn(tmp_path)


def test_encrypted_mirrors_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def failing(request: object, timeout: float) -> None:
        tried.append(request.full_url)  # type: ignore[attr-defined]
        raise OSError("closed")

    monkeypatch.setattr("urllib.request.urlopen", failing)
    urls = ("http://a.example/f", "https://b.example/f", "http://c.example/f", "https://d.example/f")
    with pytest.raises(InputError, match="cannot fetch f"):
        fetch(Remote("f", urls, "0" * 32), tmp_path / "f")
    order = list(dict.fromkeys(tried))
    assert order == [urls[1], urls[3], urls[0], urls[2]]


@pytest.mark.parametrize(
    "named",
    [
        lambda scenario: Experiment(Scenario("../up", scenario.tasks, scenario.setting), "er"),
        lambda scenario: Experiment(Scenario("a/b", scenario.tasks, scenario.setting), "er"),
        lambda scenario: Experiment(scenario, "../er"),
        lambda _: Registry[float]("method").declare("../x", "theirs", lambda: 1.0),
        lambda _: Registry[float]("model").add("a/b", 1.0),
    ],
)
def test_names_have_no_slash_and_no_two_dots(named: Callable[[Scenario], object]) -> None:
    scenario = experiment("split-digits", "er").scenario
    with pytest.raises(InputError, match=r"must have no slash and no two dots|cannot name a"):
        named(scenario)
