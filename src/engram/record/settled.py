"""Attributes that wait for measurements under way before they are read."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar, overload

V = TypeVar("V")


class Settles(Protocol):
    """Whose attributes may be behind, because something is still being measured."""

    def settle(self) -> None:
        """Wait for everything that is under way, and record it."""


class Settled(Generic[V]):
    """An attribute that is read only when everything under way is recorded.

    What `settle` reads of itself settles nothing: it must return at once when it is called by itself.

    Example:
        >>> class Slow:
        ...     count = Settled[int]()
        ...     def __init__(self): self.count, self.coming = 0, [1, 1]
        ...     def settle(self):
        ...         if self.coming:
        ...             coming, self.coming = self.coming, []
        ...             self.count += sum(coming)
        >>> Slow().count
        2
    """

    def __set_name__(self, owner: type[Settles], name: str) -> None:
        self.name = f"_settled_{name}"

    @overload
    def __get__(self, instance: None, owner: type[Settles]) -> Settled[V]: ...

    @overload
    def __get__(self, instance: Settles, owner: type[Settles]) -> V: ...

    def __get__(self, instance: Settles | None, owner: type[Settles]) -> V | Settled[V]:
        if instance is None:
            return self
        instance.settle()
        value: V = getattr(instance, self.name)
        return value

    def __set__(self, instance: Settles, value: V) -> None:
        setattr(instance, self.name, value)
