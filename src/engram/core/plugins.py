"""Users' own scripts, which register methods, models, scenarios, data sets or metrics."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from engram.core.errors import InputError
from engram.core.registry import OPEN

PLUGIN_MODULE = "engram_plugin_"
"""What the names of plugins' modules begin with."""


def load_plugin(path: Path | str) -> None:
    """Run a user's own script, which registers something with one of engram's decorators.

    One decorator is enough: a script that has only a data set, only a scenario or only a metric is fine.

    Raises:
        InputError: The script does not exist, fails (the message says in which line), or registers nothing.

    Example:
        >>> import tempfile
        >>> script = Path(tempfile.mkdtemp()) / "mine.py"
        >>> _ = script.write_text("import engram\\n\\nundefined_name")
        >>> load_plugin(script)
        Traceback (most recent call last):
        engram.core.errors.InputError: the plugin ...mine.py, line 3: NameError: name 'undefined_name' ...
    """
    path = Path(path)
    before = _added()
    run_script(path, what="plugin")
    if _added() == before:
        decorators = [registry.decorator for registry in OPEN]
        raise InputError(
            f"the plugin {path} registers nothing: write a decorator above your class or function, "
            f"such as {' or '.join(decorators)}"
        )


class _Uncached(SourceFileLoader):
    """Loads a script from its text: bytecode that is kept may be that of a script changed a moment ago."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the script as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


def run_script(path: Path, *, what: str, digest: str = "") -> ModuleType:
    """Run a user's own script as a module, and return the module.

    Args:
        path: The script.
        what: What messages call it.
        digest: Tells the module apart from those of other scripts with the same name.

    Raises:
        InputError: The script does not exist, or fails; the message says in which line.
    """
    if not path.is_file():
        raise InputError(f"the {what} {path} does not exist: name a Python file")
    name = f"{PLUGIN_MODULE}{path.stem}{digest}"
    spec = spec_from_file_location(name, path, loader=_Uncached(name, str(path)))
    if spec is None or spec.loader is None or path.suffix != ".py":
        raise InputError(f"the {what} {path} is not a Python file: its name must end in .py")
    module = module_from_spec(spec)
    # Dataclasses look up the module that they are written in.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # Whatever the error, the user's script failed; its traceback is that of the exception's cause.
        raise InputError(f"the {what} {path}{_line(error, str(path))}: {_reason(error)}") from error
    return module


def _added() -> int:
    """How often something was registered that is not engram's own."""
    return sum(registry.added for registry in OPEN)


def explain_failure(what: str, error: BaseException) -> InputError:
    """The error of a user's function that failed when it was called, with the file and line where it did.

    Example:
        >>> try:
        ...     1 / 0
        ... except ZeroDivisionError as error:
        ...     print(explain_failure("data set mine", error))
        data set mine: ..., line 2: ZeroDivisionError: division by zero
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return InputError(f"{what}: {where}{_reason(error)}")


def _line(error: BaseException, path: str) -> str:
    """Where in the script an error arose: the last line of it that was being run."""
    place = Path(path).absolute()
    if (
        isinstance(error, SyntaxError)
        and error.filename is not None
        and Path(error.filename).absolute() == place
    ):
        return f", line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == place]
    return f", line {lines[-1]}" if lines else ""


def _reason(error: BaseException) -> str:
    if isinstance(error, InputError):
        return str(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split())
