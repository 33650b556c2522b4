"""Signals that ask to stop: Ctrl-C, a scheduler that ends a job, a terminal that is closed.

Before a command has begun its work, it ends at once. While runs are made, the first signal lets the update
under way come to its end, so that a checkpoint can be written; the second one does not wait.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

from engram.core.files import remove_unfinished

NUMBERS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that are noticed. One that is ignored, as under `nohup`, stays ignored."""


class Stopped(KeyboardInterrupt):
    """A signal asked to stop.

    Example:
        >>> Stopped(signal.SIGTERM).code
        143
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        """The exit code of a command that a signal stopped."""
        return 128 + self.number


def exit_code() -> int:
    """The exit code of an interrupted command: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + _last[-1]


_last: list[int] = [signal.SIGINT]
"""The last signal that was noticed; libraries may turn the exception that it raised into another one."""


class StopSignals:
    """A context in which signals stop the work in an orderly way; outside the main thread it does nothing.

    Args:
        wait: Whether the first signal is only noted, for `check` to act on; it may be changed at any time.

    Attributes:
        number: The signal that was noticed; None if there was none.
        urgent: Whether there was a second one.

    Example:
        >>> with StopSignals(wait=True) as signals:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     print(signals.number == signal.SIGTERM)
        True
    """

    def __init__(self, *, wait: bool) -> None:
        self.wait = wait
        self.number: int | None = None
        self.urgent = False
        self._before: dict[int, _Handler] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in NUMBERS:
                if _is_ours(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self._noticed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def check(self) -> None:
        """Raise if a signal was noted.

        Raises:
            Stopped: There was one.
        """
        if self.number is not None:
            raise Stopped(self.number)

    def _noticed(self, number: int, _frame: FrameType | None) -> None:
        self.urgent = self.number is not None
        self.number = number
        _last.append(number)
        if self.urgent or not self.wait:
            raise Stopped(number)


def end_at_once_on_signals(message: str) -> None:
    """Let a signal end this process at once, with one line on stderr, until the work begins.

    An exception would be no use here: raised while a library is being imported, it may come out as another
    error, or be lost.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        remove_unfinished()
        with suppress(OSError, RuntimeError, ValueError):
            sys.stdout.flush()
        os.write(2, f"error: {message}\n".encode())
        os._exit(128 + number)

    end.__dict__[_OURS] = True
    for number in NUMBERS:
        if _is_ours(signal.getsignal(number)):
            signal.signal(number, end)


_Handler = Callable[[int, FrameType | None], object] | int | None
_OURS = "ends_engram"


def _is_ours(handler: _Handler) -> bool:
    """Whether a handler may be replaced: it is that of the system, of Python or of this module."""
    return (
        handler in (signal.SIG_DFL, signal.default_int_handler)
        or isinstance(getattr(handler, "__self__", None), StopSignals)
        or _OURS in getattr(handler, "__dict__", ())
    )
