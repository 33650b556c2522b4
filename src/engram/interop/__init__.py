"""Where engram plugs into other tools. Each module needs the tool that it is named after."""

from engram.core.lazy import lazy_package

__all__: list[str] = []

__getattr__, __dir__ = lazy_package(__name__, {})
