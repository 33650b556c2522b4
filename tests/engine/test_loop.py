"""One experiment as a straight line: determinism, pairing, resuming, diverging."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from engram.core.errors import InputError
from engram.core.folder import EXPERIMENT, PROBES, RESULT
from engram.core.trace import Trace
from engram.core.values import Batch
from engram.engine.checkpoint import CHECKPOINT, execute
from engram.engine.experiment import EvaluationSpec, Experiment, PhaseSpec
from engram.engine.isolation import weights_digest
from engram.engine.loop import Diverged, complete, run, run_steps
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.methods.base import Learner
from engram.scenarios import DomainSetting, joint, online, prefix, split


def small(method: str = "finetune", **changes: object) -> Experiment:
    planned = experiment("split-digits", method, updates=20, evaluation={"subset": 20})
    return replace(planned, **changes)  # type: ignore[arg-type]


def test_the_same_seed_pairs_methods() -> None:
    """Fine-tuning and EWC see the same weights and batches until the first task ends."""
    first = [run_steps(small(method)) for method in ("finetune", "ewc")]
    weights = []
    for steps in first:
        *_, last = islice(steps, 20)
        weights.append(weights_digest(last.line.method))
    assert weights[0] == weights[1]


def test_updates_evaluations_and_steps() -> None:
    outcome = run(small(evaluation=EvaluationSpec(every=7, subset=20)))
    assert outcome.evaluator.step == 100
    steps = sorted(set(outcome.evaluator.trace.step))
    assert steps == sorted({0, *range(7, 101, 7), 20, 40, 60, 80, 100})


def test_epochs_make_passes_over_all_samples() -> None:
    scenario = prefix(split("digits", setting="class"), 1)
    planned = Experiment(scenario, "finetune", batch_size=100, epochs=2)
    outcome = run(planned)
    samples = 2 * 145
    assert outcome.evaluator.step == 2 * -(-samples // 100)
    assert run(replace(planned, scenario=online(scenario))).evaluator.step == -(-samples // 100)


def test_joint_training_learns_everything_at_once() -> None:
    scenario = joint(split("digits", setting="class"))
    outcome = run(Experiment(scenario, "finetune", batch_size=32, epochs=10))
    assert outcome.evaluator.metrics()["ACC"] > 0.8
    assert outcome.evaluator.accuracies().keys() == set(range(5))


def test_hidden_boundaries_are_one_task_for_the_method() -> None:
    scenario = split("digits", setting=DomainSetting(boundaries=False))
    began: list[int] = []
    steps = run_steps(Experiment(scenario, "finetune", batch_size=64))
    for progress in steps:
        task = progress.line.method.task  # type: ignore[attr-defined]
        began.append(task.index)
    assert set(began) == {0}
    with pytest.raises(InputError, match="needs to know where tasks begin"):
        complete(Experiment(scenario, "ewc"))


def test_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    planned = small("er")
    whole = run(planned)
    *_, there = islice(run_steps(planned), 33)
    torch.save(there.snapshot(), tmp_path / CHECKPOINT)
    result = execute(planned, tmp_path)
    assert Trace.load(tmp_path / "trace.parquet") == whole.evaluator.trace
    assert result["updates"] == 100 and not (tmp_path / CHECKPOINT).exists()


def test_a_checkpoint_of_another_experiment_is_not_used(tmp_path: Path) -> None:
    *_, there = islice(run_steps(small("er", seed=1)), 33)
    torch.save(there.snapshot(), tmp_path / CHECKPOINT)
    execute(small("er"), tmp_path)
    assert Trace.load(tmp_path / "trace.parquet") == run(small("er")).evaluator.trace


def test_a_checkpoint_of_another_layout_is_not_used(tmp_path: Path) -> None:
    *_, there = islice(run_steps(small("er")), 33)
    torch.save({**there.snapshot(), "format": 1, "method": {}}, tmp_path / CHECKPOINT)
    assert execute(small("er"), tmp_path)["updates"] == 100


@pytest.mark.parametrize("content", [b"not a checkpoint", {"a": 1}, [1]])
def test_a_broken_checkpoint_is_one_line(content: Any, tmp_path: Path) -> None:
    if isinstance(content, bytes):
        (tmp_path / CHECKPOINT).write_bytes(content)
    else:
        torch.save(content, tmp_path / CHECKPOINT)
    with pytest.raises(InputError, match="is broken: remove it"):
        execute(small(), tmp_path)


@pytest.mark.slow
def test_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """A real process, killed without warning."""
    program = (
        "from pathlib import Path; import sys, time\n"
        "from engram.engine.recipe import experiment; from engram.engine.checkpoint import execute\n"
        "planned = experiment('split-digits', 'er', updates=20, evaluation={'subset': 20})\n"
        "execute(planned, Path(sys.argv[1]), checkpoint_seconds=0, follow=lambda p: time.sleep(.02))\n"
    )
    folder = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", program, str(folder)])
    for _ in range(600):
        if (folder / CHECKPOINT).exists():
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert (folder / CHECKPOINT).exists() and not (folder / RESULT).exists()
    planned = small("er")
    execute(planned, folder)
    assert Trace.load(folder / "trace.parquet") == run(planned).evaluator.trace


def test_what_exists_is_not_run_again(tmp_path: Path) -> None:
    seen: list[int] = []
    first = execute(small(), tmp_path, follow=lambda p: seen.append(p.step))
    second = execute(small(), tmp_path, follow=lambda p: seen.append(p.step))
    assert len(seen) == 100 and first == second


def test_diverging_run_stops_and_keeps_what_was_measured(tmp_path: Path) -> None:
    planned = experiment("split-digits", "finetune", lr=1e9, updates=20, evaluation={"losses": True})
    with pytest.raises(Diverged, match=r"at step \d+ while learning task 1: try a learning rate") as error:
        execute(planned, tmp_path)
    assert "\n" not in str(error.value)
    assert len(Trace.load(tmp_path / "trace.parquet")) > 0 and not (tmp_path / RESULT).exists()
    assert (tmp_path / EXPERIMENT).is_file() and (tmp_path / PROBES).is_file()


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("gdumb", "offline")])
def test_whatever_diverges_says_so_and_keeps_what_was_measured(method: str, tmp_path: Path) -> None:
    """In the second task, where there is something to remember; `offline` has none, `gdumb` its own rate."""
    planned = replace(
        experiment("split-digits", method, setting="task", lr=1e12, updates=3, evaluation={"every": 2}),
        by_phase=(PhaseSpec(lr=1e-3),),
    )
    with pytest.raises(Diverged, match=r"at step \d+ while learning task 2: try a learning rate"):
        execute(planned, tmp_path)
    assert len(Trace.load(tmp_path / "trace.parquet")) > 0 and not (tmp_path / RESULT).exists()


@pytest.mark.parametrize(
    ("method", "settings", "lr"),
    [("ewc", {"label": "sampled"}, 1e10), ("gem", {}, 1e10), ("imm-mode", {"l2_transfer": 100.0}, 0.1)],
)
def test_what_a_method_cannot_compute_from_such_weights_is_no_traceback(
    method: str, settings: dict[str, Any], lr: float
) -> None:
    """What is drawn or solved when a task ends, or in an update, before the loss is known."""
    for updates in (1, 20):
        planned = experiment("split-digits", method, lr=lr, updates=updates, settings=settings)
        try:
            run(planned)
        except Diverged:
            return
    pytest.fail("it did not diverge")


def test_a_generator_that_diverges_is_noticed() -> None:
    planned = experiment("split-digits", "dgr", setting="class", lr=1.0, optimizer="adam", updates=10)
    with pytest.raises(Diverged, match="the loss of the generator became"):
        run(planned)


def test_a_fit_that_diverges_keeps_what_was_measured(tmp_path: Path) -> None:
    planned = experiment(
        "split-digits", "gdumb", updates=6, settings={"lr": 1e30, "epochs": 2}, evaluation={"before": True}
    )
    with pytest.raises(
        Diverged, match=r"while gdumb fitted its network at step \d+ while learning task 1: set its lr"
    ) as error:
        execute(planned, tmp_path)
    assert "\n" not in str(error.value)
    assert len(Trace.load(tmp_path / "trace.parquet")) > 0 and not (tmp_path / RESULT).exists()


def test_a_method_that_no_checkpoint_can_keep_runs_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(self: Learner, batch: Batch) -> None:
        self.odd = object()  # type: ignore[attr-defined]

    monkeypatch.setattr(Learner, "after_step", odd)
    with pytest.warns(UserWarning, match=r"no checkpoint: Finetune.odd is a object.*starts anew") as said:
        result = execute(small(), tmp_path, checkpoint_seconds=0)
    assert len(said) == 1 and result["updates"] == 100


def test_defaults_and_the_same_values_by_hand_are_one_experiment() -> None:
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
        ({"settings": {"memory": 0}}, "memory=0"),
        ({"settings": {"weight": "-2"}}, "weight='-2'"),
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
    assert outcome.account.kept_bytes[-1] > 0


@pytest.mark.parametrize("method", ["er", "naive-rehearsal", "naive-rehearsal-c", "gdumb", "er-ace"])
def test_a_budget_of_bytes_sizes_the_memory(method: str) -> None:
    # GDumb keeps the weights, 35,880 bytes of them, that every fit starts from.
    budget = 60_000 if method == "gdumb" else 20_000
    planned = experiment("split-digits", method, budget_bytes=budget, updates=30, evaluation={"every": 1000})
    kept = run(planned).account.kept_bytes[-1]
    assert 0.8 * budget < kept <= budget


@pytest.mark.parametrize("method", ["gem", "der++", "icarl", "a-gem", "fomaml", "multitask"])
def test_a_budget_that_does_not_size_a_memory_is_refused_before_training(method: str) -> None:
    with pytest.raises(InputError, match=f"does not say how much {re.escape(method)} remembers"):
        experiment("split-digits", method, budget_bytes=100)


def test_operations_are_those_of_the_longer_update() -> None:
    """While `lp-ft` probes, the head alone learns; afterwards its updates are those of fine-tuning."""

    def operations(method: str) -> tuple[int, ...]:
        plan = experiment("split-digits", method, updates=4, evaluation={"every": 1000})
        return run(plan).account.flops

    assert operations("lp-ft") == operations("finetune")


def test_what_is_kept_while_a_task_is_learned_counts() -> None:
    plan = experiment("split-digits", "fomaml", updates=3, evaluation={"every": 1000})
    account = run(plan).account
    # Three batches of 32 that the task has shown so far; its memory has 20 samples afterwards.
    assert account.kept_bytes[0] > 96 * 64 * 4


def test_a_method_over_its_budget_is_stopped() -> None:
    planned = replace(experiment("split-digits", "online-ewc", updates=2), budget_bytes=20_000)
    with pytest.raises(
        InputError, match=r"online-ewc keeps \d+ bytes after phase 1, over the budget of 20000"
    ):
        run(planned)
    enough = experiment("split-digits", "online-ewc", budget_bytes=200_000, updates=2)
    assert run(enough).account.kept_bytes[-1] <= 200_000
