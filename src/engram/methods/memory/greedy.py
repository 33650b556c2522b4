"""The greedily balanced memory of GDumb."""

from __future__ import annotations

import hashlib
from collections import Counter

import torch
from torch import Tensor

from engram.core.values import Batch
from engram.methods.memory.samples import Samples
from engram.methods.state import State


class Greedy:
    """At most `capacity` samples, as balanced over the classes as the stream allows at every moment (GDumb).

    A sample is stored while its class has fewer than capacity / (classes seen so far). Where there is no room
    left it takes the place of a random sample of the largest class (of the lowest number, if several are). A
    sample that is stored already is not stored again, so passes over the same data add nothing.

    Example:
        >>> memory = Greedy(4, torch.Generator().manual_seed(0))
        >>> memory.add(Batch(torch.arange(9.0)[:, None], torch.tensor([0] * 6 + [1] * 3), heads=((0, 1),)))
        True
        >>> memory.samples.y.sort().values
        tensor([0, 0, 1, 1])
    """

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self.samples = Samples()
        self.classes: list[int] = []
        self._index([])

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, batch: Batch) -> bool:
        """Offer the samples of a batch one by one; returns whether any was stored."""
        chosen: dict[int, int] = {}
        for row, name in enumerate(batch.y.tolist()):
            if name not in self.classes:
                self.classes.append(name)
            if self._counts[name] >= self.capacity / len(self.classes):
                continue
            fingerprint = _fingerprint(batch.x[row], name)
            if fingerprint in self._known:
                continue
            place = self._free_place()
            self._held[place : place + 1] = [(name, fingerprint)]
            self._counts[name] += 1
            self._known.add(fingerprint)
            chosen[place] = row
        self.samples.write(batch, chosen)
        return bool(chosen)

    def _free_place(self) -> int:
        if len(self._held) < self.capacity:
            return len(self._held)
        largest = min(self._counts, key=lambda name: (-self._counts[name], name))
        places = [place for place, (name, _) in enumerate(self._held) if name == largest]
        place = places[int(torch.randint(len(places), (), generator=self.generator))]
        self._counts[largest] -= 1
        self._known.remove(self._held[place][1])
        return place

    def _index(self, held: list[tuple[int, bytes]]) -> None:
        """Index the classes and fingerprints of the samples held, for fast lookup."""
        self._held = held
        self._counts = Counter(name for name, _ in held)
        self._known = {fingerprint for _, fingerprint in held}

    def state_dict(self) -> State:
        """Everything that is stored; the generator belongs to the method."""
        return {"samples": self.samples.state_dict(), "classes": self.classes}

    def load_state_dict(self, state: State) -> None:
        """Restore what was stored."""
        self.samples.load_state_dict(state["samples"])
        self.classes = list(state["classes"])
        x = self.samples.x if self.samples.x is not None else ()
        labels = self.samples.y.tolist()
        self._index([(name, _fingerprint(row, name)) for row, name in zip(x, labels, strict=True)])


def _fingerprint(x: Tensor, name: int) -> bytes:
    content = x.detach().cpu().contiguous().numpy().tobytes()
    return hashlib.blake2b(content, digest_size=16, salt=name.to_bytes(8, "big")).digest()
