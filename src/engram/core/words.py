"""Numbers and durations in words."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """A number of things, in the singular or the plural.

    Example:
        >>> counted(1, "epoch"), counted(5, "seed"), counted(2, "class"), counted(1200, "update")
        ('1 epoch', '5 seeds', '2 classes', '1,200 updates')
    """
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{ending}"


def subject(number: int, what: str, verbs: tuple[str, str] = ("has", "have")) -> str:
    """A number of things with the verb that agrees with it.

    Example:
        >>> subject(1, "sample"), subject(3, "id", ("is", "are"))
        ('1 sample has', '3 ids are')
    """
    return f"{counted(number, what)} {verbs[number != 1]}"


def every(number: int, what: str) -> str:
    """How often something is done.

    Example:
        >>> every(1, "update"), every(10, "update")
        ('every update', 'every 10 updates')
    """
    return f"every {what}" if number == 1 else f"every {counted(number, what)}"


def duration(seconds: float) -> str:
    """A duration in the unit that suits it.

    Example:
        >>> duration(0.3), duration(42), duration(600), duration(9000), duration(260000)
        ('1 s', '42 s', '10 min', '2.5 h', '3 days')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else counted(round(seconds / 86400), "day")


def number(mean: float | None, spread: float | None, digits: int) -> str:
    """A number as tables show it, with its spread if there is one.

    Example:
        >>> number(93.456, 2.01, 2), number(93.456, None, 2), number(None, None, 2)
        ('93.46 ± 2.01', '93.46', '–')
    """
    if mean is None:
        return "–"
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")
