"""Benchmarks that people can name."""

import subprocess
import sys
from dataclasses import replace

import pytest

from engram.core.errors import InputError
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.methods.fields import validate_fields
from engram.methods.optimizers import OPTIMIZERS, check_optimizer
from engram.models import MODELS, ModelSpec
from engram.scenarios import BENCHMARKS, ClassSetting, Normalise, Pad, SettingName, TaskSetting, benchmark
from engram.scenarios.build import SLT_CODES

ALL = [*BENCHMARKS, "slt-D5-5a-mnist", "slt-DP10-10-fashion-mnist"]


@pytest.mark.parametrize("name", ALL)
def test_every_benchmark_makes_its_scenario_in_each_of_its_settings(name: str) -> None:
    named = benchmark(name)
    assert named.name == name
    for setting in named.settings:
        stream = named.scenario(setting.kind, seed=1)
        assert stream == named.scenario(setting.kind, seed=1)
        assert (stream.name, stream.setting) == (name, setting)
    assert named.scenario().setting == named.settings[0]


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_is_one_that_can_be_followed(name: str) -> None:
    recipe = benchmark(name).recipe
    assert recipe.model in MODELS
    network = ModelSpec(recipe.model, **recipe.model_options)
    for method in METHODS:
        replace(network, **recipe.network(method))  # type: ignore[arg-type]
        if traits_of(method).family == "generative":
            assert recipe.optimizer(method).name == "adam", "plain descent teaches an autoencoder too little"
        for optimizer in (*OPTIMIZERS, None):
            check_optimizer(recipe.optimizer(method, optimizer))
        for setting in benchmark(name).setting_names:
            tuned = recipe.fields(method, setting)
            assert validate_fields(method, METHODS[method], tuned).items() >= tuned.items()


@pytest.mark.parametrize(
    ("name", "tasks", "units"),
    [
        ("split-mnist", 5, 10),
        ("split-mini-imagenet", 20, 100),
        ("mini-domainnet", 4, 126),
        ("permuted-mnist", 5, 10),
        ("rotated-mnist", 20, 10),
        ("digits-domains", 3, 10),
        ("split-cifar100", 10, 100),
        ("split-tiny-imagenet", 100, 200),
        ("permuted-mnist-002", 10, 10),
        ("queue-002", 78, 156),
        ("split-cifar100-003", 20, 100),
        ("cifar100-superclasses", 5, 100),
        ("clear10", 10, 10),
        ("clear100", 10, 100),
        ("split-imagenet", 100, 1000),
    ],
)
def test_sizes_as_published(name: str, tasks: int, units: int) -> None:
    stream = benchmark(name).scenario()
    assert (len(stream.tasks), stream.n_units) == (tasks, units)


def test_only_what_a_paper_draws_depends_on_the_seed() -> None:
    drawn = {
        name for name in BENCHMARKS if BENCHMARKS[name].scenario(seed=1) != BENCHMARKS[name].scenario(seed=2)
    }
    assert drawn == {
        "permuted-digits",
        "permuted-mnist",
        "permuted-mnist-002",
        "split-cifar100",
        "split-tiny-imagenet",
        "split-cifar10-003",
        "split-cifar100-003",
        "cifar100-superclasses",
        "split-imagenet",
    }


def test_the_two_split_mnists_differ_as_their_papers_do() -> None:
    stability, scenarios = benchmark("split-mnist").scenario(), benchmark("split-mnist-002").scenario("class")
    assert stability.setting == ClassSetting(classes_known=True)
    assert scenarios.setting == ClassSetting()
    assert stability.tasks[0].transforms == (Normalise((0.1307,), (0.3081,)),)
    assert scenarios.tasks[0].transforms == (Pad(2), Normalise((0.1,), (0.2752,)))
    assert benchmark("split-mnist").recipe.optimizer("er").reset
    assert not benchmark("split-mnist-002").recipe.optimizer("er").reset


@pytest.mark.parametrize(
    ("name", "method", "setting", "strength"),
    [
        ("split-mnist-002", "l2", "domain", 0.5),
        ("split-mnist-002", "ewc", "class", 600),
        ("split-mnist-002", "online-ewc", "task", 400),
        ("split-mnist-002", "si", "domain", 3000),
        ("permuted-mnist-002", "mas", "class", 0.003),
        ("permuted-mnist-002", "ewc", "domain", 150),
    ],
)
def test_strengths_of_hsu(name: str, method: str, setting: SettingName, strength: float) -> None:
    assert benchmark(name).recipe.fields(method, setting)["strength"] == strength


def test_a_recipe_knows_what_a_paper_does_with_each_optimizer() -> None:
    recipe = benchmark("permuted-mnist-002").recipe
    assert (recipe.optimizer("finetune").name, recipe.optimizer("finetune").lr) == ("adam", 0.0001)
    assert recipe.optimizer("finetune", "sgd").lr == 0.001
    assert recipe.optimizer("gem").lr == recipe.optimizer("gem", "sgd").lr == 0.1
    assert not recipe.optimizer("finetune", "adagrad").reset
    assert benchmark("split-cifar10").recipe.optimizer("er").lr == 0.1
    assert benchmark("split-digits").recipe.optimizer("er", "adam").lr == 0.001
    with pytest.raises(InputError, match="did you mean 'adam'"):
        recipe.optimizer("finetune", "adm")


@pytest.mark.parametrize("method", ["imm-mean", "imm-mode", "ewc", "finetune"])
def test_sequential_learning_tasks_train_each_method_as_pfuelb_and_gepperth_do(method: str) -> None:
    planned = experiment("slt-D5-5a-mnist", method)
    optimizer = (planned.optimizer.name, planned.optimizer.momentum)
    dropped = (planned.model.dropout_input, planned.model.dropout_hidden)
    if method == "finetune":
        assert (optimizer, dropped) == (("sgd", 0.99), (0.0, 0.0))
        return
    assert optimizer == ("adam" if method == "ewc" else "sgd", 0.0)
    assert dropped == (0.2, 0.5)
    assert planned.model.init == ("truncated-normal-.1" if method == "ewc" else "truncated-normal")
    assert planned.settings.get("fisher") == {"imm-mode": "batch", "ewc": "sample"}.get(method)
    # What somebody wants otherwise counts, and another network is as it is.
    assert experiment("slt-D5-5a-mnist", method, dropout_input=0.0).model.dropout_input == 0.0
    assert experiment("slt-D5-5a-mnist", method, model="conv").model.dropout_hidden == 0.0


@pytest.mark.parametrize(
    ("name", "inner_steps", "batch"),
    [("split-cifar10-003", 2, 64), ("clear10", 2, 128), ("clear100", 2, 128), ("split-imagenet", 1, 256)],
)
def test_steps_ahead_and_batches_of_chen(name: str, inner_steps: int, batch: int) -> None:
    recipe = benchmark(name).recipe
    assert recipe.fields("fomaml", "task")["inner_steps"] == inner_steps
    assert recipe.fields("multitask", "task")["memory_batch"] == recipe.batch("multitask") == batch


def test_a_setting_with_options_of_ones_own_is_taken_as_it_is() -> None:
    unmasked = ClassSetting(mask_evaluation=False)
    assert benchmark("split-mnist").scenario(unmasked).setting == unmasked
    assert benchmark("split-mnist").scenario(TaskSetting()).setting == TaskSetting()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("split-mnits", "unknown scenario 'split-mnits'; did you mean 'split-mnist'"),
        ("slt-D5-5a-mnits", "unknown data set 'mnits'; did you mean 'mnist'"),
        ("slt-D5-5j-mnist", "unknown sequential learning task 'D5-5j'; did you mean"),
        ("slt-mnist", "unknown sequential learning task 'mnist'"),
        ("slt-", "unknown sequential learning task ''"),
    ],
)
def test_wrong_names_get_the_nearest_right_ones(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        benchmark(name)


@pytest.mark.parametrize("code", SLT_CODES)
@pytest.mark.parametrize("dataset", ["mnist", "fashion-mnist", "fruits-360"])
def test_sequential_learning_tasks_are_made_from_their_names(code: str, dataset: str) -> None:
    name = f"slt-{code}-{dataset}"
    assert benchmark(name).scenario().name == name


def test_settings_that_make_no_sense_are_refused_with_those_that_do() -> None:
    with pytest.raises(
        InputError, match="digits-domains makes no sense in the class setting: choose domain or task"
    ):
        benchmark("digits-domains").scenario("class")


def test_scenarios_do_not_import_torch() -> None:
    code = "import engram.scenarios, engram.models, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
