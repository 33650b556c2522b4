"""What a run was evaluated on: fingerprints of its test sets, so that runs on other data are noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from engram.core.jsons import Json, JsonObject


@dataclass(frozen=True, slots=True)
class TestData:
    """The fingerprint of one task's test set; the order of samples does not count.

    Attributes:
        samples: How many samples it has.
        labels: A hash of its labels.
        inputs: How many inputs the hash `content` looks at: all where they are in memory, else a few.
        content: A hash of these inputs with their labels.
        evaluated: The same hash of the samples that were drawn for evaluation; None where they were drawn
            again for every evaluation.
    """

    # Not a test, though pytest would think so.
    __test__ = False

    samples: int
    labels: str
    inputs: int
    content: str
    evaluated: str | None

    def as_json(self) -> JsonObject:
        """The fingerprint as `result.json` has it."""
        return asdict(self)

    @classmethod
    def of_json(cls, written: Mapping[str, Json]) -> TestData:
        """What `as_json` wrote; fields of later versions are ignored."""
        evaluated = written["evaluated"]
        return cls(
            samples=int(written["samples"]),
            labels=str(written["labels"]),
            inputs=int(written["inputs"]),
            content=str(written["content"]),
            evaluated=None if evaluated is None else str(evaluated),
        )

    def differs(self, other: TestData) -> bool:
        """Whether two test sets are known to differ, all their samples considered.

        Inputs are compared if both hashes look at the same number of them.

        Example:
            >>> one = TestData(10, "a", 10, "b", None)
            >>> one.differs(TestData(10, "a", 10, "c", None)), one.differs(TestData(10, "a", 2, "c", None))
            (True, False)
        """
        if (self.samples, self.labels) != (other.samples, other.labels):
            return True
        return self.inputs == other.inputs and self.content != other.content


def other_tasks(first: Sequence[TestData], second: Sequence[TestData]) -> tuple[int, ...]:
    """The tasks whose test sets differ between two runs; empty where they do not or nothing is recorded.

    Example:
        >>> one, other = TestData(10, "a", 10, "b", None), TestData(20, "a", 20, "b", None)
        >>> other_tasks([one, one], [one, other]), other_tasks([one], [])
        ((1,), ())
    """
    if not first or not second:
        return ()
    shared = min(len(first), len(second))
    differing = [task for task in range(shared) if first[task].differs(second[task])]
    return (*differing, *range(shared, max(len(first), len(second))))
