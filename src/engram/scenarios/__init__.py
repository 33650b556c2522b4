"""Scenarios: frozen values, and the functions that return them. Nothing is loaded, torch is not imported."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.scenarios.algebra import concat, joint, online, prefix, shuffled
    from engram.scenarios.build import SLT_CODES, domains, permuted, queue, rotated, slt, split, superclasses
    from engram.scenarios.catalogue import benchmark
    from engram.scenarios.named import BENCHMARKS, Benchmark, scenario
    from engram.scenarios.recipe import Recipe, Tuning
    from engram.scenarios.values import (
        ClassSetting,
        Colour,
        DomainSetting,
        Grey,
        Normalise,
        Pad,
        Permute,
        Resize,
        Rotate,
        Scenario,
        Setting,
        SettingName,
        Source,
        Task,
        TaskSetting,
        Transform,
    )

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "ClassSetting",
    "Colour",
    "DomainSetting",
    "Grey",
    "Normalise",
    "Pad",
    "Permute",
    "Recipe",
    "Resize",
    "Rotate",
    "SLT_CODES",
    "Scenario",
    "Setting",
    "SettingName",
    "Source",
    "Task",
    "TaskSetting",
    "Transform",
    "Tuning",
    "benchmark",
    "concat",
    "domains",
    "joint",
    "online",
    "permuted",
    "prefix",
    "queue",
    "rotated",
    "scenario",
    "shuffled",
    "slt",
    "split",
    "superclasses",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".algebra": ("concat", "joint", "online", "prefix", "shuffled"),
        ".build": (
            *("SLT_CODES", "domains", "permuted", "queue", "rotated", "slt", "split", "superclasses"),
        ),
        ".named": ("BENCHMARKS", "Benchmark", "scenario"),
        ".catalogue": ("benchmark",),
        ".recipe": ("Recipe", "Tuning"),
        ".values": (
            *("ClassSetting", "Colour", "DomainSetting", "Grey", "Normalise", "Pad", "Permute", "Resize"),
            *("Rotate", "Scenario", "Setting", "SettingName", "Source", "Task", "TaskSetting", "Transform"),
        ),
    },
)
