"""The experiments of a sweep's table, and its error messages."""

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engram.core.errors import InputError
from engram.engine.recipe import experiment
from engram.protocols.sweep_file import OPTIONS, SweepPlan, expand, read_sweep
from engram.scenarios import benchmark


def plan(text: str) -> SweepPlan:
    return expand(tomllib.loads(text))


def test_every_combination_once_and_seeds_fastest() -> None:
    experiments = plan(
        """
        scenario = ["split-digits", "permuted-digits"]
        method = ["finetune", "er"]
        lr = [0.1, 0.01]
        seeds = 2
        """
    ).experiments
    assert len(experiments) == len({planned.id for planned in experiments}) == 16
    assert [planned.seed for planned in experiments] == [0, 1] * 8
    assert [planned.method for planned in experiments[:8]] == ["finetune"] * 4 + ["er"] * 4
    assert {planned.optimizer.lr for planned in experiments} == {0.1, 0.01}


def test_options_give_the_same_experiment_as_with_run() -> None:
    options: dict[str, Any] = {
        "scenario": "split-digits",
        "method": "er",
        "setting": "class",
        "classes": "unknown",
        "hidden": "32,16",
        "dropout-input": 0.2,
        "dropout-hidden": 0.5,
        "optimizer": "sgd",
        "lr": 1,
        "momentum": 0.5,
        "batch-size": 8,
        "updates": 7,
        "subset": 0,
        "every": 3,
        "full-ends": True,
        "set": {"memory": "100"},
        "first-seed": 4,
    }
    (experiments,) = expand(options).experiments
    expected = experiment(
        "split-digits",
        "er",
        setting="class",
        classes_known=False,
        hidden=(32, 16),
        dropout_input=0.2,
        dropout_hidden=0.5,
        optimizer="sgd",
        lr=1.0,
        momentum=0.5,
        batch_size=8,
        updates=7,
        evaluation={"subset": None, "every": 3, "full_ends": True},
        settings={"memory": 100},
        seed=4,
    )
    assert experiments.id == expected.id


def test_blocks_of_winners_are_swept() -> None:
    experiments = expand(
        {"scenario": "split-digits", "method": "er", "model": "lwta", "block": [2, 4]}
    ).experiments
    assert [planned.model.block for planned in experiments] == [2, 4]
    assert experiments[0].id == experiment("split-digits", "er", model="lwta").id
    with pytest.raises(InputError, match="model mlp has no option block"):
        expand({"scenario": "split-digits", "method": "er", "block": 4})


def test_every_option_is_one_of_run() -> None:
    from inspect import signature

    from engram.cli.run import run

    assert set(OPTIONS) < set(signature(run).parameters)


def test_options_of_a_group_override_shared_ones() -> None:
    experiments = plan(
        """
        scenario = "split-digits"
        lr = 0.5
        seeds = [3, 5]
        set.er.memory = 50

        [[run]]
        method = "er"

        [[run]]
        method = ["er", "ewc"]
        lr = 0.25
        seeds = 1
        set.er.memory = [60, 70]
        set.ewc.strength = [1, 10, 100]
        """
    ).experiments
    seen = [(planned.method, planned.optimizer.lr, planned.seed, planned.settings) for planned in experiments]
    assert [(method, lr, seed) for method, lr, seed, _ in seen] == [
        ("er", 0.5, 3),
        ("er", 0.5, 5),
        ("er", 0.25, 0),
        ("er", 0.25, 0),
        ("ewc", 0.25, 0),
        ("ewc", 0.25, 0),
        ("ewc", 0.25, 0),
    ]
    assert [planned.get("memory", planned.get("strength")) for *_, planned in seen] == [
        50,
        50,
        60,
        70,
        1,
        10,
        100,
    ]


def test_hidden_widths_are_one_value_and_may_be_several() -> None:
    table = {"scenario": "split-digits", "method": "er", "hidden": [8, 4]}
    assert [planned.model.hidden for planned in expand(table).experiments] == [(8, 4)]
    several = expand({**table, "hidden": [[8], "4,4"]}).experiments
    assert [planned.model.hidden for planned in several] == [(8,), (4, 4)]


def test_equal_experiments_are_run_once() -> None:
    sweep = plan(
        """
        scenario = "split-digits"
        [[run]]
        method = ["er", "er"]
        [[run]]
        method = ["er", "gem"]
        """
    )
    assert [planned.method for planned in sweep.experiments] == ["er", "gem"] and sweep.repeated == 2


def test_impossible_combinations_are_skipped_and_listed() -> None:
    sweep = plan(
        """
        scenario = ["split-digits", "mini-domainnet"]
        setting = ["task", "class"]
        method = ["finetune", "independent"]
        seeds = 2
        """
    )
    assert len(sweep.experiments) == 2 * 3 + 2 * 2
    needs = "method independent needs task identity, which the class setting hides: use the task setting"
    names = ", ".join(benchmark("mini-domainnet").setting_names)
    has = f"mini-domainnet supports only the settings {names}"
    assert {skipped.what: skipped.why for skipped in sweep.skipped} == {
        "independent on split-digits (class)": needs,
        "finetune on mini-domainnet (class)": has,
        "independent on mini-domainnet (class)": has,
    }


START = 'scenario = "split-digits"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'scenario = "split-digit"\nmethod = "er"',
            ["unknown scenario 'split-digit'; did you mean 'split-digits'"],
        ),
        (
            START + '[[run]]\nmethod = "er"\n[[run]]\nmethod = "ewcc"',
            ["[[run]] 2: unknown method 'ewcc'; did you"],
        ),
        (START + 'methods = "er"', ["unknown key 'methods'; did you mean 'method'"]),
        (START + 'method = "er"\nmodel = "mpl"', ["unknown model 'mpl'"]),
        (START + 'method = "er"\nsetting = "clas"', ["unknown setting 'clas'; did you mean 'class'"]),
        (START + 'method = "er"\noptimizer = "adamm"', ["unknown optimizer 'adamm'; did you mean 'adam'"]),
        (START + 'method = "er"\nlr = "fast"', ["lr must be a number, got 'fast'"]),
        (START + 'method = "er"\nupdates = 2.5', ["updates must be a whole number, got 2.5"]),
        (START + 'method = "er"\nupdates = true', ["updates must be a whole number, got True"]),
        (START + 'method = "er"\nlosses = 1', ["losses must be true or false, got 1"]),
        (START + 'method = "er"\nlr = [0.1, -1]', ["lr must be above 0, got -1"]),
        (START + 'method = "er"\nlr = []', ["lr must have at least one value, got []"]),
        (START + 'method = "er"\nset.memory = []', ["set.memory must have at least one value, got []"]),
        (START + 'method = "er"\nevery = 0', ["every must be at least 1, got 0"]),
        (START + 'method = "er"\nsubset = -1', ["subset must be at least 1, got -1"]),
        (
            START + 'method = "er"\nhidden = ["4,a"]',
            ["hidden must be whole", "such as 400,400, got '4,a'"],
        ),
        (
            START + 'method = "er"\nhidden = 4.5',
            ["hidden must be whole", "such as 400,400, got 4.5"],
        ),
        (
            START + 'method = "er"\ndropout_hidden = 1.5',
            ["dropout_hidden must be at least 0 and", "1, got 1.5"],
        ),
        (START + 'method = "er"\nmodel = "cnn"\nhidden = [4]', ["model cnn has no option hidden"]),
        (START + 'method = "er"\nseeds = 0', ["seeds must be at least 1, or a list of seeds, got 0"]),
        (
            START + 'method = "er"\nseeds = [0, -1]',
            ["seeds must be whole numbers from 0 on", "got [0, -1]"],
        ),
        (START + 'method = "er"\nfirst_seed = -1', ["first_seed must be at least 0, got -1"]),
        (
            START + 'method = "er"\nout = "runs"',
            ["out is not part of a sweep: set it on the command line with --out"],
        ),
        (START + 'method = "er"\nset = 3', ["set must be written as set.FIELD = VALUE, got 3"]),
        (START + 'method = "er"\nset.memori = 3', ["method er has no field 'memori'"]),
        (START + 'method = "er"\nset.er.memory = [10, -1]', ["memory must be greater than 0, got -1"]),
        (START + 'method = "er"\nset.ewcc.strength = 1', ["set.ewcc: unknown method 'ewcc'"]),
        (START + 'method = "er"\nset.ewc.strength = 1', ["set.ewc: no run here has the method ewc"]),
        (
            START + '[[run]]\nmethod = "er"\nset.ewc.strength = 1\n[[run]]\nmethod = "ewc"',
            ["[[run]] 1: set.ewc: no run here has the method ewc"],
        ),
        (START, ["method is missing"]),
        ('method = "er"', ["scenario is missing"]),
        (START + '[run]\nmethod = "er"', ["run must be written as [[run]]"]),
        (
            START + 'method = "independent"\nsetting = "class"',
            ["nothing is left to run: method independent needs task identity"],
        ),
        (
            START
            + '[[run]]\nmethod = "ewcc"\nlr = "x"\n[[run]]\nmethod = "er"\nset.memori = 1\nset.memory = 0',
            [
                "[[run]] 1: unknown method 'ewcc'",
                "[[run]] 1: lr must be a number, got 'x'",
                "[[run]] 2: method er has no field 'memori'",
                "method er: memory must be greater than 0, got 0",
            ],
        ),
        (
            START
            + 'method = "er"\nepochs = 0\nupdates = 0\nbatch_size = -1\nlr = -1\nmomentum = 3\n'
            + "weight_decay = -1\nset.er.memory = -1\nset.er.weight = -5",
            [
                *("epochs must be at least 1, got 0", "updates must be at least 1, got 0"),
                *("batch_size must be at least 1, got -1", "lr must be above 0, got -1"),
                *(
                    "momentum must be at least 0 and below 1, got 3",
                    "weight_decay must be at least 0, got -1",
                ),
                *("memory must be greater than 0, got -1", "weight must be greater than 0, got -5"),
            ],
        ),
    ],
)
def test_every_mistake_is_named_with_its_key(text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        plan(text)
    message = str(error.value)
    assert "\n" not in message and all(word in message for word in words), message


def test_a_mistake_is_reported_once_however_many_runs_have_it() -> None:
    with pytest.raises(InputError) as error:
        plan(START + 'method = ["er", "ewc"]\nlr = -1\nseeds = 5')
    assert str(error.value).count("lr must be above 0, got -1") == 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_sweep(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("scenario = ")
    with pytest.raises(InputError, match="is not TOML") as error:
        read_sweep(broken)
    assert "\n" not in str(error.value)


def test_large_sweeps_are_checked_quickly() -> None:
    started = time.perf_counter()
    experiments = plan(START + 'method = ["finetune", "er"]\nlr = [0.1, 0.2, 0.3, 0.4, 0.5]\nseeds = 20')
    assert len(experiments.experiments) == 200
    assert time.perf_counter() - started < 10
