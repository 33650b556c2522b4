"""Among how many classes the answers of a run are sought, as its description says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engram.core.jsons import JsonMapping


def choices_of(description: JsonMapping) -> list[list[int]] | None:
    """For each phase, the number of classes among which the answers of each task are sought.

    In the task setting these are the classes of the task; with masked outputs the classes so far; otherwise
    all of them. None for a run of the user's own loop.

    Example:
        >>> tasks = [{"units": [0, 1]}, {"units": [2, 3]}]
        >>> stream = {"tasks": tasks, "phases": [[0], [1]], "setting": {"kind": "task"}}
        >>> choices_of({"scenario": stream})
        [[2, 2], [2, 2]]
        >>> choices_of({"scenario": {**stream, "setting": {"kind": "class", "classes_known": False}}})
        [[2, 2], [4, 4]]
    """
    scenario = description.get("scenario")
    if not isinstance(scenario, Mapping):
        return None
    tasks, phases, setting = scenario.get("tasks"), scenario.get("phases"), scenario.get("setting")
    if not (isinstance(tasks, Sequence) and isinstance(phases, Sequence) and isinstance(setting, Mapping)):
        return None
    units = [set(task.get("units") or ()) if isinstance(task, Mapping) else set() for task in tasks]
    if not all(units):
        return None
    if setting.get("kind") == "task":
        return [[len(own) for own in units] for _ in phases]
    known = setting.get("kind") != "class" or setting.get("classes_known")
    if known or not setting.get("mask_evaluation", True):
        return [[1 + max(max(own) for own in units)] * len(units) for _ in phases]
    seen: set[int] = set()
    counts = []
    for together in phases:
        seen |= {unit for task in together for unit in units[task]}
        counts.append([len(seen)] * len(units))
    return counts
