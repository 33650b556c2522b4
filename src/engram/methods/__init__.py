"""Methods, one file per method. A method is its difference from fine-tuning.

A file of this package that decorates a class with `@method("name", …)` is a method of engram: nothing else
needs to be edited. Methods are imported when they are first looked up.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from engram.core.errors import InputError
from engram.core.registry import Registry
from engram.methods.traits import Settings, Traits, declared_traits
from engram.models import MODELS

M = TypeVar("M", bound=type[Any])

VERBS = ("begin_task", "observe", "end_task", "predictor")
"""What a method does."""

_DECORATED = re.compile(r'^@method\(\s*"([^"]+)"', re.MULTILINE)


def _built_in() -> dict[str, str]:
    """The names that the files of this package register, found without importing them."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    names = {file.stem: _DECORATED.findall(file.read_text(encoding="utf-8")) for file in files}
    return {name: f"{__name__}.{module}" for module, here in names.items() for name in here}


METHODS: Registry[type[Any]] = Registry("method", _built_in())


def find_declared() -> None:
    """Add the methods that installed packages declare: entry points of the group `engram.methods`."""
    for entry in entry_points(group="engram.methods"):
        package = entry.module if entry.dist is None else entry.dist.name
        METHODS.declare(entry.name, package, partial(_declared, entry))


def _declared(entry: EntryPoint) -> type[Any]:
    from engram.methods.registration import accepted

    return accepted(entry.name, entry.load())


find_declared()


def method(
    name: str,
    *,
    family: str | None = None,
    paper: str | None = None,
    needs: tuple[str, ...] | None = None,
    needs_with: Callable[[Settings], tuple[str, ...]] | None = None,
    joint: bool | None = None,
    merges: bool | None = None,
    bytes_per_value: int | None = None,
    bytes_beside: int | None = None,
    own_augmentation: bool | None = None,
) -> Callable[[M], M]:
    """Register a method under a name, which every command then knows, and declare what it is and can do.

    It is a dataclass below `Learner`, or any dataclass with a field `network` and the four verbs
    `begin_task`, `observe`, `end_task`, `predictor`. The latter gets the experiment's `optimizer_spec` and
    `generator` if it has fields of these names, and all its other fields are hyper-parameters. Where it has
    no `state_dict`, `load_state_dict` or `kept_bytes` of its own, they are added, and work on whatever its
    attributes hold.

    Args:
        name: The name.
        family: The kind of method: "rehearsal", "prior", … (default: "own").
        paper: Where it comes from, by author and year.
        needs: What it needs with its default hyper-parameters, of "task identity", "boundaries" and
            "stored data" (default: nothing).
        needs_with: What it needs with other hyper-parameters, where that depends on them.
        joint: Whether it learns all tasks at once.
        merges: Whether it merges networks; then its method `curve` gives the accuracy over their balance.
        bytes_per_value: Bytes of each value of a sample in its memory, whose size is the field `memory`; a
            budget of bytes then sizes the memory.
        bytes_beside: Bytes that such a sample takes besides its values (default: 32).
        own_augmentation: Whether it augments images itself, switched on by its field `augment`.

    Raises:
        InputError: It cannot be a method; everything that is missing is named.

    Example:
        >>> from engram.methods.base import Learner
        >>> @method("test-nothing-new", family="baseline", needs=("boundaries",))
        ... class NothingNew(Learner):
        ...     "Fine-tuning by another name."
        >>> METHODS["test-nothing-new"].__name__
        'NothingNew'
        >>> traits_of("test-nothing-new").needs
        ('boundaries',)

        One that learns nothing, with the four verbs alone:

        >>> from dataclasses import dataclass
        >>> @method("test-idle")
        ... @dataclass(kw_only=True, eq=False)
        ... class Idle:
        ...     "The initial network."
        ...     network: object
        ...     def begin_task(self, task): ...
        ...     def observe(self, batch): return 0.0
        ...     def end_task(self, batches): ...
        ...     def predictor(self): return self.network
        >>> traits_of(Idle).family, traits_of(Idle).learner
        ('own', False)
    """

    def register(made: M) -> M:
        from engram.methods.registration import accepted

        accepted(
            name,
            made,
            family=family,
            paper=paper,
            needs=needs,
            needs_with=needs_with,
            joint=joint,
            merges=merges,
            bytes_per_value=bytes_per_value,
            bytes_beside=bytes_beside,
            own_augmentation=own_augmentation,
        )
        METHODS.add_own(name, made)
        return made

    return register


def traits_of(method: str | type[Any]) -> Traits:
    """What a method is and can do, as it was declared where it was registered.

    Args:
        method: Its name or its class.

    Example:
        >>> traits_of("er").family, traits_of("er").needs  # its memory is filled when a task ends
        ('rehearsal', ('stored data', 'boundaries'))
        >>> traits_of("er").needed({"policy": "reservoir"})
        ('stored data',)
        >>> traits_of("offline").joint, traits_of("imm-mean").merges, traits_of("gdumb").learner
        (True, True, False)
    """
    return declared_traits(METHODS[method] if isinstance(method, str) else method)


def load_plugin(path: Path) -> None:
    """Run a user's own script, which registers methods and models: `@engram.method`, `@engram.model`."""
    if not path.is_file():
        raise InputError(f"the plugin {path} is not there: give a Python file")
    from engram.metrics import METRICS

    before = METHODS.added + MODELS.added + METRICS.added
    spec = spec_from_file_location(f"engram_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"the plugin {path} is no Python file: its name must end in .py")
    module = module_from_spec(spec)
    # Dataclasses look up the module that they are written in.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"the plugin {path} does not run: {error}") from error
    except (Exception, SystemExit) as error:
        # Whatever it is, it is the user's own script that failed, and where is in the exception's cause.
        raise InputError(f"the plugin {path} does not run: {type(error).__name__}: {error}") from error
    if METHODS.added + MODELS.added + METRICS.added == before:
        raise InputError(
            f"the plugin {path} registers no method or model or metric: decorate a class with "
            "@engram.method('name'), or a function with @engram.model('name') or @engram.metric('name', …)"
        )
