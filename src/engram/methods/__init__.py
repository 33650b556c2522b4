"""Methods, one file per method. A method is its difference from fine-tuning.

A file of this package that decorates a class with `@method("name", …)` is a method of engram: nothing else
needs to be edited. Methods are imported when they are first looked up.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from engram.core.lazy import lazy_package
from engram.core.registries import METHODS
from engram.methods.traits import Declaration, Traits, declared_traits

if TYPE_CHECKING:
    from engram.methods.base import Learner, Method, Terms

__all__ = ["METHODS", "VERBS", "Learner", "Method", "Terms", "method", "traits_of"]

__getattr__, __dir__ = lazy_package(__name__, {".base": ("Learner", "Method", "Terms")})

M = TypeVar("M", bound=type[object])

VERBS = ("begin_task", "observe", "end_task", "predictor")
"""The functions that every method has."""

_DECORATED = re.compile(r'^@method\(\s*"([^"]+)"', re.MULTILINE)


def _built_in() -> dict[str, str]:
    """The names that the files of this package register, read without importing them."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    names = {file.stem: _DECORATED.findall(file.read_text(encoding="utf-8")) for file in files}
    return {name: f"{__name__}.{module}" for module, registered in names.items() for name in registered}


for _name, _module in _built_in().items():
    METHODS.add(_name, _module)


def method(name: str, **traits: Unpack[Declaration]) -> Callable[[M], M]:
    """Register a method under a name that every command accepts, and declare its traits.

    It is a dataclass below `Learner`, or any dataclass with a field `network` and the four verbs
    `begin_task`, `observe`, `end_task`, `predictor`. The latter gets the experiment's `optimizer_spec` and
    `generator` if it has fields of these names; all its other fields are hyper-parameters. If it does not
    define `state_dict`, `load_state_dict` or `kept_bytes`, they are added, and cover all its attributes.

    Args:
        name: The name.
        traits: Its traits, as keywords: `family`, `paper`, `needs`, `needs_with`, `joint`, `merges`,
            `bytes_per_value`, `bytes_beside`, `own_augmentation`, `fresh`, `plans_updates`. See
            `engram.methods.traits.Traits`; those that are left out come from its class attributes or its
            parent.

    Raises:
        InputError: The class is not a valid method; the message names everything that is missing.

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

    def register(kind: M) -> M:
        from engram.methods.registration import accepted

        accepted(name, kind, **traits)
        METHODS.add_own(name, kind)
        return kind

    return register


def traits_of(method: str | type[object]) -> Traits:
    """The traits of a method, as declared where it was registered.

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
