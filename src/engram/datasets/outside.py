"""What a method does outside of the process's memory, seen through Python's audit events."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache, wraps
from types import FrameType

import torch

from engram.datasets.accounting import active
from engram.record.card import Act, ForbiddenRead

Deed = tuple[Act, str]
"""What was done, and to which file, process or address."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
"""The flags with which a file is opened for writing."""

IMPORTS = ("_frozen_importlib", "importlib._bootstrap")
"""The modules that write byte code when something is imported."""

OWN = ("torch._inductor", "torch._dynamo", "torch._functorch", "triton", "engram.datasets")
"""Packages that compile and keep what they compiled, or download, on their own account."""

ENGINE = ("engram.engine", "engram.evaluation")
"""The packages that call a method."""


@cache
def watch_outside() -> None:
    """From now on, note what methods do outside of memory while they work; an audit hook stays installed.

    Files that are opened for writing, processes, connections, threads, and searches through the objects of
    the process are entered in the account of the run, as something that a method must not do. What torch's
    compiler and imports write on their own account is left out. Libraries that open files without Python
    (C++, Rust) are not seen, except for `torch.save`.

    Example:
        >>> import subprocess
        >>> from engram.datasets.accounting import Ledger
        >>> from engram.scenarios import split
        >>> watch_outside()
        >>> ledger = Ledger(split("digits", setting="class"), method="mine")
        >>> with ledger.reading("method"):
        ...     done = subprocess.run(["true"])
        >>> [deed.describe() for deed in ledger.forbidden]
        ['started the process true']
    """
    sys.addaudithook(_hook)
    # These raise no events of their own.
    _announced(torch.serialization, "_open_zipfile_writer", "torch.save")
    if sys.version_info < (3, 12):
        _announced(threading.Thread, "start", "_thread.start_new_thread")


def _announced(owner: object, name: str, event: str) -> None:
    """Make a function raise an audit event with its first argument."""
    function: Callable[..., object] = getattr(owner, name)

    @wraps(function)
    def announced(*arguments: object, **options: object) -> object:
        sys.audit(event, *arguments[:1])
        return function(*arguments, **options)

    setattr(owner, name, announced)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    told = _EVENTS.get(event)
    if told is None:
        return
    mark = active()
    if mark is None or mark[1] != "method":
        return
    deed = told(event, arguments)
    if deed is not None and not _own_account():
        act, note = deed
        mark[0].refuse(ForbiddenRead(act, note=note))


def _own_account() -> bool:
    """Whether a library does this by itself, below the method's code."""
    frame = sys._getframe(2)
    if _module(frame).startswith((*IMPORTS, *ENGINE)):
        return True
    outer: FrameType | None = frame
    while outer is not None and not _module(outer).startswith(ENGINE):
        if _module(outer).startswith(OWN) and _module(outer) != __name__:
            return True
        outer = outer.f_back
    return False


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


# Events ---------------------------------------------------------------------------------------------


def _opened(event: str, arguments: tuple[object, ...]) -> Deed | None:
    path, mode, flags = (*arguments, None, 0)[:3]
    writes = any(letter in str(mode) for letter in "wax+") or bool(isinstance(flags, int) and flags & WRITES)
    return _written(event, (path,)) if writes else None


def _written(event: str, arguments: tuple[object, ...]) -> Deed | None:
    path = arguments[0] if arguments else None
    if not isinstance(path, str | bytes | os.PathLike) or os.fsdecode(path) == os.devnull:
        return None
    return "file", os.fsdecode(path)


def _started(event: str, arguments: tuple[object, ...]) -> Deed:
    name = arguments[0] if arguments and isinstance(arguments[0], str | bytes | os.PathLike) else event
    return "process", os.fsdecode(name)


def _text(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, str | bytes) else str(name)


def _connected(event: str, arguments: tuple[object, ...]) -> Deed:
    address = arguments[1] if len(arguments) > 1 else event
    return "connection", ":".join(map(str, address)) if isinstance(address, tuple) else str(address)


_EVENTS: Mapping[str, Callable[[str, tuple[object, ...]], Deed | None]] = {
    "open": _opened,
    **dict.fromkeys(("torch.save", "os.truncate", "os.setxattr", "sqlite3.connect"), _written),
    **dict.fromkeys(
        (
            *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"),
            *("os.fork", "os.forkpty", "pty.spawn"),
        ),
        _started,
    ),
    **dict.fromkeys(("socket.connect", "socket.sendto", "socket.bind"), _connected),
    **dict.fromkeys(("_thread.start_new_thread", "_thread.start_joinable_thread"), lambda *_: ("thread", "")),
    **dict.fromkeys(
        ("gc.get_objects", "gc.get_referrers", "gc.get_referents"), lambda event, _: ("objects", event)
    ),
    "os.putenv": lambda _, arguments: ("environment", _text(arguments[0])),
}
