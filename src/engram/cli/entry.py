"""From arguments to an exit code: errors are one line, warnings as well."""

import sys
import traceback
import warnings
from collections.abc import Sequence

import typer

from engram.cli import STOPPED
from engram.cli.app import app
from engram.cli.clicks import Click, ClickException, UsageError
from engram.cli.output import INTERRUPTED, fail, is_verbose, set_verbosity, stderr
from engram.core.errors import InputError, nearest
from engram.core.stopping import exit_code


def run_command(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit, as `engram.cli.main` says."""
    set_verbosity()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = app(args=arguments, prog_name="engram", standalone_mode=False)
    except InputError as error:
        if is_verbose():
            sys.stderr.write("".join(traceback.format_exception(error)))
        fail(str(error))
    except ClickException as error:
        fail(_usage_message(error))
    except (KeyboardInterrupt, typer.Abort):
        fail(STOPPED, code=exit_code())
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    if code == INTERRUPTED:
        # Newer typer turns Ctrl-C into an exit code, without a word.
        fail(STOPPED, code=exit_code())
    sys.exit(code if isinstance(code, int) else 0)


def _usage_message(error: Click) -> str:
    """What is wrong with the arguments, and whose help to read."""
    context = error.ctx if isinstance(error, UsageError) else None
    verb = "engram" if context is None else context.command_path
    if hasattr(error, "possibilities"):
        names = {option.lstrip("-"): option for option in error.possibilities or ()}
        near = [names[name] for name in nearest(error.option_name.lstrip("-"), names, like=0.7)]
        hint = f"; did you mean {' or '.join(near)}?" if near else ";"
        return f"no such option {error.option_name}{hint} see `{verb} --help`"
    text = str(error.format_message()).strip().rstrip(".")
    return f"{text[:1].lower()}{text[1:]}; see `{verb} --help`"


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Print a warning in one line; with `-v`, also where in the source it arose."""
    if stderr.quiet:
        return
    where = f"{filename}:{lineno}: " if is_verbose() else ""
    sys.stderr.write(f"warning: {where}{' '.join(str(message).split())}\n")
