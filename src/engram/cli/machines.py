"""The options of verbs that make many runs: on which machines, and what each run gets there."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from engram.cli.arrange import EXECUTION
from engram.cli.signature import Verb, option, with_spread
from engram.executors.machines import Machines

On = Annotated[
    str | None,
    typer.Option(
        help="processes of this machine, serial (one run after the other), a ray cluster, or slurm.",
        rich_help_panel=EXECUTION,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Ray: the cluster, auto for the one this machine belongs to.",
        show_default="RAY_ADDRESS, or a new one on this machine",
        rich_help_panel=EXECUTION,
    ),
]
CpusPerRun = Annotated[
    float | None,
    typer.Option(
        help="Ray, Slurm: cores per run; runs compute with one thread.",
        show_default="1",
        rich_help_panel=EXECUTION,
    ),
]
GpusPerRun = Annotated[
    float | None,
    typer.Option(
        help="Ray: GPUs per run; with 0.25, four runs share one.",
        show_default="0, or 1 with --device cuda",
        rich_help_panel=EXECUTION,
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="Slurm: the partition.", show_default="the cluster's default", rich_help_panel=EXECUTION
    ),
]
Minutes = Annotated[
    int | None,
    typer.Option(help="Slurm: the time limit of a job.", show_default="60", rich_help_panel=EXECUTION),
]
RunsPerJob = Annotated[
    int | None,
    typer.Option(
        help="Slurm: runs that a job makes one after the other.",
        show_default="as many as take ten minutes",
        rich_help_panel=EXECUTION,
    ),
]


def machine_parameters() -> list[inspect.Parameter]:
    """The parameters that `chosen_machines` takes.

    Example:
        >>> [parameter.name for parameter in machine_parameters()][:2]
        ['on', 'address']
    """
    return [
        option("on", On, None),
        option("address", Address, None),
        option("cpus_per_run", CpusPerRun, None),
        option("gpus_per_run", GpusPerRun, None),
        option("partition", Partition, None),
        option("minutes", Minutes, None),
        option("runs_per_job", RunsPerJob, None),
    ]


def chosen_machines(
    *,
    on: str | None = None,
    address: str | None = None,
    cpus_per_run: float | None = None,
    gpus_per_run: float | None = None,
    partition: str | None = None,
    minutes: int | None = None,
    runs_per_job: int | None = None,
    default: str = "processes",
) -> Machines:
    """The machines that the options name, checked before anything heavy is imported.

    Raises:
        InputError: There is no such executor, it does not take an option, or what it needs is not installed.

    Example:
        >>> chosen_machines().on, chosen_machines(default="serial").on
        ('processes', 'serial')
    """
    machines = Machines(
        on=default if on is None else on,
        address=address,
        cpus_per_run=cpus_per_run,
        gpus_per_run=gpus_per_run,
        partition=partition,
        minutes=minutes,
        runs_per_job=runs_per_job,
    )
    machines.check_installed()
    return machines


def with_machines(verb: Verb) -> Verb:
    """A verb that takes these options in place of its parameter `machines`.

    Example:
        >>> @with_machines
        ... def verb(machines: Machines) -> None:
        ...     print(machines.on)
        >>> verb(on="serial")
        serial
    """
    return with_spread(verb, "machines", machine_parameters(), chosen_machines)
