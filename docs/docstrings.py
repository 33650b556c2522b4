"""The section `Example:` of docstrings, as examples: Griffe knows it by the name `Examples:` only."""

from __future__ import annotations

import re

from griffe import Extension, Object


class Examples(Extension):
    """Give the section the name that Griffe knows, on the site only."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Rename the section of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
