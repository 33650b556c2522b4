"""HTML that is escaped by default."""

from html import escape

_VOID = ("br", "img", "input")


class Html(str):
    """Text that already is HTML; any other text is escaped when it is put into an element."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: str | bool | None) -> Html:
    """One HTML element; content and attributes are escaped unless they are `Html`.

    Attributes are named as in HTML, with `_` for `-` and a trailing `_` where the name is a Python keyword
    (`class_`). True writes the attribute without a value; False and None omit it.

    Example:
        >>> element("p", "1 < 2, ", element("b", "always"), class_="note", data_kind='"', hidden=True)
        '<p class="note" data-kind="&quot;" hidden>1 &lt; 2, <b>always</b></p>'
    """
    marks = "".join(
        f" {name}" if value is True else f' {name}="{escape(str(value))}"'
        for name, value in ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())
        if value is not None and value is not False
    )
    return Html(f"<{tag}{marks}>" + ("" if tag in _VOID else f"{joined(*content)}</{tag}>"))


def joined(*content: str) -> Html:
    """Content concatenated, escaped unless it is `Html`.

    Example:
        >>> joined("a & ", element("b", "c"))
        'a &amp; <b>c</b>'
    """
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in content))
