"""What a method costs, measured on the run itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from engram.core.jsons import JsonMapping, JsonObject


@dataclass(frozen=True, slots=True)
class Account:
    """What a method kept and spent.

    Attributes:
        parameters: Weights of the network that answers.
        kept_bytes: Bytes kept beyond the weights and the optimiser's state at the end of each phase, before
            or after the method's `end_task`, whichever is more: memories, importance, older networks,
            generators; counted from the tensors and arrays that are held, not from what the method reports.
        flops: Floating-point operations of the last but one update of each phase, counted as they were done.
        kept_samples: Samples among those bytes.
        update_seconds: The median time of an update, in each phase.

    Example:
        >>> account = Account(10, (0,), (120,), (0,), (0.5,))
        >>> Account.of_json(account.as_json()) == account
        True
    """

    parameters: int
    kept_bytes: tuple[int, ...]
    flops: tuple[int, ...]
    kept_samples: tuple[int, ...]
    update_seconds: tuple[float, ...]

    def as_json(self) -> JsonObject:
        """What `result.json` says."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: JsonMapping) -> Account:
        """Read what `as_json` gave."""
        return cls(
            int(value["parameters"]),
            tuple(int(number) for number in value["kept_bytes"]),
            tuple(int(number) for number in value["flops"]),
            tuple(int(number) for number in value["kept_samples"]),
            tuple(float(number) for number in value["update_seconds"]),
        )
