"""What all protocols take: the options that they share, and the request made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engram.cli.machines import chosen_machines, machine_parameters
from engram.cli.options import one_of
from engram.cli.run_options import RunOptions, assignments, run_parameters
from engram.cli.signature import Verb, option, with_spread
from engram.core.errors import InputError
from engram.core.jsons import JsonMapping, JsonObject

if TYPE_CHECKING:
    from engram.executors import Machines
    from engram.record.experiment import Experiment

# The ends of tasks are always evaluated, and no task is learned for that many updates.
AT_TASK_ENDS = 2**31 - 1
HELD_OUT = 0.2
PANEL = "Protocol"

Scenario = Annotated[str, typer.Argument(help="A benchmark: see `engram list scenarios`.")]
Method = Annotated[str, typer.Argument(help="A method: see `engram list methods`.")]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="FIELD=a,b,c",
        help="Values to try, such as lr=.1,.01 or hidden=400x400,800x800. May be repeated.",
        rich_help_panel=PANEL,
    ),
]
Metric = Annotated[
    str,
    typer.Option(help="Choose fields by this metric: see `engram list metrics`.", rich_help_panel=PANEL),
]
SelectOn = Annotated[str, typer.Option(help="Choose on test or validation data.", rich_help_panel=PANEL)]
HeldOut = Annotated[
    float | None,
    typer.Option(
        help="Share of the training samples that is held out for validation.",
        show_default=f"{HELD_OUT:g}",
        rich_help_panel=PANEL,
    ),
]
Every = Annotated[
    int | None,
    typer.Option(help="Evaluate after every N updates.", metavar="N", show_default="at task ends"),
]
Subset = Annotated[
    int | None, typer.Option(help="Test samples per task in each evaluation.", show_default="all")
]
Jobs = Annotated[int, typer.Option(help="Parallel runs, one process each if there are several.")]


@dataclass(frozen=True, slots=True)
class Selection:
    """On which data fields are chosen.

    Attributes:
        on: Test or validation data.
        held_out: The share of the training samples that is held out for validation.
    """

    on: Literal["test", "validation"]
    held_out: float

    @classmethod
    def checked(cls, on: str, held_out: float | None, *, used: bool | None = None) -> Selection:
        """The selection, checked.

        Args:
            on: Test or validation.
            held_out: The share, or None for the default.
            used: Whether anything is chosen on held-out samples (default: whether `on` is validation).

        Raises:
            InputError: `on` is neither, or the share is not between 0 and 1, or it has no effect.

        Example:
            >>> Selection.checked("validation", None).held_out
            0.2
            >>> Selection.checked("test", 0.1)
            Traceback (most recent call last):
            engram.core.errors.InputError: --held-out has no effect: nothing is chosen on validation data; ...
        """
        chosen = one_of("data to select on", on, ("test", "validation"))
        if held_out is not None:
            if not 0 < held_out < 1:
                raise InputError(f"held-out must be above 0 and below 1, got {held_out:g}")
            if not (chosen == "validation" if used is None else used):
                raise InputError(
                    "--held-out has no effect: nothing is chosen on validation data; "
                    "add --select-on validation, or leave it out"
                )
        return cls(
            "validation" if chosen == "validation" else "test", HELD_OUT if held_out is None else held_out
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRequest:
    """A request to a protocol: what all protocols take.

    Attributes:
        protocol: Its name.
        scenario: The name of a scenario, or of several where the protocol takes them.
        method: A method's name, or several.
        fields: The values to try, by field, as they were typed.
        every: Evaluate after every N updates; None for the protocol's default.
        subset: Test samples per task in each evaluation, 0 for all; None for the protocol's default.
        jobs: Parallel runs.
        machines: On which machines.
        options: The experiment and where it is run, as for `engram run`.
    """

    protocol: str
    scenario: str
    method: str
    fields: dict[str, list[str]]
    every: int | None
    subset: int | None
    jobs: int
    machines: Machines
    options: RunOptions

    @classmethod
    def checked(
        cls,
        protocol: str,
        *,
        scenario: str,
        method: str,
        grid: Sequence[str] | None = None,
        every: int | None = None,
        subset: int | None = None,
        jobs: int = 1,
        **run_options: Any,
    ) -> ProtocolRequest:
        """The request, after everything that can be checked before torch is imported.

        Raises:
            InputError: An option cannot be used.
        """
        named = {parameter.name for parameter in machine_parameters()}
        chosen = {name: run_options.pop(name) for name in [*run_options] if name in named}
        machines = chosen_machines(**chosen, default="serial" if jobs == 1 else "processes")
        options = RunOptions.of(**run_options)
        options.check(subset=subset)
        if jobs < 1:
            raise InputError(f"jobs must be at least 1, got {jobs}")
        machines.check_jobs(jobs)
        if options.chosen.get("per_epoch") and every is None:
            raise InputError("--per-epoch counts the updates of --every within each epoch: add --every N")
        fields = values_to_try(grid or [])
        _refuse_set_twice(fields, options, {"every": every, "subset": subset})
        return cls(
            protocol=protocol,
            scenario=scenario,
            method=method,
            fields=fields,
            every=every,
            subset=subset,
            jobs=jobs,
            machines=machines,
            options=options,
        )

    def experiments(
        self, scenario: str | None = None, method: str | None = None, *, whole_curve: bool = False
    ) -> list[Experiment]:
        """One experiment per seed, by default evaluated at the ends of tasks on all samples.

        Args:
            scenario: The scenario, if it is not the request's.
            method: The method, if it is not the request's.
            whole_curve: Evaluate as often, and on as many samples, as `engram run` does.
        """
        evaluation: JsonObject = {}
        if self.every is not None or not whole_curve:
            evaluation["every"] = AT_TASK_ENDS if self.every is None else self.every
        if self.subset is not None or not whole_curve:
            evaluation["subset"] = self.subset or None
        return self.options.experiments(scenario or self.scenario, method or self.method, evaluation)


FAILURES = (
    "A run that fails is never chosen; the command then exits with 1, unless it failed because it diverged."
)


def with_request(
    protocol: str, *, without: Collection[str] = (), **annotations: object
) -> Callable[[Verb], Verb]:
    """Decorate a protocol's verb: it takes what all protocols take in place of its parameter `request`.

    Args:
        protocol: The name of the protocol.
        without: Options of `engram run` that it does not take.
        annotations: The annotations of shared parameters that this protocol declares in its own way.

    Example:
        >>> @with_request("grid")
        ... def verb(request: ProtocolRequest, last: int = 3) -> None:
        ...     print(request.protocol, request.fields, request.options.chosen, last)
        >>> verb(scenario="split-digits", method="er", grid=["lr=.1,.01"], epochs=2)
        grid {'lr': ['.1', '.01']} {'epochs': 2} 3
    """
    shared = [
        option("scenario", annotations.get("scenario", Scenario)),
        option("method", annotations.get("method", Method)),
        option("grid", Grid, None),
        option("every", annotations.get("every", Every), None),
        option("subset", Subset, None),
        option("jobs", Jobs, 1),
        *machine_parameters(),
    ]
    names = [parameter.name for parameter in shared]
    parameters = [*shared, *run_parameters(without=(*without, *names))]

    def decorate(verb: Verb) -> Verb:
        spread = with_spread(verb, "request", parameters, partial(ProtocolRequest.checked, protocol))
        spread.__doc__ = f"{getdoc(verb)}\n\n{FAILURES}"
        return spread

    return decorate


def values_to_try(pairs: Sequence[str]) -> dict[str, list[str]]:
    """`FIELD=a,b,c` as it is typed; a repeated value is tried once.

    Example:
        >>> values_to_try(["lr=.1,.01", "batch-size=10", "lr=.001,.1"])
        {'lr': ['.1', '.01', '.001'], 'batch_size': ['10']}
    """
    values_by_field: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        values = [value.strip() for value in text.split(",") if value.strip()]
        if not sign or not name.strip() or not values:
            raise InputError(f"--grid must look like FIELD=a,b,c, got {pair!r}")
        known = values_by_field.setdefault(name.strip().replace("-", "_"), [])
        known += [value for value in dict.fromkeys(values) if value not in known]
    return values_by_field


_LENGTHS = ("epochs", "updates")


def _refuse_set_twice(tried: Collection[str], options: RunOptions, others: JsonMapping) -> None:
    """Refuse an option whose value would be replaced by those to try.

    Raises:
        InputError: There is one.
    """
    typed = {name: f"--{name.replace('_', '-')}" for name in options.chosen}
    typed |= {name: f"--{name}" for name, value in others.items() if value is not None}
    typed |= {name.removeprefix("model."): f"--set {name}" for name in assignments(options.set_ or [])}
    for name in tried:
        # How long a task is learned is one thing with two names.
        names = _LENGTHS if name in _LENGTHS else (name,)
        both = next((other for other in names if other in typed), None)
        if both is not None:
            raise InputError(f"--grid {name} tries values that {typed[both]} sets as well: use one of them")


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas, as they are typed.

    Example:
        >>> whole_numbers("shots", "5, 10")
        (5, 10)
    """
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{name} must be whole numbers with commas, such as 5,10, got {text!r}") from None
