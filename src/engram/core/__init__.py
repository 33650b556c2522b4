"""Values that every other part shares: batches, tasks, traces, names, seeds, files. No torch at import."""

from engram.core.lazy import lazy_package

__getattr__, __dir__ = lazy_package(__name__, {})
