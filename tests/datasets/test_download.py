"""Fetching, against a real HTTP server that misbehaves on demand."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engram.core.errors import InputError
from engram.datasets import download, load
from engram.datasets.download import fetch
from engram.datasets.sources import PUBLISHED, Published, Remote

BODY = bytes(range(256)) * 800
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


class Server(ThreadingHTTPServer):
    """Answers each path as its name says, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests: list[tuple[str, str | None]] = []
        self.bodies: dict[str, bytes] = {}
        self.release = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""

    def do_GET(self) -> None:
        mode = self.path.strip("/")
        wanted = self.headers.get("Range")
        self.server.requests.append((mode, wanted))
        if mode == "gone":
            self.send_error(404)
            return
        body = self.server.bodies.get(mode, BODY)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and mode != "forgetful" else 0
        if start >= len(body):
            self.send_error(416)
            return
        if mode == "silent":
            self.server.release.wait(5)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if mode == "trickle":
            while not self.server.release.wait(0.02):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return
            return
        first = not any(path == mode for path, _ in self.server.requests[:-1])
        end = len(body) // 2 if mode in ("breaks", "forgetful") and first else len(body)
        self.wfile.write(body[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def remote(server: Server) -> Callable[..., Remote]:
    """A file to be had at the mirrors that behave like this."""

    def make(*modes: str, md5: str = MD5) -> Remote:
        return Remote("file.bin", tuple(map(server.url, modes)), md5)

    return make


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole(remote: Callable[..., Remote], tmp_path: Path) -> None:
    fetch(remote("good"), tmp_path / "deep" / "file.bin")
    assert (tmp_path / "deep" / "file.bin").read_bytes() == BODY
    assert left_in(tmp_path / "deep") == ["file.bin"]


def test_a_truncated_file_is_resumed(remote: Callable[..., Remote], server: Server, tmp_path: Path) -> None:
    fetch(remote("breaks"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.requests == [("breaks", None), ("breaks", f"bytes={len(BODY) // 2}-")]


def test_a_server_that_cannot_resume_starts_again(
    remote: Callable[..., Remote], server: Server, tmp_path: Path
) -> None:
    fetch(remote("forgetful"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_later_call_resumes(remote: Callable[..., Remote], server: Server, tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(BODY[:1000])
    fetch(remote("good"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.requests == [("good", "bytes=1000-")]


def test_a_complete_part_is_only_checked(
    remote: Callable[..., Remote], server: Server, tmp_path: Path
) -> None:
    (tmp_path / ".file.bin.part").write_bytes(BODY)
    fetch(remote("good"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_a_spoilt_part_is_fetched_anew(remote: Callable[..., Remote], server: Server, tmp_path: Path) -> None:
    (tmp_path / ".file.bin.part").write_bytes(b"?" * 1000)
    fetch(remote("good"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.requests == [("good", "bytes=1000-"), ("good", None)]


def test_a_wrong_checksum_is_refused(remote: Callable[..., Remote], server: Server, tmp_path: Path) -> None:
    server.bodies["forged"] = b"something else"
    with pytest.raises(InputError, match=r"wrong checksum \(expected md5 [0-9a-f]{32}\)"):
        fetch(remote("forged"), tmp_path / "file.bin")
    assert left_in(tmp_path) == []


def test_after_a_wrong_checksum_the_next_mirror_serves(
    remote: Callable[..., Remote], server: Server, tmp_path: Path
) -> None:
    server.bodies["forged"] = b"something else"
    fetch(remote("forged", "good"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_404_then_the_second_mirror(remote: Callable[..., Remote], server: Server, tmp_path: Path) -> None:
    fetch(remote("gone", "good"), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert [path for path, _ in server.requests] == ["gone", "good"]


@pytest.mark.parametrize("mode", ["silent", "trickle"])
def test_a_slow_server_is_left_for_the_next(
    mode: str, remote: Callable[..., Remote], server: Server, tmp_path: Path
) -> None:
    began = time.monotonic()
    fetch(remote(mode, "good"), tmp_path / "file.bin", timeout=0.2)
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert time.monotonic() - began < 3
    assert server.requests[0] == (mode, None)


def test_all_mirrors_failing_names_each(remote: Callable[..., Remote], tmp_path: Path) -> None:
    dead = Remote("file.bin", (*remote("gone").urls, "http://127.0.0.1:9/file.bin"), MD5)
    with pytest.raises(InputError) as error:
        fetch(dead, tmp_path / "file.bin")
    assert "404 Not Found" in str(error.value)
    assert "Connection refused" in str(error.value)
    assert "\n" not in str(error.value)
    assert left_in(tmp_path) == []


def test_two_at_once_fetch_it_once(remote: Callable[..., Remote], server: Server, tmp_path: Path) -> None:
    threads = [threading.Thread(target=fetch, args=(remote("good"), tmp_path / "file.bin")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert len(server.requests) == 1
    assert left_in(tmp_path) == ["file.bin"]


def test_a_folder_that_cannot_be_written(remote: Callable[..., Remote], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write .* set ENGRAM_CACHE"):
        fetch(remote("good"), tmp_path / "file" / "file.bin")


def test_load_fetches_into_the_cache_once(
    server: Server, apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for name, body in usps_files().items():
        server.bodies[name] = body
        files.append(Remote(name, (server.url("gone"), server.url(name)), hashlib.md5(body).hexdigest()))
    monkeypatch.setitem(PUBLISHED, "usps", Published("usps", tuple(files)))
    assert len(load("usps").train) == 3
    assert left_in(apart / "usps") == ["usps.bz2", "usps.t.bz2"]
    before = len(server.requests)
    assert load("usps") is load("usps")
    assert len(server.requests) == before


def usps_files() -> dict[str, bytes]:
    import bz2

    line = " ".join(f"{i}:{-1 + i / 128:.3f}" for i in range(1, 257))
    return {
        "usps.bz2": bz2.compress(f"1 {line}\n10 {line}\n3 {line}\n".encode()),
        "usps.t.bz2": bz2.compress(f"2 {line}\n".encode()),
    }


def test_offline_the_error_says_what_where_and_how(
    apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Remote("train-images-idx3-ubyte.gz", ("http://127.0.0.1:9/x",), MD5)
    monkeypatch.setitem(PUBLISHED, "kmnist", Published("kmnist", (dead,)))
    with pytest.raises(InputError) as error:
        load("kmnist", tmp_path)
    text = str(error.value)
    for part in (
        "kmnist.npz",
        "t10k-labels-idx1-ubyte",
        str(tmp_path),
        str(apart),
        "Connection refused",
        "--data",
    ):
        assert part in text
    assert "\n" not in text
    assert not (apart / "kmnist").exists() or left_in(apart / "kmnist") == []


def test_not_downloading_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "urllib", None)
    with pytest.raises(InputError, match=r"svhn not found: .*downloading is switched off"):
        load("svhn", download=False)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_files_have_checksums_and_secure_or_checked_mirrors(name: str) -> None:
    for remote in PUBLISHED[name].files:
        assert len(remote.md5) == 32 and int(remote.md5, 16)
        assert remote.urls
        assert all(
            url.startswith(("https://", "http://")) and url.endswith(remote.file) for url in remote.urls
        )
