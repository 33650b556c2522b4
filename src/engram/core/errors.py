"""The errors that engram raises for bad input."""

from collections.abc import Iterable
from difflib import SequenceMatcher


class InputError(ValueError):
    """Bad input, in one line: what is wrong and what to do about it.

    The command line prints it as `error: …` and exits with 2; it never shows a traceback.
    """


class Damaged(InputError):
    """A file is not what was written: it was cut short or changed, or it never was of this kind."""


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
        # Worker processes send it to their parent, where it is rebuilt from its parts, not from its text.
        return type(self), (self.what, self.value, self.hint)


def needs_torch(error: ModuleNotFoundError, what: str = "this") -> str:
    """What to install, where torch or scikit-learn is missing; empty for other errors.

    Args:
        error: The error of an import.
        what: What needs it.

    Example:
        >>> needs_torch(ModuleNotFoundError("No module named 'torch'", name="torch"), "engram run")
        "engram run needs torch, which is not installed: pip install 'engram-eval[torch]'"
    """
    if (error.name or "").partition(".")[0] not in ("torch", "sklearn"):
        return ""
    return f"{what} needs torch, which is not installed: pip install 'engram-eval[torch]'"


LISTED_BY = {
    "scenario": "engram list scenarios",
    "method": "engram list methods",
    "model": "engram list models",
    "metric": "engram list metrics",
    "data set": "engram list datasets",
    "optimizer": "engram list optimizers",
    "table or figure": "engram reproduce",
}
"""The command that shows every name of a kind."""

_SAME_BEGINNING = 0.75
_FEW = 12
_NEAR = 3


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, listed_by: str | None = None, lists: str = "all"
) -> InputError:
    """The error for an unknown name: the nearest three known names, and the command that lists all of them.

    Where no command lists them, the message does, unless there are many names and one is similar.

    Args:
        kind: What the name should be, as `LISTED_BY` spells it where it has it.
        name: The unknown name.
        known: The names to choose from.
        listed_by: The command that lists them, for a kind that is not in `LISTED_BY`.
        lists: Which of them it lists.

    Example:
        >>> print(unknown_name("method", "ecw", ["ewc", "er", "gem"]))
        unknown method 'ecw'; did you mean 'ewc'? `engram list methods` shows all
        >>> print(unknown_name("setting", "tsk", ["task", "domain", "class"]))
        unknown setting 'tsk'; did you mean 'task'? Choose from task, domain, class
        >>> print(unknown_name("setting", "none", ["task", "domain", "class"]))
        unknown setting 'none'; choose from task, domain, class
    """
    names = list(known)
    near = nearest(name, names)
    command = listed_by or LISTED_BY.get(kind)
    hints = []
    if near:
        *others, last = map(repr, near)
        hints.append(f"did you mean {', '.join(others) + ' or ' if others else ''}{last}?")
    if command is not None:
        hints.append(f"`{command}` shows {lists}")
    elif names and (not near or len(names) <= _FEW):
        hints.append(f"{'Choose' if near else 'choose'} from {', '.join(names)}")
    return InputError(f"unknown {kind} {name!r}{'; ' if hints else ''}{' '.join(hints)}")


def nearest(name: str, known: Iterable[str], *, like: float = 0.6) -> list[str]:
    """The three most similar known names, the best match first; empty where none is similar.

    Case does not matter. A name that begins with the other one counts as similar.

    Args:
        name: The name to look for.
        known: The names to choose from.
        like: The least similarity, from 0 to 1.

    Example:
        >>> nearest("ERR", ["ewc", "er", "gem"]), nearest("split", ["split-mnist", "queue-002"])
        (['er'], ['split-mnist'])
        >>> nearest("xyz", ["ewc", "er"])
        []
    """
    wanted = name.casefold()

    def likeness(candidate: str) -> tuple[float, float, int]:
        other = candidate.casefold()
        match = SequenceMatcher(None, other, wanted)
        begins = min(len(wanted), len(other)) > 1 and (other.startswith(wanted) or wanted.startswith(other))
        near = max(match.ratio(), _SAME_BEGINNING if begins else 0.0)
        return near, match.ratio(), match.find_longest_match().size

    # Equally similar names stay in the order of `known`.
    rated = sorted(dict.fromkeys(known), key=likeness, reverse=True)
    return [candidate for candidate in rated[:_NEAR] if likeness(candidate)[0] >= like]
