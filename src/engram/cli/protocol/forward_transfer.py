"""`engram protocol forward-transfer`: k-shot probing on the next task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.output import stderr
from engram.cli.protocol.request import (
    PANEL,
    HeldOut,
    Metric,
    ProtocolRequest,
    Selection,
    SelectOn,
    whole_numbers,
    with_request,
)
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.record.experiment import Experiment, TransferSpec


Methods = Annotated[
    str, typer.Argument(help="A method, or several with commas to correlate forgetting and transfer.")
]
Shots = Annotated[
    str, typer.Option(help="Samples per class that a probe learns from.", rich_help_panel=PANEL)
]
ProbeLr = Annotated[
    float,
    typer.Option(help="Learning rate of a linear probe; the default is as published.", rich_help_panel=PANEL),
]
ProbeEpochs = Annotated[
    int, typer.Option(help="Passes of a linear probe; the default is as published.", rich_help_panel=PANEL)
]
Finetune = Annotated[
    bool, typer.Option("--finetune", help="Also train all weights of a copy.", rich_help_panel=PANEL)
]
Upstream = Annotated[
    str | None,
    typer.Option(
        help="The data set that the initial weights were trained on, such as imagenet.",
        rich_help_panel=PANEL,
    ),
]


@with_request("forward-transfer", method=Methods)
def forward_transfer(
    request: ProtocolRequest,
    *,
    metric: Metric = "AvgLAcc",
    select_on: SelectOn = "validation",
    held_out: HeldOut = None,
    shots: Shots = "5,10,20,100",
    probe_lr: ProbeLr = 0.01,
    probe_epochs: ProbeEpochs = 100,
    finetune: Finetune = False,
    upstream: Upstream = None,
) -> None:
    """Probe each task's features on the next task with a few samples per class (Chen et al. 2023)."""
    # Copies that are trained as a whole are chosen on held-out samples, whatever fields are chosen on.
    holds_out = finetune or (bool(request.fields) and select_on == "validation")
    selection = Selection.checked(select_on, held_out, used=holds_out)
    request.options.start(here=request.machines.local)
    from engram.cli.protocol.printing import present
    from engram.cli.protocol.running import carry_out
    from engram.protocols.forward_transfer import TUNED_LRS
    from engram.protocols.forward_transfer import forward_transfer as plan_forward_transfer
    from engram.protocols.grid import metric_name
    from engram.record.experiment import TransferSpec

    groups = {name: request.experiments(method=name) for name in methods_of(request.method)}
    probe = TransferSpec(
        shots=whole_numbers("shots", shots),
        lr=probe_lr,
        epochs=probe_epochs,
        tuned_lrs=TUNED_LRS if finetune else (),
    )
    plan = plan_forward_transfer(
        groups,
        request.fields,
        probe=probe,
        metric=metric_name(metric),
        on=selection.on,
        held_out=selection.held_out,
        upstream=upstream_of(groups, upstream, request),
    )
    conclusion = carry_out(request, plan)
    tell_far_from_converged(conclusion.result["far_from_converged"], probe)
    scarce = scarce_shots(
        next(iter(groups.values()))[0], probe.shots, request, held_out=selection.held_out if holds_out else 0
    )
    present(request, replace(conclusion, result={**conclusion.result, "fewer_samples": scarce}))


def methods_of(text: str) -> list[str]:
    """The methods of a list with commas.

    Example:
        >>> methods_of("er, ewc")
        ['er', 'ewc']
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise InputError(f"METHOD must name at least one method, got {text!r}")
    return names


def tell_far_from_converged(far: Mapping[str, float | None], probe: TransferSpec) -> None:
    """Say on stderr which probes had learned little of their own samples when their training ended."""
    if not far:
        return
    losses = [loss for loss in far.values() if loss is not None]
    left = f"up to {max(losses):.2f} of the loss of a guess is left" if losses else "they diverged"
    stderr.print(
        f"the probes with {' and '.join(far)} shots are far from converged: {left} on the samples that they "
        f"were trained on, with learning rate {probe.lr:g} and {probe.epochs} passes; AvgFwt is low because "
        "of that: raise --probe-lr or --probe-epochs",
        soft_wrap=True,
        markup=False,
    )


def upstream_of(
    groups: Mapping[str, Sequence[Experiment]], upstream: str | None, request: ProtocolRequest
) -> str:
    """The upstream data set; empty, with a line that says why, where the weights or the data do not allow it.

    Raises:
        InputError: There is no data set of that name.
    """
    from engram.core.dataset_info import DATASETS
    from engram.engine.upstream import open_upstream

    if not upstream:
        return ""
    _ = DATASETS[upstream]
    first = next(iter(groups.values()))[0]
    planned = replace(first, evaluation=replace(first.evaluation, upstream=upstream))
    try:
        open_upstream(planned, data=request.options.data)
    except InputError as error:
        stderr.print(f"upstream accuracy is left out: {error}", soft_wrap=True, markup=False)
        return ""
    return upstream


def scarce_shots(
    planned: Experiment, shots: Sequence[int], request: ProtocolRequest, *, held_out: float
) -> dict[str, int]:
    """For each number of shots that some class does not have, how many samples the smallest class has.

    All samples of such a class train the probe; a line on stderr says so as well.
    """
    from engram.datasets.stream import Stream

    scenario = planned.scenario
    if held_out:
        scenario = replace(scenario, held_out=scenario.held_out or held_out)
    stream = Stream(scenario, request.options.data)
    later = [task for tasks in scenario.phases[1:] for task in tasks]
    least = min(int(stream.train(task).y.unique(return_counts=True)[1].min()) for task in later)
    scarce = {str(k): least for k in shots if k > least}
    if scarce:
        stderr.print(
            f"the smallest class has {least} training samples: with {' and '.join(scarce)} shots all samples "
            "of such a class are used, and AvgFwt is that of fewer shots",
            soft_wrap=True,
            markup=False,
        )
    return scarce
