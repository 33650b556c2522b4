"""What plans ask of a run: validation samples, rates and updates by phase, merged networks at the end."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT
from engram.core.trace import Trace
from engram.datasets.stream import Stream, held_out
from engram.engine.check import complete
from engram.engine.checkpoint import write_checkpoint
from engram.engine.execute import execute
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.probing import balance_name
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.protocols.causal import first_phases
from engram.record.experiment import EvaluationSpec, Experiment, PhaseSpec
from engram.scenarios import permuted, split

SCENARIO = split("digits", setting="class")


def small(method: str = "finetune", **changes: object) -> Experiment:
    planned = experiment("split-digits", method, updates=6)
    planned = replace(planned, evaluation=EvaluationSpec(every=2, subset=20))
    return replace(planned, **changes)  # type: ignore[arg-type]


def digests(planned: Experiment, steps: int) -> str:
    *_, last = islice(run_steps(planned), steps)
    assert last.method is not None
    return weights_digest(last.method)


def test_held_out_samples_are_never_learned_and_the_rest_always() -> None:
    stream = Stream(replace(SCENARIO, held_out=0.25))
    whole = Stream(SCENARIO).train(0)
    learned, kept = stream.train(0), stream.validation(0)
    assert sorted([*learned.index.tolist(), *kept.index.tolist()]) == whole.index.tolist()
    for unit in (0, 1):
        assert int((kept.y == unit).sum()) == int((whole.y == unit).sum() * 0.25)
    assert len(stream.phase(0)) == len(learned)


def test_the_same_images_are_held_out_in_every_task_that_shows_them() -> None:
    stream = Stream(replace(permuted("digits", 2, setting="domain", seed=0), held_out=0.1))
    assert torch.equal(stream.validation(0).index, stream.validation(1).index)


def test_a_share_is_rounded_down_in_each_class() -> None:
    assert held_out(torch.zeros(9), 0.1).sum() == 0 and held_out(torch.zeros(10), 0.1).sum() == 1
    with pytest.raises(InputError, match="has no validation samples of task 0, holding out 0 of"):
        Stream(SCENARIO).validation(0)
    with pytest.raises(InputError, match="must be at least 0 and below 1, got 1"):
        replace(SCENARIO, held_out=1.0)


def test_evaluation_on_validation_samples() -> None:
    scenario = replace(SCENARIO, held_out=0.2)
    planned = small(scenario=scenario, evaluation=EvaluationSpec(every=100, subset=None, on="validation"))
    trace = run(planned).trace
    stream = Stream(scenario)
    assert set(zip(trace.task, trace.total, strict=True)) == {
        (task, len(stream.validation(task))) for task in range(5)
    }


def test_defaults_of_later_fields_keep_the_id() -> None:
    written = small().as_json()
    assert "by_phase" not in written and "held_out" not in written["scenario"]
    assert not {"transfer", "balances"} & set(written["evaluation"])
    ids = {
        small().id,
        small(by_phase=(PhaseSpec(), PhaseSpec(lr=0.1))).id,
        small(scenario=replace(small().scenario, held_out=0.1)).id,
        small("finetune", evaluation=replace(small().evaluation, balances=True)).id,
    }
    assert len(ids) == 4


@pytest.mark.parametrize("reset", [True, False])
def test_a_later_rate_changes_nothing_before_and_everything_after(reset: bool) -> None:
    optimizer = replace(small().optimizer, reset=reset)
    plain = small(optimizer=optimizer)
    later = replace(plain, by_phase=(PhaseSpec(), PhaseSpec(lr=0.001)))
    assert digests(plain, 6) == digests(later, 6)
    assert digests(plain, 7) != digests(later, 7)
    rates = [
        step.method.optimizer.param_groups[0]["lr"]  # type: ignore[union-attr]
        for step in run_steps(later)
    ]
    assert rates == [0.05] * 6 + [0.001] * 6 + [0.05] * 18


def test_resuming_within_a_phase_of_its_own_rate(tmp_path: Path) -> None:
    optimizer = replace(small().optimizer, schedule="cosine")
    planned = small("ewc", optimizer=optimizer, by_phase=(PhaseSpec(), PhaseSpec(lr=0.01, updates=9)))
    *_, step = islice(run_steps(planned), 10)
    assert step.snapshot is not None
    folder = tmp_path / planned.id
    folder.mkdir()
    write_checkpoint(folder / CHECKPOINT, step.snapshot())
    resumed = execute(planned, Where(out=tmp_path))
    assert Trace.load(folder / "trace.parquet") == run(planned).trace
    assert resumed.updates == 6 + 9 + 3 * 6


def test_a_phase_that_is_stopped_early_is_the_same_run_up_to_there() -> None:
    stopped = small(by_phase=(PhaseSpec(updates=4),))
    assert digests(small(), 4) == digests(stopped, 4)
    trace = run(stopped).trace
    assert {step for step, learning in zip(trace.step, trace.learning, strict=True) if learning == 0} == {
        0,
        2,
        4,
    }


def test_the_first_phases_alone_are_the_same_run_up_to_there() -> None:
    *_, last = run_steps(first_phases(small("er"), 2))
    assert last.method is not None and last.step == 12
    assert digests(small("er"), 12) == weights_digest(last.method)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by_phase": (PhaseSpec(lr=-1.0),)}, "lr must be above 0 and finite, got -1"),
        ({"evaluation": EvaluationSpec(balances=True)}, "finetune does not merge networks"),
        (
            {"method": "gdumb", "settings": {}, "by_phase": (PhaseSpec(lr=0.1),)},
            "gdumb has no learning rate per phase",
        ),
    ],
)
def test_bad_experiments_are_refused_before_training(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        complete(replace(small(), **changes))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="updates of a phase must be at least 1, got 0"):
        PhaseSpec(updates=0)


@pytest.mark.parametrize("method", ["imm-mean", "imm-mode"])
def test_the_curve_over_balances_is_recorded_at_the_end(method: str) -> None:
    planned = experiment("slt-D5-5a-digits", method, epochs=2, lr=0.05)
    planned = replace(planned, evaluation=EvaluationSpec(every=1000, subset=None, balances=True))
    outcome = run(planned)
    readings = {name: value for *_, name, value in outcome.readings}
    assert len(readings) == 101
    trace = outcome.trace
    both = [row for row in range(len(trace)) if trace.step[row] == trace.step[-1]]
    pooled = sum(trace.correct[row] for row in both) / sum(trace.total[row] for row in both)
    assert readings[balance_name(0.5)] == pytest.approx(pooled), "equal shares are the method's own answer"
    assert max(readings.values()) > readings[balance_name(1.0)]
