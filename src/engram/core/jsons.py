"""JSON as Python holds it: the one place that says how loosely it is typed."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Any JSON value: None, a bool, a number, text, a list or an object."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that is being made."""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is read."""
