"""Fetching a published file: several mirrors, resumed after a break, checked, and renamed into place."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from engram.core.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from engram.datasets.sources import Remote

TIMEOUT = 20.0
"""Seconds without an answer, or below `SLOWEST` bytes per second, before the next mirror is tried."""
SLOWEST = 1024
RESUMES = 5
"""How often a broken download is resumed at the same mirror."""
_CHUNK = 1 << 16


class _Broken(Exception):
    """Why a mirror failed, and whether it may still deliver the rest."""

    def __init__(self, reason: str, *, resumable: bool = False) -> None:
        super().__init__(reason)
        self.resumable = resumable


def fetch(remote: Remote, target: Path, *, timeout: float = TIMEOUT) -> None:
    """Download a published file to `target`, complete and verified, or leave nothing there.

    The mirrors are tried in order, those with https first. What has arrived stays beside the target
    (`.NAME.part`), so that a broken download resumes where it stopped, at the same mirror, at the next one,
    or in the next call. A file with another checksum than the published one is deleted. Processes that fetch
    the same file wait for each other.

    Raises:
        InputError: No mirror delivered it; the message gives the reason for each mirror.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _open_alone(part) as file:
            if target.is_file():
                part.unlink(missing_ok=True)
                return
            try:
                with _progress() as progress:
                    _collect(remote, file, timeout=timeout, progress=progress)
            except BaseException:
                # While it is locked: afterwards another process may be filling it.
                if sys.platform != "win32" and os.fstat(file.fileno()).st_size == 0:
                    part.unlink(missing_ok=True)
                raise
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()  # Windows cannot rename an open file.
            part.replace(target)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}; "
            "free some space or set ENGRAM_CACHE to another folder"
        ) from error


def _collect(remote: Remote, file: BinaryIO, *, timeout: float, progress: Progress) -> None:
    """Fill the file from the first mirror that delivers it, or from several in turn."""
    reasons = []
    task = progress.add_task(remote.file, total=None)
    # A file that arrives encrypted cannot be read or changed on its way.
    for url in sorted(remote.urls, key=lambda url: not url.startswith("https:")):
        for _ in range(1 + RESUMES):
            start = file.seek(0, os.SEEK_END)
            try:
                for chunk, offset, total in _chunks(url, start, timeout=timeout):
                    if file.tell() != offset:
                        file.truncate(offset)
                        file.seek(offset)
                    file.write(chunk)
                    progress.update(task, completed=file.tell(), total=total)
            except _Broken as broken:
                reason = str(broken)
                if broken.resumable and file.tell() > start:
                    continue
                break
            if _md5(file) == remote.md5:
                return
            file.truncate(0)
            reason = f"wrong checksum (expected md5 {remote.md5})"
            if start == 0:
                break
        reasons.append(f"{url}: {reason}")
    raise InputError(f"cannot fetch {remote.file}: {'; '.join(reasons)}")


def _chunks(url: str, start: int, *, timeout: float) -> Iterator[tuple[bytes, int, int | None]]:
    """The bytes of a file from `start` on, each piece with its offset, and the size of the whole.

    A server that cannot resume sends the file from its beginning. Only failures of the network become
    `_Broken`; those of the disk are left to the caller.
    """
    headers = {"User-Agent": "engram", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        with closing(
            urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
        ) as answer:
            offset = start if answer.status == 206 else 0
            length = answer.headers.get("Content-Length")
            total = offset + int(length) if length else None
            window, arrived = time.monotonic(), 0
            while chunk := answer.read1(_CHUNK):
                yield chunk, offset, total
                offset += len(chunk)
                arrived += len(chunk)
                if time.monotonic() - window > timeout:
                    if arrived < SLOWEST * timeout:
                        raise _Broken(f"too slow ({arrived} bytes in {timeout:g} s)")
                    window, arrived = time.monotonic(), 0
            if total is not None and offset < total:
                raise _Broken(f"closed after {offset} of {total} bytes", resumable=True)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return  # nothing is missing: the checksum decides
        raise _Broken(f"{error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        cause = error.reason
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise _Broken(str(reason or cause)) from error
    except TimeoutError as error:
        raise _Broken(f"no answer within {timeout:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(str(error) or type(error).__name__, resumable=True) from error


def _md5(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _open_alone(part: Path) -> BinaryIO:
    """The half-fetched file, ours until it is closed (where the platform has such locks)."""
    while True:
        file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        if sys.platform == "win32":
            return file
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        # The process that held it before may have renamed or removed it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), part.stat()):
                return file
        file.close()


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
