"""From arguments to an exit code: errors are one line, warnings as well."""

import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress

import typer

from engram.cli import STOPPED
from engram.cli.app import app
from engram.cli.clicks import Click, ClickException, UsageError
from engram.cli.output import INTERRUPTED, fail, is_verbose, set_verbosity, stderr
from engram.core.errors import InputError, nearest, needs_torch
from engram.core.stopping import exit_code

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_command(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit, as `engram.cli.main` says."""
    _open_what_is_closed()
    set_verbosity()
    _escape_what_encodings_lack()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = app(args=arguments, prog_name="engram", standalone_mode=False)
            # Here an error is one line; Python itself flushes when it is too late for that.
            sys.stdout.flush()
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
    except (MemoryError, ImportError, OSError) as error:
        if (lacking := _lacking(error)) is None or is_verbose():
            raise
        fail(lacking)
    if code == INTERRUPTED:
        # Newer typer turns Ctrl-C into an exit code, without a word.
        fail(STOPPED, code=exit_code())
    sys.exit(code if isinstance(code, int) else 0)


def _lacking(error: Exception) -> str | None:
    """What the machine has too little of, where that is the reason of an error; None for other errors."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return "out of memory: use a smaller network or batch, or raise the limit of the process (ulimit -v)"
    if isinstance(error, ModuleNotFoundError) and (advice := needs_torch(error, "this command")):
        return advice
    if isinstance(error, ImportError):
        mapped = any(words in text.lower() for words in ("failed to map", "cannot allocate memory"))
        return f"out of memory ({text}): raise the limit of the process (ulimit -v)" if mapped else None
    if "No usable temporary directory" in text:
        return "no folder for temporary files can be written to: set TMPDIR to another folder"
    return _unusable(error) if isinstance(error, OSError) else None


def _unusable(error: OSError) -> str | None:
    """Which file cannot be used, and why; None if the error does not say it."""
    reason = error.strerror or " ".join(str(error).split())
    name = os.fsdecode(error.filename) or "''" if isinstance(error.filename, str | bytes) else None
    if name is None and error.errno in _FULL and _stdout_fails():
        return f"cannot write to standard output: {reason}; send it elsewhere"
    if error.errno in _FULL:
        place = name or "the folder of temporary files"
        return f"cannot write {place}: {reason}; free some space, or set TMPDIR"
    if name is None:
        return None
    advice = "choose another path, or let `engram -v` show where it is used"
    return f"cannot use {name}: {reason}; {advice}"


def _stdout_fails() -> bool:
    """Whether nothing can be printed; stdout is closed then, so that Python does not try again as it ends."""
    try:
        # What failed before may not be in the buffer any more.
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            sys.stdout.close()
        return True
    return False


def _open_what_is_closed() -> None:
    """Send nowhere what goes to a stream that the shell closed (`>&-`), for which Python has None.

    It also keeps the stream's number from being that of a file that is opened later, here or in a worker.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def _escape_what_encodings_lack() -> None:
    r"""Print characters that the encoding of a terminal does not have as \xe9 or \u2026."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        # In the C locale, bytes that are no text are printed as they are; other characters are still missing.
        in_c_locale = stream.errors == "surrogateescape" and stream.encoding.lower() not in ("utf-8", "utf8")
        if stream.errors == "strict" or in_c_locale:
            stream.reconfigure(errors="backslashreplace")


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
