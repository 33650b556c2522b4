"""The traits of a method, as declared where it is registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypedDict

from engram.core.errors import unknown_name

BYTES_BESIDE = 32
"""Bytes of a stored sample besides its input: label, head, and its random key or queue position."""

Settings = Mapping[str, Any]
"""The values of a method's hyper-parameters, by name."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a method is and what it can do.

    Attributes:
        family: The kind of method: "rehearsal", "prior", …
        paper: The paper that introduced it, by author and year.
        needs: What it needs with its default hyper-parameters, of "task identity", "boundaries" and
            "stored data".
        needs_with: What it needs with other hyper-parameters, if that depends on them.
        joint: It learns all tasks at once instead of one after the other.
        learner: It is a `Learner`: it takes a learning rate per phase, images that are augmented for it,
            and can split its gradients.
        merges: It merges networks, and its `curve` gives the accuracy over their balance.
        bytes_per_value: For a method whose `memory` counts samples, the bytes per value of a sample; a budget
            in bytes is divided by it.
        bytes_beside: The bytes of such a sample besides its values: label, head and the like.
        own_augmentation: It augments images itself, which its field `augment` switches on.
        fresh: It begins every task with a new network and a new optimiser.
        plans_updates: What it does in an update depends on the number of updates of the task.
        one_network: It answers with one network of the experiment's kind, whose weights can be kept.
        takes_tokens: Its inputs may be tokens; False for a method that imitates or rounds numbers.
    """

    family: str = "own"
    paper: str = ""
    needs: tuple[str, ...] = ()
    needs_with: Callable[[Settings], tuple[str, ...]] | None = None
    joint: bool = False
    learner: bool = False
    merges: bool = False
    bytes_per_value: int | None = None
    bytes_beside: int = BYTES_BESIDE
    own_augmentation: bool = False
    fresh: bool = False
    plans_updates: bool = False
    takes_tokens: bool = True
    one_network: bool = True

    def needed(self, settings: Settings) -> tuple[str, ...]:
        """What the method needs with these hyper-parameters, which must be complete.

        Example:
            >>> Traits(needs=("boundaries",)).needed({})
            ('boundaries',)
        """
        return self.needs if self.needs_with is None else self.needs_with(settings)

    @property
    def usual_needs(self) -> tuple[str, ...]:
        """What the method needs with its default hyper-parameters, for people to read.

        Example:
            >>> Traits(joint=True).usual_needs
            ('all tasks at once',)
        """
        # Not one of `needs`, because no setting can refuse it: the method gets another stream.
        return (*self.needs, "all tasks at once") if self.joint else self.needs

    @property
    def stores_data(self) -> bool:
        """Whether it stores samples of earlier tasks."""
        return "stored data" in self.needs


class Declaration(TypedDict, total=False):
    """What the decorator takes: the fields of `Traits` except `learner`, which the parent class decides."""

    family: str
    paper: str
    needs: tuple[str, ...]
    needs_with: Callable[[Settings], tuple[str, ...]]
    joint: bool
    merges: bool
    bytes_per_value: int
    bytes_beside: int
    own_augmentation: bool
    fresh: bool
    plans_updates: bool
    takes_tokens: bool
    one_network: bool


_DECLARED: dict[type, Traits] = {}
_CLASS_ATTRIBUTES = ("family", "paper", "needs", "joint", "bytes_per_value", "bytes_beside")


def declare(kind: type, **declared: object) -> Traits:
    """Record the traits of a class: those declared here, the others from the class or its parents.

    Args:
        kind: The class.
        declared: Fields of `Traits`.

    Example:
        >>> class Parent: ...
        >>> class Child(Parent): ...
        >>> _ = declare(Parent, family="prior", needs=("boundaries",))
        >>> declare(Child, paper="Doe (2026)").needs
        ('boundaries',)
        >>> declare(Child, famly="prior")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown trait 'famly'; did you mean 'family'?...
    """
    known = Declaration.__annotations__.keys() | {"learner"}
    for name in declared.keys() - known:
        raise unknown_name("trait", name, known)
    parent = next((_DECLARED[base] for base in kind.__mro__[1:] if base in _DECLARED), Traits())
    traits = {**_class_traits(kind, parent), **declared}
    if "needs" in traits:
        # What the class declares is not overridden by its parent's rule.
        traits = {"needs_with": None, **traits}
    _DECLARED[kind] = replace(parent, **traits)
    return _DECLARED[kind]


def declared_traits(kind: type) -> Traits:
    """The traits of a class; if they were never declared, those of its attributes and its parents.

    Example:
        >>> class Mine:
        ...     family = "rehearsal"
        >>> declared_traits(Mine).family
        'rehearsal'
    """
    return _DECLARED[kind] if kind in _DECLARED else declare(kind)


def _class_traits(kind: type, parent: Traits) -> dict[str, Any]:
    """The traits given as class attributes, as in plugins written before the decorator took arguments."""
    attributes: Settings = {}
    for base in kind.__mro__:
        if base in _DECLARED and base is not kind:
            break
        attributes = {**vars(base), **attributes}
    hyper_parameters = {item.name for item in fields(kind)} if is_dataclass(kind) else set()
    traits = {
        name: attributes[name]
        for name in _CLASS_ATTRIBUTES
        if name in attributes and name not in hyper_parameters
    }
    if "needs_with" in attributes:
        traits["needs_with"] = attributes["needs_with"].__get__(None, kind)
        traits["needs"] = traits["needs_with"](_defaults(kind))
    if "curve" in attributes:
        traits["merges"] = True
    if "augment" in hyper_parameters and not parent.learner:
        traits["own_augmentation"] = True
    return traits


def _defaults(kind: type) -> Settings:
    from engram.methods.fields import validate_fields

    return validate_fields(kind.__name__, kind, {})
