"""Causal selection with runs: tasks that are learned again, and the rate of each task."""

from dataclasses import replace
from typing import Any

import pytest
from tests.drained import learned

from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.methods.merging import weights_of
from engram.protocols.causal import CausalOptions, causal, first_phases
from engram.protocols.drive import drive
from engram.record.experiment import Experiment, PhaseSpec
from engram.testing import sample_experiment, settings_of

SHORT: dict[str, Any] = {"updates": 12, "evaluation": {"every": 6, "subset": 20}}


def weights_at(planned: Experiment, number: int) -> str:
    """A hash of all weights after some update of the first phase."""
    step = next(step for step in run_steps(planned, watch=False) if step.step == number)
    assert step.method is not None
    return weights_digest(step.method)


@pytest.mark.parametrize(
    "planned",
    [
        experiment("slt-D5-5a-digits", "finetune", schedule="cosine", **SHORT),
        experiment("slt-D5-5a-digits", "lp-ft", **SHORT),
        experiment("split-digits", "packnet", setting="task", **SHORT),
    ],
    ids=lambda planned: planned.method,
)
def test_a_stopped_task_has_the_weights_of_the_whole_one_at_that_update(planned: Experiment) -> None:
    """Learning the task with fewer planned updates gives others."""
    last = 9
    whole = weights_at(planned, last)
    assert weights_at(replace(planned, by_phase=(PhaseSpec(stop=last),)), last) == whole
    assert weights_at(replace(planned, by_phase=(PhaseSpec(updates=last),)), last) != whole
    stopped = run(replace(planned, by_phase=(PhaseSpec(stop=last),)))
    assert stopped.updates == 12 * (len(planned.scenario.tasks) - 1) + last
    assert (
        max(stopped.trace.step[row] for row, task in enumerate(stopped.trace.learning) if task == 0) == last
    )


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS.is_ours(name)])
def test_only_methods_that_say_so_depend_on_the_number_of_updates(method: str) -> None:
    """Otherwise stopping a task and planning fewer updates are the same."""
    planned = sample_experiment(method, settings_of(method)[-1])
    ends = [
        weights_digest(learned(replace(planned, by_phase=(spec,))))
        for spec in (PhaseSpec(stop=5), PhaseSpec(updates=5))
    ]
    assert (ends[0] != ends[1]) == traits_of(method).plans_updates


def test_a_phase_learns_with_its_own_rate() -> None:
    """A rate of nearly 0 in the second task leaves the weights where the first task left them."""
    planned = experiment("slt-D5-5a-digits", "finetune", updates=5, lr=0.1)
    first = weights_of(learned(first_phases(planned, 1)).predictor())
    still = replace(planned, by_phase=(PhaseSpec(), PhaseSpec(lr=1e-12)))
    fast = replace(planned, by_phase=(PhaseSpec(), PhaseSpec(lr=0.2)))
    moved = [
        max(float((after[name] - first[name]).abs().max()) for name in first)
        for after in (weights_of(learned(run_).predictor()) for run_ in (still, planned, fast))
    ]
    assert moved[0] < 1e-9 < moved[1] < moved[2]


def test_the_second_rate_is_chosen_by_what_was_really_learned() -> None:
    """Runs, not made-up scores: a rate of nearly 0 learns nothing of the second task and is not chosen."""
    planned = experiment("slt-D5-5a-digits", "finetune", updates=20, evaluation={"every": 20, "subset": 50})
    options = CausalOptions(later_rates=(1e-9, 0.1))
    outcome = drive(causal([planned], {"lr": [0.1]}, options=options), lambda plans: [run(p) for p in plans])
    slow, fast = outcome.rates[0]
    assert slow.score is not None and fast.score is not None and fast.score > slow.score + 0.2
    assert outcome.chosen_rates == (0.1,)
    assert [run_.experiment.of_phase(1).lr for run_ in outcome.ended] == [0.1]
