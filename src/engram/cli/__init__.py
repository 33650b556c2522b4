"""The command line: one file per verb. Nothing heavy is imported before a verb needs it."""

from collections.abc import Sequence

from engram.core.stopping import end_at_once_on_signals

__all__ = ["main"]

STOPPED = "interrupted: finished runs are kept; run the same command again to resume"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 a check failed, 2 bad input, 130 interrupted.

    Bad input is one line on stderr that names the thing and what to do; a traceback comes only with `-v`.
    SIGTERM and SIGHUP stop a command as Ctrl-C does; it then exits with 143 or 129.

    Args:
        arguments: The arguments of the command (default: those of this process).

    Example:
        >>> main(["--version"])
        Traceback (most recent call last):
        SystemExit: 0
    """
    if arguments is None:
        # While libraries are imported, there is nothing to lose by ending at once.
        end_at_once_on_signals(STOPPED)
    from engram.cli.entry import run_command

    run_command(arguments)
