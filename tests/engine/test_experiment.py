"""Experiments from names and values, and from `experiment.json`."""

import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.drained import learned as learned_by
from torch import nn

import engram
from engram.core.errors import InputError
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.methods import METHODS
from engram.models import build
from engram.record.experiment import EvaluationSpec, Experiment, PhaseSpec, TransferSpec
from engram.scenarios import BENCHMARKS, Recipe, prefix, split


def again(planned: Experiment) -> Experiment:
    return Experiment.of_json(json.loads(json.dumps(planned.as_json())))


@pytest.mark.parametrize("name", [*BENCHMARKS, "slt-D5-5a-mnist", "slt-DP10-10-svhn"])
def test_what_is_written_is_read_to_the_same_experiment(name: str) -> None:
    for setting in BENCHMARKS[name].setting_names if name in BENCHMARKS else (None,):
        planned = experiment(name, "finetune", setting=setting, seed=2)
        assert again(planned) == planned and again(planned).id == planned.id


def test_every_field_is_read_again(tmp_path: Path) -> None:
    one = experiment("split-digits", "ewc", lr=1, momentum=0, subset=None, augment=True)
    full = replace(
        one,
        scenario=replace(one.scenario, held_out=0.1),
        evaluation=EvaluationSpec(
            transfer=TransferSpec(shots=(5,)), points=3, balances=True, upstream="mnist"
        ),
        by_phase=(PhaseSpec(lr=0.5), PhaseSpec(updates=3)),
        model=replace(one.model, zero_head=True),
    )
    assert again(full) == full and again(full).id == full.id
    place = tmp_path / "weights.pt"
    torch.save(build(one.model, shape=(1, 8, 8), n_units=10, seed=0).state_dict(), place)
    started = experiment("split-digits", "er", weights=place)
    assert again(started).id == started.id
    assert Experiment.of_json(started.as_json(), weights=place).start == started.start


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": "three"}, "experiment.json: epochs must be a whole number, got 'three'"),
        ({"epoch": 3}, "experiment.json: unknown field 'epoch'; did you mean 'epochs'"),
        ({"format": 9}, "format 9"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"optimizer": {"name": "sgd", "learning_rate": 1}}, "optimizer: unknown field 'learning_rate'"),
        ({"scenario": {"name": "x", "tasks": [], "setting": {"kind": "task"}}}, "scenario: .*has no tasks"),
        ({"scenario": {"name": "x", "tasks": [], "setting": {"kind": "new"}}}, "kind of task, domain, class"),
        ({"model": {"name": "mlp", "hiden": [3]}}, "option of the model mlp 'hiden'; did you mean 'hidden'"),
    ],
)
def test_errors_name_the_field_that_cannot_be_read(change: dict[str, Any], message: str) -> None:
    written = json.loads(json.dumps(experiment("split-digits", "er").as_json()))
    with pytest.raises(InputError, match=message):
        Experiment.of_json({**written, **change})
    with pytest.raises(InputError, match=r"missing .*argument"):
        Experiment.of_json({"method": "er"})


def test_a_scenario_and_its_name_give_the_same_experiment() -> None:
    named = experiment("split-digits", "er")
    assert experiment(BENCHMARKS["split-digits"].scenario(), "er").id == named.id
    short = experiment(prefix(named.scenario, 2), "er")
    assert (short.optimizer, len(short.scenario.tasks)) == (named.optimizer, 2)
    custom = experiment(replace(split("digits", 5, setting="task"), name="halves"), "finetune")
    assert (custom.batch_size, custom.epochs, custom.model.name) == (Recipe().batch_size, 1, "mlp")
    assert custom.id.startswith("halves-task-finetune-s0-")
    with pytest.raises(InputError, match="class setting: choose task"):
        experiment(custom.scenario, "finetune", setting="class")
    with pytest.raises(InputError, match="is not a scenario"):
        experiment(3, "finetune")  # type: ignore[arg-type]


def test_boundaries_can_be_hidden() -> None:
    hidden = experiment("split-digits", "finetune", boundaries=False)
    assert not hidden.scenario.setting.boundaries  # type: ignore[union-attr]
    usual = experiment("split-digits", "finetune")
    assert hidden.id != usual.id == experiment("split-digits", "finetune", boundaries=True).id
    with pytest.raises(InputError, match="needs to know where tasks begin"):
        experiment("split-digits", "ewc", boundaries=False)
    with pytest.raises(InputError, match="the task setting tells which task it is"):
        experiment("split-digits", "finetune", setting="task", boundaries=False)


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))


def test_a_module_is_a_network_and_its_weights_are_part_of_the_identity() -> None:
    module = network()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    planned = experiment("split-digits", "finetune", model=module, updates=2, every=100)
    assert planned.model.name.startswith("Sequential-")
    assert experiment("split-digits", "finetune", model=network(), updates=2, every=100).id == planned.id
    started = build(planned.model, shape=(1, 8, 8), n_units=10, seed=3)
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(started(x), module(x)) and started.width == 9
    learned = learned_by(planned).predictor()
    # A copy was trained.
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not torch.equal(learned(x), module(x))
    with torch.no_grad():
        module[1].weight[0, 0] += 1  # type: ignore[index]
    assert experiment("split-digits", "finetune", model=module, updates=2, every=100).id != planned.id
    # It can be pickled for other processes.
    assert pickle.loads(pickle.dumps(planned)).model.model.build  # noqa: S301


def test_a_function_that_makes_modules() -> None:
    def small(shape: tuple[int, ...], n_units: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], n_units))

    planned = experiment("split-digits", "finetune", model=small, updates=2)
    assert planned.model.name.startswith("small-")
    one, same, other = (build(planned.model, shape=(1, 8, 8), n_units=10, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.head.weight, same.head.weight) and not torch.equal(
        one.head.weight, other.head.weight
    )
    assert run(planned).updates == 10


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1)), "is not what computes its scores"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), "has no linear layer: it has none at all"),
        (nn.Sequential(nn.Linear(3, 10)), "cannot be used with samples of shape"),
    ],
)
def test_modules_that_cannot_be_networks(module: nn.Module, message: str) -> None:
    planned = experiment("split-digits", "finetune", model=module)
    with pytest.raises(InputError, match=message):
        build(planned.model, shape=(1, 8, 8), n_units=10, seed=0)
    with pytest.raises(InputError, match="hidden is an option of named networks"):
        experiment("split-digits", "finetune", model=module, hidden=(3,))


@dataclass(kw_only=True, eq=False)
class Mine(engram.Learner):
    """Fine-tuning under another name."""

    knob: int = 3


def test_a_class_and_its_name_give_the_same_experiment() -> None:
    assert experiment("split-digits", METHODS["er"]).id == experiment("split-digits", "er").id
    try:
        planned = experiment("split-digits", Mine, settings={"knob": 4})
        assert (planned.method, planned.settings) == ("Mine", {"knob": 4})
        assert len(planned.as_json()["code"]["method"]) == 12
        assert experiment("split-digits", Mine).id == experiment("split-digits", "Mine").id
        # It is pickled with the experiment for other processes, where it is not registered.
        packed = pickle.dumps(planned)
        METHODS.remove("Mine")
        restored = pickle.loads(packed)  # noqa: S301
        assert restored.id == planned.id and METHODS["Mine"] is Mine
    finally:
        METHODS.remove("Mine")
    with pytest.raises(InputError, match="is not a method: give a name or a class"):
        experiment("split-digits", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rat": 1}, "unknown option 'learning_rat'"),
        ({"epoch": 1}, "unknown option 'epoch'; did you mean 'epochs'"),
        ({"memory": 1}, "memory is a hyper-parameter of er: give settings={'memory': …}"),
        ({"classes": "many"}, "classes must be known or unknown, got 'many'"),
    ],
)
def test_unknown_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        experiment("split-digits", "er", **options)


def test_experiments_and_scenarios_are_short_to_read() -> None:
    planned = experiment("split-digits", "er", seed=4)
    assert len(repr(planned).splitlines()) == 2 and planned.id in repr(planned)
    assert "er on split-digits, class setting, 5 tasks, mlp, seed 4" in repr(planned)
    assert repr(planned.scenario) == "Scenario('split-digits', class setting, 5 tasks, 10 output units)"


def test_seeds_of_numpy_are_the_same_seeds() -> None:
    runs = [
        engram.run("split-digits", method, seed=seed, updates=2, every=5)
        for method in ("er", "l2")
        for seed in np.arange(2)
    ]
    assert runs[1].id == experiment("split-digits", "er", seed=1, updates=2, every=5).id
    assert engram.compare(runs, "ACC").seeds == (0, 1)


@pytest.mark.parametrize("seed", ["1", 1.5, None, True])
def test_seeds_are_whole_numbers(seed: Any) -> None:
    with pytest.raises(InputError, match="seed must be a whole number, got"):
        engram.run("split-digits", "er", seed=seed)
