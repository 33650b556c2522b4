"""Leases: one writer per folder, among all processes on all machines that share it.

A lease is a file that says who writes to the folder. It is made in one step that only one process can make.
Its owner renews it; an owner that has ended, or that has not renewed it for two minutes where nobody can see
whether it has ended, loses it.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import as_input_error, checksum, remove_left_over, temporary_path
from engram.core.folder import LEASE
from engram.core.owner import Owner, unique_name

RENEW_SECONDS = 15.0
LIMIT_SECONDS = 120.0
"""An owner on another machine that has not renewed its lease for so long has lost it."""

_TRIES = 50
_TRIAL = ".trial"
"""How the names of this module's temporary files end: who holds a lease must leave those of others alone."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease.

    Attributes:
        owner: The process; None where the file does not say.
        since: When it took the lease, in words.
        token: Tells this lease apart from all others.
    """

    owner: Owner | None
    since: str
    token: str

    def __str__(self) -> str:
        """The holder in words."""
        if self.owner is None:
            return "a process that did not leave its name"
        return f"process {self.owner.process} on {self.owner.host} since {self.since}"


class Held(InputError):
    """Another process writes to the folder."""

    def __init__(self, folder: Path, holder: Holder | None) -> None:
        who = "another process" if holder is None else str(holder)
        super().__init__(f"the run {folder} is being run by {who}: wait for it, or stop it first")
        self.folder, self.holder = folder, holder

    def __reduce__(self) -> tuple[type, tuple[Path, Holder | None]]:
        return type(self), (self.folder, self.holder)


class Lease:
    """The right to write to a folder; `lost` once another process has taken it over.

    Args:
        path: The file of the lease, which this process has made.
        token: What it contains, by which its owner recognises it.
        renewed: Whether a thread renews it.
    """

    def __init__(self, path: Path, token: str, *, renewed: bool = True) -> None:
        self.path, self.token = path, token
        self.lost = False
        self._released = threading.Event()
        self._thread: threading.Thread | None = None
        if renewed:
            # A run may compute for minutes between two updates, so a thread renews the lease.
            self._thread = threading.Thread(target=self._renew, name="engram-lease", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise if the lease was lost.

        Raises:
            Held: Another process has taken it over.
        """
        if self.lost:
            raise Held(self.path.parent, holder_of(self.path.parent))

    def is_held(self) -> bool:
        """Whether the disk says now that this process holds the lease; then it has two more minutes to write.

        That it was lost is otherwise noticed only when the thread renews it.
        """
        self.renew()
        return not self.lost

    def renew(self) -> None:
        """Show that the owner is still there; notice that the lease was lost."""
        try:
            self.lost = not self._is_mine()
            if not self.lost:
                os.utime(self.path)
        except FileNotFoundError:
            self.lost = True
        except OSError:
            # The disk cannot be reached now: try again later.
            return

    def release(self) -> None:
        """Give the lease back."""
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError):
            if self._is_mine():
                self.path.unlink()

    def _is_mine(self) -> bool:
        return _holder(self.path.read_bytes()).token == self.token

    def _renew(self) -> None:
        while not self.lost and not self._released.wait(RENEW_SECONDS):
            self.renew()


@contextmanager
def lease(folder: Path, *, renewed: bool = True) -> Iterator[Lease]:
    """Hold the lease of a folder, which must exist.

    Args:
        folder: The folder.
        renewed: Whether it is renewed while it is held; what takes a moment needs no thread for that.

    Raises:
        Held: Another process holds it, or lost it to another one a moment ago.
        InputError: The folder cannot be written to.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with lease(folder):
        ...     print(holder_of(folder).owner == Owner.here())
        True
        >>> holder_of(folder) is None
        True
    """
    held = Lease(folder / LEASE, _acquire(folder), renewed=renewed)
    remove_left_over(folder, of=LEASE, ending=_TRIAL)
    try:
        yield held
    finally:
        held.release()


def holder_of(folder: Path) -> Holder | None:
    """The living process that holds the lease of a folder; None if there is none."""
    known = _read(folder / LEASE)
    return known if known is not None and _holds(folder / LEASE, known) else None


def _acquire(folder: Path) -> str:
    """Make the lease, or take it over from an owner that lost it; returns its token."""
    path = folder / LEASE
    for _ in range(_TRIES):
        with as_input_error(f"cannot write to {folder}", "; choose another folder"):
            made = _make(path)
        if made is not None:
            return made
        present = _read(path)
        if present is None:
            # It was given back in this moment.
            continue
        if _holds(path, present):
            raise Held(folder, present)
        with as_input_error(f"cannot write to {folder}", "; choose another folder"):
            taken = _take_over(path, present)
        if taken is not None:
            return taken
        time.sleep(0.02)
    raise Held(folder, _read(path))


def _make(path: Path) -> str | None:
    """Make the file of a lease, complete, unless it exists; returns its token."""
    beside, token = _written_beside(path)
    try:
        os.link(beside, path)
    except FileExistsError:
        # On network disks the answer may be lost: the link is then made, tried once more, and found to exist.
        present = _read(path)
        return token if present is not None and present.token == token else None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Not every disk has links; there the file is empty for a moment.
        try:
            with path.open("xb") as file:
                file.write(beside.read_bytes())
        except FileExistsError:
            return None
    finally:
        beside.unlink(missing_ok=True)
    return token


def _take_over(path: Path, lost: Holder) -> str | None:
    """Replace a lease that its owner lost; None if another process does so at the same time."""
    claim = path.with_name(f".{path.name}.{checksum(lost.token.encode())[:12]}.taken")
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        # Whoever claimed it may have been killed before it took it; or it is done, and the claim is gone.
        with suppress(FileNotFoundError):
            if _age(claim) > LIMIT_SECONDS:
                claim.unlink(missing_ok=True)
        return None
    beside, token = _written_beside(path)
    try:
        present = _read(path)
        if present is None or present.token != lost.token:
            return None
        beside.replace(path)
        present = _read(path)
        return token if present is not None and present.token == token else None
    finally:
        beside.unlink(missing_ok=True)
        claim.unlink(missing_ok=True)


def _written_beside(path: Path) -> tuple[Path, str]:
    """A new lease under a temporary name, and its token."""
    beside, token = temporary_path(path, ending=_TRIAL), unique_name()
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    content = {**Owner.here().as_json(), "since": since, "token": token}
    beside.write_text(json.dumps(content), encoding="utf-8")
    return beside, token


def _read(path: Path) -> Holder | None:
    """What a lease says; None if there is none."""
    try:
        return _holder(path.read_bytes())
    except OSError:
        return None


def _holder(content: bytes) -> Holder:
    try:
        value = json.loads(content)
        return Holder(Owner.of_json(value), str(value["since"]), str(value["token"]))
    except (LookupError, TypeError, ValueError):
        return Holder(None, "", "unknown")


def _holds(path: Path, holder: Holder) -> bool:
    """Whether a holder has not lost its lease."""
    alive = None if holder.owner is None else holder.owner.alive
    if alive is not None:
        return alive
    try:
        return _age(path) <= LIMIT_SECONDS
    except OSError:
        return False


def _age(path: Path) -> float:
    """Seconds since a file was changed, by the clock of the disk: the clocks of machines may differ."""
    changed = path.stat().st_mtime
    clock = temporary_path(path, ending=_TRIAL)
    try:
        clock.touch()
        now = clock.stat().st_mtime
    except OSError:
        now = time.time()
    finally:
        with suppress(OSError):
            clock.unlink(missing_ok=True)
    return now - changed
