"""Every option, on every kind of stream: it does something, or it is refused, or it is said to do nothing."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engram.core.errors import InputError
from engram.core.schema import Option
from engram.core.seeds import Seeds
from engram.datasets.stream import Stream
from engram.engine.build import make_network
from engram.engine.data_options import DATA_OPTIONS
from engram.engine.effects import without_effect
from engram.engine.failures import RunFailed
from engram.engine.loop import run_steps
from engram.engine.options import all_options, changed, value_of
from engram.engine.recipe import experiment
from engram.record.experiment import Experiment
from engram.scenarios import joint, online, permuted, prefix, split
from engram.scenarios.values import ClassSetting, Scenario, SettingName


def two(setting: SettingName = "class") -> Scenario:
    return prefix(split("digits", setting=setting), 2)


STREAMS: dict[str, Callable[[], Scenario]] = {
    "class": two,
    "task": lambda: two("task"),
    "domain": lambda: two("domain"),
    "once": lambda: online(two()),
    "joint": lambda: joint(two()),
    "hidden": lambda: replace(two(), setting=ClassSetting(boundaries=False)),
    "permuted": lambda: permuted("digits", 2, setting="domain", seed=0),
    "held out": lambda: replace(two(), held_out=0.2),
}
COMPANIONS: dict[str, dict[str, Any]] = {"per_epoch": {"every": 2}, "redraw": {"subset": 10}}
"""Options that need another one."""

BESIDES = ("answers",)
"""Options that only record more: they are no part of what an experiment is."""

OF_DATA: dict[str, Any] = {
    "classes_per_task": (1,),
    "order": (1, 0),
    "n_tasks": 3,
    "angles": (0, 45),
    "label": "y",
    "features": ("a",),
    "inputs": "table",
    "test_share": 0.3,
    "size": 16,
}
"""Options of scenarios that are composed from data; for others they are refused."""

LIMITS = ("budget_bytes",)
"""Options that only say how far a run may go; see `test_a_budget_is_a_limit`."""


def small(stream: Scenario, **options: Any) -> dict[str, Any]:
    """The smallest run in which everything can happen: two tasks, three updates each."""
    length = {} if stream.passes is not None or "epochs" in options else {"updates": 3}
    return {"hidden": (4,), "batch_size": 32, "lr": 0.05, **length, **options}


def outcome(planned: Experiment) -> tuple[str, str]:
    """A hash of everything that a run leaves behind, and the facts of its protocol card."""
    steps = run_steps(planned)
    while True:
        try:
            last = next(steps)
        except StopIteration as ended:
            run = ended.value
            break
    hashed = hashlib.sha256(repr((run.updates, run.readings, run.account.kept_bytes)).encode())
    for trace in (run.trace, run.ends):
        hashed.update(repr(trace.frame().drop("bits").rows()).encode() + b"".join(trace.bits))
    hashed.update(b"".join(run.answers.codes))
    assert last.method is not None
    for name, weight in last.method.predictor().state_dict().items():
        hashed.update(name.encode() + weight.numpy().tobytes())
    # Only what was told: times are never the same twice.
    facts = [(fact.name, fact.answer) for fact in run.card.facts if isinstance(fact.answer, bool)]
    return hashed.hexdigest(), repr(facts)


def other_values(option: Option, base: Experiment, folder: Path) -> list[Any]:
    """Values of an option that differ from the one that an experiment has."""
    if option.name == "model":
        return ["lwta"]
    if option.name == "samples":
        return ["two-level:20"]
    if option.name in OF_DATA:
        return [OF_DATA[option.name]]
    if option.name == "weights":
        torch.manual_seed(0)
        network = make_network(base, Stream(base.scenario), Seeds.of(99))
        torch.save(network.state_dict(), folder / "weights.pt")
        return [folder / "weights.pt"]
    setting = base.scenario.setting
    value: Any
    stated = {"setting": setting.kind, "classes": "unknown", "boundaries": setting.shows_boundaries}
    if option.name in stated:
        value = stated[option.name]
    elif option.name in ("init", "zero_head"):
        value = getattr(base.model, option.name)
    else:
        value = value_of(base, option.name) if option.name not in ("block", "stem") else option.default
    if option.choices:
        return [choice for choice in option.choices if choice != value]
    if option.kind is int:
        return [10 if option.name == "subset" else (value or 1) + 1]
    return [{bool: not value, tuple: (5,), float: 0.3}[option.kind]]


def check(name: str, kind: str, folder: Path, bases: dict[Any, tuple[Experiment, tuple[str, str]]]) -> None:
    stream, besides = STREAMS[kind](), COMPANIONS.get(name, {})
    key = (kind, *besides)
    if key not in bases:
        plain = experiment(stream, "finetune", **small(stream, **besides))
        bases[key] = plain, outcome(plain)
    base, before = bases[key]
    for value in other_values(all_options()[name], base, folder):
        chosen = {**besides, name: value}
        try:
            planned = experiment(stream, "finetune", **small(stream, **chosen))
            after = outcome(planned)
        except InputError:
            continue
        except RunFailed as failed:
            pytest.fail(f"{name}={value} on {kind}: {failed.run.failure}")
        same = planned.id == base.id
        assert same == (name in BESIDES), f"{name}={value} on {kind}: {'the same' if same else 'another'} id"
        assert name not in OF_DATA, f"{name}={value} on {kind} is not refused"
        if name in without_effect(planned, {name: value}):
            assert after[0] == before[0], f"{name}={value} on {kind} is said to have no effect"
        else:
            assert after != before, f"{name}={value} on {kind} has no effect"


def test_the_options_of_data_are_known() -> None:
    assert set(OF_DATA) == set(DATA_OPTIONS)


@pytest.fixture(scope="module")
def bases() -> dict[Any, Any]:
    return {}


@pytest.mark.parametrize("name", [name for name in all_options() if name not in LIMITS])
def test_options_do_something_on_a_stream_that_is_seen_once(
    name: str, tmp_path: Path, bases: dict[Any, Any]
) -> None:
    check(name, "once", tmp_path, bases)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in STREAMS if kind != "once"])
def test_options_do_something_on_every_stream(kind: str, tmp_path: Path, bases: dict[Any, Any]) -> None:
    for name in all_options():
        if name not in LIMITS:
            check(name, kind, tmp_path, bases)


@pytest.mark.parametrize(("name", "value"), [("updates", 2), ("epochs", 3)])
def test_the_length_of_a_stream_that_is_seen_once_cannot_be_chosen(name: str, value: int) -> None:
    options: dict[str, Any] = {name: value}
    message = f"shows every sample once, so {name}={value} would be ignored: leave {name} out"
    with pytest.raises(InputError, match=message):
        experiment("split-tiny-imagenet", "finetune", **options)
    with pytest.raises(InputError, match=f"has its own number of passes, so {name} would be ignored"):
        changed(experiment("split-tiny-imagenet", "finetune"), options)


def test_epochs_and_updates_are_not_used_together() -> None:
    with pytest.raises(InputError, match="epochs and updates cannot be used together"):
        experiment("split-digits", "finetune", epochs=2, updates=3)


def test_one_epoch_of_a_stream_that_is_seen_once_is_what_happens() -> None:
    assert experiment("split-tiny-imagenet", "finetune", epochs=1).scenario.passes == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_epoch": True}, "every update is evaluated: set every above 1"),
        ({"redraw": True, "subset": 0}, "all samples are used: set subset"),
        ({"redraw": True}, "a new subset of 1000 samples for every evaluation, and no task has more than 71"),
    ],
)
def test_evaluations_that_cannot_be_as_they_are_described(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        experiment("split-digits", "finetune", **options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            {"lr": 0.3},
            "not use the optimiser of the experiment, so lr=0.3 would .* set its own field lr",
        ),
        ({"momentum": 0.3}, "so momentum=0.3 would be ignored: set its own field momentum"),
        ({"optimizer": "adam"}, "so optimizer=adam would be ignored: leave optimizer out"),
        ({"gradients": True}, "method gdumb does not tell the parts of its gradients"),
    ],
)
def test_a_method_with_its_own_training_takes_no_options_of_the_optimiser(
    option: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        experiment("split-digits", "gdumb", **option)


def test_a_budget_is_a_limit() -> None:
    with pytest.raises(InputError, match="over the budget of 10: raise the budget"):
        experiment("split-digits", "ewc", budget_bytes=10)


def test_state_that_does_not_exist_is_not_reset() -> None:
    plain = experiment(two(), "finetune", **small(two(), momentum=0.0))
    kept = experiment(two(), "finetune", **small(two(), momentum=0.0, reset=False))
    assert outcome(plain) == outcome(kept)
    assert without_effect(kept, {"reset": False}) == {"reset": "sgd without momentum has no state"}


def test_a_new_network_has_no_state_to_reset() -> None:
    plain, kept = (
        experiment(two("task"), "independent", **small(two(), reset=reset)) for reset in (True, False)
    )
    assert outcome(plain) == outcome(kept)
    assert without_effect(kept, {"reset": False}) == {"reset": "every task begins with a new network"}
