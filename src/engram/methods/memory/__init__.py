"""Memories of samples, and functions that fill and read them."""

from engram.methods.memory.batches import join, pool, select
from engram.methods.memory.greedy import Greedy
from engram.methods.memory.per_class import ClassBalanced, Latest, PerClass, equal_shares
from engram.methods.memory.reservoir import Reservoir, choose
from engram.methods.memory.rounds import Sections, Turns
from engram.methods.memory.samples import CodedSamples, Samples, gather

__all__ = [
    "ClassBalanced",
    "CodedSamples",
    "Greedy",
    "Latest",
    "PerClass",
    "Reservoir",
    "Samples",
    "Sections",
    "Turns",
    "choose",
    "equal_shares",
    "gather",
    "join",
    "pool",
    "select",
]
