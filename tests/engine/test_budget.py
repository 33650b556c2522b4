"""The bytes that a method will keep are predicted before training, and checked against the budget."""

import pytest
import torch

from engram.core.errors import InputError
from engram.engine.budget import predicted_bytes
from engram.engine.loop import run
from engram.engine.recipe import experiment
from engram.methods import METHODS, traits_of
from engram.scenarios import SettingName

WITHOUT_SAMPLES = [name for name in METHODS if not traits_of(name).stores_data]
SETTINGS: tuple[SettingName, ...] = ("class", "task", "domain")


@pytest.mark.parametrize(
    "setting", ["task", *(pytest.param(name, marks=pytest.mark.slow) for name in ("class", "domain"))]
)
@pytest.mark.parametrize("method", WITHOUT_SAMPLES)
def test_what_is_predicted_is_kept(method: str, setting: SettingName) -> None:
    if "task identity" in traits_of(method).needs and setting != "task":
        pytest.skip("needs task identity")
    planned = experiment(
        "split-digits", method, setting=setting, updates=2, evaluation={"every": 1000, "subset": 10}
    )
    account = run(planned).account
    assert account is not None
    assert predicted_bytes(planned) == list(account.kept_bytes)


@pytest.mark.parametrize(
    ("method", "budget", "phase"),
    [("ewc", 71_759, 1), ("si", 71_760, 1), ("dgr", 300_000, 1), ("imm-mean", 110_000, 4)],
)
def test_what_will_be_over_the_budget_is_refused_before_training(
    method: str, budget: int, phase: int
) -> None:
    """Importance and anchor of 8,970 weights are 71,760 bytes."""
    wanted = rf"method {method} will keep \d+ bytes after phase {phase}, over the budget of {budget}"
    with pytest.raises(InputError, match=wanted) as error:
        experiment("split-digits", method, budget_bytes=budget)
    assert "\n" not in str(error.value)


def test_what_just_fits_is_not_refused() -> None:
    assert experiment("split-digits", "ewc", budget_bytes=71_760).budget_bytes == 71_760


def test_the_prediction_draws_nothing_from_the_global_generator() -> None:
    planned = experiment("split-digits", "dgr", updates=2)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    predicted_bytes(planned)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_memory_that_is_counted_by_class_fits_as_well(setting: SettingName) -> None:
    """In the domain setting every task has the same two classes, and keeps new samples of them."""
    planned = experiment(
        "split-digits",
        "er",
        setting=setting,
        budget_bytes=60_000,
        settings={"policy": "per-class"},
        updates=2,
        evaluation={"every": 1000, "subset": 10},
    )
    assert planned.settings["memory"] == 20
    account = run(planned).account
    assert account is not None
    assert 0.7 * 60_000 < account.kept_bytes[-1] <= 60_000
    with pytest.raises(InputError, match="2000 bytes does not hold a single sample of each class: raise it"):
        experiment("split-digits", "er", budget_bytes=2_000, settings={"policy": "per-class"})


def test_a_budget_and_a_memory_are_not_set_together() -> None:
    with pytest.raises(InputError, match="give either the budget or memory") as error:
        experiment("split-digits", "er", budget_bytes=60_000, settings={"memory": 5})
    assert "\n" not in str(error.value)
    # The budget overrides the recipe's memory; a memory that no budget sizes may be set.
    assert experiment("split-digits", "er", budget_bytes=60_000).settings["memory"] == 208
    assert (
        experiment("split-digits", "gem", budget_bytes=60_000, settings={"memory": 5}).settings["memory"] == 5
    )
