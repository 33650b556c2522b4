"""Which process on which machine: who writes a file, and whether they still can."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engram.core.jsons import JsonMapping, JsonObject


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from all others, also from later ones with the same number.

    Attributes:
        host: The name of its machine.
        machine: A digest of that name, of the machine's last start and of its space of process numbers.
        process: The number of the process.
        started: When it was started, in the machine's own unit; None where that cannot be known.

    Example:
        >>> Owner.here().alive, Owner.of_json(Owner.here().as_json()) == Owner.here()
        (True, True)
        >>> Owner("elsewhere", "0123456789", 7).alive is None
        True
    """

    host: str
    machine: str
    process: int
    started: int | None = None

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(socket.gethostname(), _machine(), os.getpid(), _start_of(os.getpid()))

    @property
    def alive(self) -> bool | None:
        """Whether the process is still there; None if this cannot be seen from here."""
        if self.machine != _machine() or os.name != "posix":
            return None
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return _start_of(self.process) == self.started

    def as_json(self) -> JsonObject:
        """The owner as JSON."""
        return {
            "host": self.host,
            "machine": self.machine,
            "process": self.process,
            "started": self.started,
        }

    @classmethod
    def of_json(cls, value: JsonMapping) -> Owner:
        """Read what `as_json` gave.

        Raises:
            LookupError, TypeError, ValueError: It is not an owner.
        """
        started = value["started"]
        return cls(
            str(value["host"]),
            str(value["machine"]),
            int(value["process"]),
            None if started is None else int(started),
        )


def unique_name() -> str:
    """A name that no other process on any machine has, with which its owner can be recognised.

    Example:
        >>> unique_name() != unique_name(), is_left_over(unique_name()), is_left_over("of something else")
        (True, False, False)
    """
    return f"{_machine()}-{os.getpid()}-{secrets.token_hex(3)}"


def is_left_over(name: str) -> bool:
    """Whether the process of this machine that made a unique name has ended."""
    machine, _, rest = name.partition("-")
    process = rest.partition("-")[0]
    if machine != _machine() or not process.isdecimal() or os.name != "posix":
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


@cache
def _machine() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]


def _start_of(process: int) -> int | None:
    """When a process was started, in ticks since the machine was; None if it ended, or where nobody knows."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie has ended, even if nobody has read its exit code.
    return None if fields[0] in "ZX" else int(fields[19])
