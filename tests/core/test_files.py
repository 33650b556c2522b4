"""Files appear whole or not at all, also where the disk is full."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.core.files import read_json, temporary_path, write_json, write_whole
from engram.core.owner import unique_name

FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from engram.core.errors import InputError
from engram.core.trace import Trace
trace, draw = Trace(), np.random.default_rng(0)
for step in range(200):
    trace.add(step=step, learning=0, task=0, right=draw.random(1000) < .5)
trace.frame()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    trace.save(Path(sys.argv[1]) / "trace.parquet")
except InputError as error:
    assert "cannot write" in str(error) and "\\n" not in str(error)
    sys.exit(7)
"""


def test_a_trace_that_does_not_fit_on_the_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "note.txt"
    place.write_text("old")

    def fail(beside: Path) -> None:
        beside.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(InputError, match="cannot write"):
        write_whole(place, fail)
    assert place.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def test_broken_json_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    for name in ("broken.json", "absent.json"):
        with pytest.raises(InputError, match=name):
            read_json(tmp_path / name)


# The error that matters ----------------------------------------------------------------------------


def test_a_disk_that_cannot_be_changed_is_named_not_what_follows_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be removed there either, and that error must not come in place of the first."""

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    def no_removal(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "nothing can be removed")

    monkeypatch.setattr(Path, "write_text", read_only)
    monkeypatch.setattr(Path, "unlink", no_removal)
    with pytest.raises(InputError) as error:
        write_json(tmp_path / "result.json", {})
    assert str(error.value) == (
        f"cannot write {tmp_path / 'result.json'}: Read-only file system; choose another folder"
    )


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="mounts a disk that is read-only")
def test_a_real_disk_that_is_read_only(tmp_path: Path) -> None:
    made = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(InputError, match=r"result\.json: Read-only file system; choose another folder"):
            write_json(tmp_path / "result.json", {})
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="mounts a small disk")
def test_a_real_disk_that_is_full_keeps_what_was_there(tmp_path: Path) -> None:
    made = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    place = tmp_path / "trace.bin"
    try:
        write_whole(place, lambda beside: beside.write_bytes(b"old"))
        with pytest.raises(InputError, match=r"trace\.bin: No space left on device; free some space"):
            write_whole(place, lambda beside: beside.write_bytes(bytes(200_000)))
        assert place.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["trace.bin"]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_name_that_is_too_long_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long; choose a shorter name"):
        write_json(tmp_path / f"{300 * 'x'}.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_just_short_enough_can_be_written(tmp_path: Path) -> None:
    """The temporary name beside it is not longer."""
    place = tmp_path / f"{250 * 'x'}.json"
    write_json(place, {"a": 1})
    assert read_json(place) == {"a": 1}


# What killed writers leave -------------------------------------------------------------------------


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    place = tmp_path / "note.txt"
    process = subprocess.Popen(["true"])
    process.wait()
    machine, _, token = unique_name().split("-")
    dead = tmp_path / f".note.txt.{machine}-{process.pid}-{token}.part"
    living, elsewhere = temporary_path(place), tmp_path / f".note.txt.0123456789-1-{token}.part"
    other = tmp_path / f".other.txt.{machine}-{process.pid}-{token}.part"
    ancient = tmp_path / f".note.txt.9876543210-1-{token}.part"
    for file in (dead, living, elsewhere, other, ancient):
        file.touch()
    os.utime(ancient, (0, 0))
    write_whole(place, lambda beside: beside.write_text("whole"))
    assert {*tmp_path.iterdir()} == {place, living, elsewhere, other}


def test_what_is_replaced_can_be_kept(tmp_path: Path) -> None:
    place, before = tmp_path / "note.txt", tmp_path / "note.before.txt"
    for text in ("one", "two", "three"):
        write_whole(place, lambda beside, text=text: beside.write_text(text), keep=before)  # type: ignore[misc]
    assert (place.read_text(), before.read_text()) == ("three", "two")


# What a path names ---------------------------------------------------------------------------------


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link, dangling = tmp_path / "far" / "note.txt", tmp_path / "link", tmp_path / "dangling"
    write_whole(target, lambda beside: beside.write_text("old"))
    link.symlink_to(target)
    dangling.symlink_to("near.txt")
    for place in (link, dangling):
        write_whole(place, lambda beside: beside.write_text("new"))
        assert place.is_symlink() and place.read_text() == "new"
    assert target.read_text() == "new" and (tmp_path / "near.txt").read_text() == "new"
    assert [place.name for place in target.parent.iterdir()] == ["note.txt"]


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(InputError, match=r"cannot write .*link"):
        write_whole(link, lambda beside: beside.write_text("new"))
    assert link.is_symlink()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # With a reader, opening it for writing does not wait.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, lambda place: place.write_text("whole"))
        assert os.read(reader, 100) == b"whole"
    finally:
        os.close(reader)
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_a_folder_a_socket_and_an_empty_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name in ("", "link", "socket"):
            with pytest.raises(InputError, match=r"cannot write .*; (name a file|choose another name)"):
                write_json(Path(name), {})
    assert {place.name for place in tmp_path.iterdir()} == {"link", "socket"}
