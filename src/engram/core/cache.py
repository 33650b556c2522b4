"""Where this user's machine keeps what can be fetched or measured again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Where such files are kept: `ENGRAM_CACHE`, or engram's folder in the platform's user cache.

    Example:
        >>> cache_folder().is_absolute() or "ENGRAM_CACHE" in os.environ
        True
    """
    if chosen := os.environ.get("ENGRAM_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "engram"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "engram"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "engram"
