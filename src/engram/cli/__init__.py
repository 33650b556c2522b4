"""The command line: one file a verb. Nothing heavy is imported before a verb needs it."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from engram.cli.app import app
from engram.cli.output import INTERRUPTED, fail
from engram.core.errors import InputError

__all__ = ["app", "main"]

# Newer typer brings a click of its own, older typer uses the installed one: its errors lead to the right one.
_UsageProblem: type[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
STOPPED = "interrupted: what was finished is kept; the same command goes on from there"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 a check failed, 2 bad input, 130 interrupted.

    Bad input is one line on stderr that names the thing and what to do; never a traceback.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = app(args=arguments, prog_name="engram", standalone_mode=False)
    except InputError as error:
        fail(str(error))
    except _UsageProblem as error:
        fail(f"{error.format_message()}; see `engram --help`")
    except (KeyboardInterrupt, typer.Abort):
        fail(STOPPED, code=INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    if code == INTERRUPTED:
        # Newer typer turns Ctrl-C into an exit code, without a word.
        fail(STOPPED, code=INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _warn(message: Warning | str, *_where: Any, **_more: Any) -> None:
    """A warning is one line, too: where in the source it arose helps nobody at the command line."""
    sys.stderr.write(f"warning: {' '.join(str(message).split())}\n")
