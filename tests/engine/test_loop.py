"""The training loop: determinism, pairing, resuming, diverging."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT, EXPERIMENT, PROBES, RESULT, finite
from engram.core.trace import Trace
from engram.core.values import Batch
from engram.engine.check import complete
from engram.engine.checkpoint import write_checkpoint
from engram.engine.execute import execute
from engram.engine.failures import RunFailed
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.methods import METHODS
from engram.methods.base import Learner, Method
from engram.record.account import Account
from engram.record.experiment import EvaluationSpec, Experiment, PhaseSpec
from engram.record.failure import FailureKind
from engram.record.run import Run
from engram.scenarios import DomainSetting, joint, online, prefix, split


def small(method: str = "finetune", **changes: object) -> Experiment:
    planned = experiment("split-digits", method, updates=20, evaluation={"subset": 20})
    return replace(planned, **changes)  # type: ignore[arg-type]


def method_of(step: Step) -> Method:
    assert step.method is not None
    return step.method


def leave_checkpoint(out: Path, planned: Experiment, state: Any) -> Path:
    """Save a checkpoint where a run of that experiment expects it."""
    place = out / planned.id / CHECKPOINT
    place.parent.mkdir(parents=True)
    if isinstance(state, bytes):
        place.write_bytes(state)
    else:
        write_checkpoint(place, state)
    return place


def snapshot(step: Step) -> dict[str, Any]:
    assert step.snapshot is not None
    return step.snapshot()


def account_of(finished: Run) -> Account:
    assert finished.account is not None
    return finished.account


class Steps(Watcher):
    """Records the updates that it was notified of."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def updated(self, step: Step) -> None:
        self.seen.append(step.step)


def kept(out: Path, planned: Experiment) -> Run:
    """The failed run in its folder."""
    loaded = Run.load(out / planned.id)
    assert loaded.status == "failed" and loaded.failure is not None
    assert len(loaded.trace) > 0 and not (out / planned.id / RESULT).exists()
    return loaded


def test_the_same_seed_pairs_methods() -> None:
    """Fine-tuning and EWC see the same weights and batches until the first task ends."""
    first = [run_steps(small(method)) for method in ("finetune", "ewc")]
    weights = []
    for steps in first:
        *_, last = islice(steps, 20)
        weights.append(weights_digest(method_of(last)))
    assert weights[0] == weights[1]


def test_updates_evaluations_and_steps() -> None:
    outcome = run(small(evaluation=EvaluationSpec(every=7, subset=20)))
    assert outcome.updates == 100
    steps = sorted(set(outcome.trace.step))
    assert steps == sorted({0, *range(7, 101, 7), 20, 40, 60, 80, 100})


def test_epochs_make_passes_over_all_samples() -> None:
    scenario = prefix(split("digits", setting="class"), 1)
    planned = Experiment(scenario, "finetune", batch_size=100, epochs=2)
    outcome = run(planned)
    samples = 2 * 145
    assert outcome.updates == 2 * -(-samples // 100)
    assert run(replace(planned, scenario=online(scenario))).updates == -(-samples // 100)


def test_joint_training_learns_everything_at_once() -> None:
    scenario = joint(split("digits", setting="class"))
    outcome = run(Experiment(scenario, "finetune", batch_size=32, epochs=10))
    assert outcome.metrics["ACC"] > 0.8
    last = outcome.trace.step[-1]
    evaluated = {
        task for step, task in zip(outcome.trace.step, outcome.trace.task, strict=True) if step == last
    }
    assert evaluated == set(range(5))


def test_hidden_boundaries_are_one_task_for_the_method() -> None:
    scenario = split("digits", setting=DomainSetting(boundaries=False))
    began: list[int] = []
    steps = run_steps(Experiment(scenario, "finetune", batch_size=64))
    for progress in steps:
        task = method_of(progress).task  # type: ignore[attr-defined]
        began.append(task.index)
    assert set(began) == {0}
    with pytest.raises(InputError, match="needs to know where tasks begin"):
        complete(Experiment(scenario, "ewc"))


def test_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    planned = small("er")
    whole = run(planned)
    *_, step = islice(run_steps(planned), 33)
    checkpoint = leave_checkpoint(tmp_path, planned, snapshot(step))
    observer = Steps()
    resumed = execute(planned, Where(out=tmp_path), [observer])
    assert Trace.load(tmp_path / planned.id / "trace.parquet") == whole.trace
    assert resumed.updates == 100 and not checkpoint.exists()
    assert observer.seen == list(range(34, 101))


def test_a_checkpoint_of_another_experiment_is_not_used(tmp_path: Path) -> None:
    *_, step = islice(run_steps(small("er", seed=1)), 33)
    leave_checkpoint(tmp_path, small("er"), snapshot(step))
    with pytest.warns(UserWarning, match=r"checkpoint\.pt is of another experiment: the run resumes from"):
        execute(small("er"), Where(out=tmp_path))
    assert Run.load(tmp_path / small("er").id).trace == run(small("er")).trace


def test_a_checkpoint_of_another_layout_is_not_used(tmp_path: Path) -> None:
    *_, step = islice(run_steps(small("er")), 33)
    leave_checkpoint(tmp_path, small("er"), {**snapshot(step), "format": 1, "method": {}})
    observer = Steps()
    with pytest.warns(UserWarning, match="was made by another version of engram"):
        assert execute(small("er"), Where(out=tmp_path), [observer]).updates == 100
    assert len(observer.seen) == 100


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """A real process, killed without warning."""
    program = (
        "from pathlib import Path; import sys, time\n"
        "from engram.engine.recipe import experiment; from engram.engine.execute import execute\n"
        "from engram.engine.observers import Watcher; from engram.engine.where import Where\n"
        "class Slow(Watcher):\n"
        "    def updated(self, step): time.sleep(.02)\n"
        "planned = experiment('split-digits', 'er', updates=20, evaluation={'subset': 20})\n"
        "execute(planned, Where(out=Path(sys.argv[1]), checkpoint_seconds=1e-9), [Slow()])\n"
    )
    planned = small("er")
    folder = tmp_path / planned.id
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    for _ in range(600):
        if (folder / CHECKPOINT).exists():
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert (folder / CHECKPOINT).exists() and not (folder / RESULT).exists()
    assert Run.load(folder).status == "unfinished"
    execute(planned, Where(out=tmp_path))
    assert Trace.load(folder / "trace.parquet") == run(planned).trace


def test_what_exists_is_not_run_again(tmp_path: Path) -> None:
    observer = Steps()
    first = execute(small(), Where(out=tmp_path), [observer])
    written = (tmp_path / small().id / RESULT).read_bytes()
    second = execute(small(), Where(out=tmp_path), [observer])
    assert len(observer.seen) == 100
    assert finite(first.result()) == finite(second.result()) and first.trace == second.trace
    assert (tmp_path / small().id / RESULT).read_bytes() == written


def test_diverging_run_stops_and_keeps_what_was_measured(tmp_path: Path) -> None:
    planned = experiment("split-digits", "finetune", lr=1e9, updates=20, evaluation={"losses": True})
    with pytest.raises(RunFailed, match=r"at step \d+ while learning task 1: try a learning rate") as error:
        execute(planned, Where(out=tmp_path))
    assert "\n" not in str(error.value)
    assert error.value.failure.kind is FailureKind.DIVERGED
    assert kept(tmp_path, planned).failure == error.value.failure
    assert (tmp_path / planned.id / EXPERIMENT).is_file() and (tmp_path / planned.id / PROBES).is_file()


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("gdumb", "offline")])
def test_every_method_that_diverges_keeps_what_was_measured(method: str, tmp_path: Path) -> None:
    """In the second task, where there is something to remember; `offline` has none, `gdumb` its own rate."""
    planned = replace(
        experiment("split-digits", method, setting="task", lr=1e12, updates=3, evaluation={"every": 2}),
        by_phase=(PhaseSpec(lr=1e-3),),
    )
    with pytest.raises(RunFailed, match=r"at step \d+ while learning task 2: try a learning rate") as error:
        execute(planned, Where(out=tmp_path))
    assert error.value.failure.kind is FailureKind.DIVERGED and error.value.failure.task == 1
    kept(tmp_path, planned)


@pytest.mark.parametrize(
    ("method", "settings", "lr"),
    [("ewc", {"label": "sampled"}, 1e10), ("gem", {}, 1e10), ("imm-mode", {"l2_transfer": 100.0}, 0.1)],
)
def test_errors_that_come_from_infinite_weights_are_divergence(
    method: str, settings: dict[str, Any], lr: float
) -> None:
    """What is drawn or solved when a task ends, or in an update, before the loss is known."""
    for updates in (1, 20):
        planned = experiment("split-digits", method, lr=lr, updates=updates, settings=settings)
        try:
            run(planned)
        except RunFailed as error:
            assert error.failure.kind is FailureKind.DIVERGED
            return
    pytest.fail("it did not diverge")


def test_a_generator_that_diverges_is_noticed() -> None:
    planned = experiment("split-digits", "dgr", setting="class", lr=1.0, optimizer="adam", updates=10)
    with pytest.raises(RunFailed, match=r"^the loss of the generator became") as error:
        run(planned)
    assert error.value.failure.kind is FailureKind.DIVERGED


def test_a_fit_that_diverges_keeps_what_was_measured(tmp_path: Path) -> None:
    planned = experiment(
        "split-digits", "gdumb", updates=6, settings={"lr": 1e30, "epochs": 2}, evaluation={"before": True}
    )
    with pytest.raises(
        RunFailed,
        match=r"the loss became \w+ at step \d+ while learning task 1: in pass \d of gdumb's fit; set",
    ) as error:
        execute(planned, Where(out=tmp_path))
    assert "\n" not in str(error.value)
    assert error.value.failure.kind is FailureKind.DIVERGED
    kept(tmp_path, planned)


def test_a_method_that_cannot_be_saved_runs_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(self: Learner, batch: Batch) -> None:
        self.odd = object()  # type: ignore[attr-defined]

    monkeypatch.setattr(Learner, "after_step", odd)
    with pytest.warns(
        UserWarning, match=r"no checkpoint: Finetune.odd is a object.*starts from the beginning"
    ) as warned:
        finished = execute(small(), Where(out=tmp_path, checkpoint_seconds=1e-9))
    assert len(warned) == 1 and finished.updates == 100


def test_defaults_and_the_same_explicit_values_are_one_experiment() -> None:
    implicit = experiment("split-digits", "gem")
    explicit = experiment("split-digits", "gem", settings={"margin": "0.5"})
    assert implicit.id == explicit.id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": -1.0}, "lr must be above 0, got -1.0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"hidden": (0,)}, "hidden must be at least 1, got 0"),
        ({"settings": {"memori": 3}}, "has no field 'memori'"),
        ({"settings": {"memory": 0}}, "memory must be greater than 0, got 0"),
        ({"settings": {"weight": "-2"}}, "weight must be greater than 0, got '-2'"),
    ],
)
def test_bad_experiments_are_refused_before_training(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        experiment("split-digits", "er", **changes)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_memory_that_is_filled_at_task_ends_needs_boundaries() -> None:
    scenario = split("digits", setting=DomainSetting(boundaries=False))
    with pytest.raises(InputError, match="er needs to know where tasks begin"):
        complete(Experiment(scenario, "er"))
    outcome = run(Experiment(scenario, "er", settings={"policy": "reservoir", "memory": 50}, batch_size=64))
    assert account_of(outcome).kept_bytes[-1] > 0


@pytest.mark.parametrize("method", ["er", "naive-rehearsal", "naive-rehearsal-c", "gdumb", "er-ace"])
def test_a_budget_of_bytes_sizes_the_memory(method: str) -> None:
    # GDumb keeps the weights, 35,880 bytes of them, that every fit starts from.
    budget = 60_000 if method == "gdumb" else 20_000
    planned = experiment("split-digits", method, budget_bytes=budget, updates=30, evaluation={"every": 1000})
    bytes_kept = account_of(run(planned)).kept_bytes[-1]
    assert 0.8 * budget < bytes_kept <= budget


@pytest.mark.parametrize("method", ["gem", "der++", "icarl", "a-gem", "fomaml", "multitask"])
def test_a_budget_that_does_not_size_a_memory_is_refused_before_training(method: str) -> None:
    with pytest.raises(InputError, match=f"does not say how much {re.escape(method)} remembers"):
        experiment("split-digits", method, budget_bytes=100)


def test_operations_are_those_of_the_longer_update() -> None:
    """While `lp-ft` probes, the head alone learns; afterwards its updates are those of fine-tuning."""

    def operations(method: str) -> tuple[int, ...]:
        # Four updates of all weights: the first with momentum takes fewer operations.
        plan = experiment("split-digits", method, updates=8, evaluation={"every": 1000})
        return account_of(run(plan)).flops

    assert operations("lp-ft") == operations("finetune")


def test_what_is_kept_while_a_task_is_learned_counts() -> None:
    plan = experiment("split-digits", "fomaml", updates=3, evaluation={"every": 1000})
    account = account_of(run(plan))
    # Three batches of 32 that the task has shown so far; its memory has 20 samples afterwards.
    assert account.kept_bytes[0] > 96 * 64 * 4


def test_a_method_over_its_budget_is_stopped() -> None:
    planned = replace(experiment("split-digits", "online-ewc", updates=2), budget_bytes=20_000)
    with pytest.raises(
        RunFailed, match=r"online-ewc keeps \d+ bytes after phase 1, over the budget of 20000"
    ) as error:
        run(planned)
    assert error.value.failure.kind is FailureKind.OUT_OF_BUDGET
    enough = experiment("split-digits", "online-ewc", budget_bytes=200_000, updates=2)
    assert account_of(run(enough)).kept_bytes[-1] <= 200_000
