"""The registries that values name things in; each is filled by its home when it is first used."""

from __future__ import annotations

from typing import Any

from engram.core.registry import Registry

METHODS: Registry[type[Any]] = Registry(
    "method",
    home="engram.methods",
    group="engram.methods",
    decorator="@engram.method('name')",
    accept="engram.methods.registration:accepted",
)
