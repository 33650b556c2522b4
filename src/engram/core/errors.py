"""What engram says when it was given something it cannot use."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Bad input, in one line: what is wrong and what to do about it.

    The command line prints it as `error: …` and exits with 2; it never shows a traceback.
    """


class NoNumber(InputError):
    """A loss that is no number any more."""


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
