"""What engram says when it was given something it cannot use."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Bad input, in one line: what is wrong and what to do about it.

    The command line prints it as `error: …` and exits with 2; it never shows a traceback.
    """


class NonFinite(InputError):
    """Something became NaN or infinite while a method was learning: the run cannot continue.

    Args:
        what: What it was: "loss", "weights", "gradients on the memories", "loss of the generator", …
        value: The value itself, where it is a single number.
        hint: What to do about it, if the method knows; otherwise a smaller learning rate is suggested.

    Example:
        >>> print(NonFinite("weights"))
        weights became NaN or infinite
        >>> error = NonFinite("loss", float("nan"), hint="set lr below 0.05")
        >>> print(error)
        loss became nan: set lr below 0.05
        >>> error.event, error.hint
        ('loss became nan', 'set lr below 0.05')
    """

    def __init__(self, what: str, value: float | None = None, hint: str = "") -> None:
        self.what, self.value, self.hint = what, value, hint
        super().__init__(f"{self.event}: {hint}" if hint else self.event)

    @property
    def event(self) -> str:
        """What happened, without the hint."""
        return f"{self.what} became {'NaN or infinite' if self.value is None else self.value}"

    def __reduce__(self) -> tuple[type, tuple[str, float | None, str]]:
        # Worker processes send it to their parent: it is made again from its parts, not from its text.
        return type(self), (self.what, self.value, self.hint)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name nobody knows, with the nearest known ones.

    Example:
        >>> print(unknown_name("method", "ecw", ["ewc", "er", "gem"]))
        unknown method 'ecw': did you mean 'ewc'? Known: er, ewc, gem
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return InputError(f"unknown {kind} {name!r}: {hint}Known: {', '.join(names)}")
