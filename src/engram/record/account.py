"""What a method costs, measured on the run itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from engram.core.jsons import JsonMapping, JsonObject


@dataclass(frozen=True, slots=True)
class Done:
    """Work that was done in one place.

    Attributes:
        backward_passes: Backward passes, all counted.
        flops: Floating-point operations, element-wise ones included.
        samples: Samples that were computed with gradients; one that is used twice counts twice.
    """

    backward_passes: int = 0
    flops: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class PhaseWork:
    """The work of one phase, by where it was done; operations and samples are scaled from what was counted.

    Attributes:
        updates: How many updates there were.
        in_updates: In `observe`.
        at_boundaries: In `begin_task` and `end_task`.
        for_answers: In `predictor`.
        answer_flops: Operations of the costliest call of `predictor`.
        begin_flops: Operations at boundaries before the first update of the phase; None in runs of earlier
            versions.
    """

    updates: int
    in_updates: Done
    at_boundaries: Done
    for_answers: Done
    answer_flops: int
    begin_flops: int | None = None

    @property
    def places(self) -> tuple[Done, Done, Done]:
        """What was done in updates, at boundaries and for answers."""
        return self.in_updates, self.at_boundaries, self.for_answers

    @classmethod
    def of_json(cls, value: JsonMapping) -> PhaseWork:
        """Read what `asdict` gave."""
        return cls(
            int(value["updates"]),
            Done(**value["in_updates"]),
            Done(**value["at_boundaries"]),
            Done(**value["for_answers"]),
            int(value["answer_flops"]),
            None if value.get("begin_flops") is None else int(value["begin_flops"]),
        )


@dataclass(frozen=True, slots=True)
class Account:
    """What a method kept and spent.

    Attributes:
        parameters: Weights of the network that answers.
        kept_bytes: Bytes kept beyond the weights and the optimiser's state at the end of each phase, before
            or after the method's `end_task`, whichever is more: memories, importance, older networks,
            generators; counted from the storages that are held, not from what the method reports.
        flops: Floating-point operations of an update in each phase, counted as they were done: the costliest
            of three in its second half, element-wise operations included (in runs without `work`: matrix
            products and convolutions of the last update but one).
        kept_samples: Samples among those bytes.
        update_seconds: The median time of an update, in each phase.
        work: The work of each phase, wherever it was done; empty in runs of older versions.

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
    work: tuple[PhaseWork, ...] = ()

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
            tuple(PhaseWork.of_json(phase) for phase in value.get("work", ())),
        )
