"""What every method must hold to, as checks that anybody can run on their own.

    import engram.testing

    engram.testing.check_method("my-method")

runs all checks on a registered method and raises `AssertionError` at the first that fails. In pytest, one
test a check reads better:

    @pytest.mark.parametrize("check", engram.testing.CHECKS.values(), ids=engram.testing.CHECKS)
    def test_contract(check):
        check("my-method")
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from engram.core.errors import InputError
from engram.core.seeds import Seeds
from engram.core.values import OptimizerSpec, TaskInfo
from engram.datasets import arrays
from engram.datasets.stream import Stream
from engram.engine import loop
from engram.engine.experiment import EvaluationSpec, Experiment
from engram.engine.isolation import weights_digest
from engram.engine.loop import task_infos
from engram.engine.retained import held
from engram.methods import METHODS
from engram.methods.base import Method
from engram.methods.state import CannotKeep
from engram.models import model as named_model
from engram.models.network import Network
from engram.models.spec import ModelSpec
from engram.scenarios.values import (
    ClassSetting,
    DomainSetting,
    Scenario,
    Setting,
    Source,
    Task,
    TaskSetting,
)

SIDE = 6
SETTINGS: tuple[Setting, ...] = (ClassSetting(), DomainSetting(), TaskSetting())
HIDDEN: tuple[Setting, ...] = (ClassSetting(boundaries=False), DomainSetting(boundaries=False))
"""Settings for methods that do not need to be told where tasks begin."""
Groups = tuple[tuple[int, ...], ...]
"""The classes of each task."""


@cache
def sample_data() -> str:
    """The name of a small made-up data set: seven classes, unequally many images of 6×6, learnable."""
    draw = np.random.default_rng(0)
    counts = (17, 16, 9, 1, 12, 20, 1)
    patterns = draw.normal(size=(len(counts), 1, SIDE, SIDE)).astype(np.float32)
    parts = []
    for scale in (counts, (6,) * len(counts)):
        y = np.repeat(np.arange(len(counts)), scale)
        noise = draw.normal(size=(len(y), 1, SIDE, SIDE)).astype(np.float32)
        parts += [patterns[y] + 0.3 * noise, y]
    return arrays("contract", *parts)


def sample_scenario(setting: Setting, groups: Groups = ((0, 1), (2,), (3, 4, 5))) -> Scenario:
    """Three tasks: two classes with 33 samples, one class with 9, and three of which one has one sample."""
    domain = isinstance(setting, DomainSetting)
    tasks = tuple(
        Task(Source(sample_data(), group), tuple(range(len(group))) if domain else group, name=str(number))
        for number, group in enumerate(groups)
    )
    return Scenario("contract", tasks, setting)


@named_model("contract-cnn")
def small_cnn(shape: tuple[int, ...], n_units: int) -> Network:
    """A small convolutional network with batch norm."""
    features = nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(1)
    )
    return Network(features, nn.Linear(4 * (shape[1] // 2) * (shape[2] // 2), n_units))


MLP = ModelSpec("mlp", hidden=(8,), dropout_hidden=0.25)
CNN = ModelSpec("contract-cnn")


QUICK: dict[str, dict[str, Any]] = {"gdumb": {"epochs": 8}}
"""Fields that keep a method's checks short."""
UNTOLD: dict[str, dict[str, Any]] = {"er": {"policy": "reservoir"}}
"""Fields with which a method does not need boundaries, where others do."""


def sample_experiment(method: str, setting: Setting, *, model: ModelSpec = MLP, seed: int = 0) -> Experiment:
    """A run of a few updates; 33 samples in batches of 8 leave a last batch of one."""
    untold = UNTOLD.get(method, {}) if setting in HIDDEN else {}
    return Experiment(
        sample_scenario(setting),
        method,
        settings={**QUICK.get(method, {}), **untold},
        model=model,
        optimizer=OptimizerSpec("sgd", lr=0.05, momentum=0.5),
        batch_size=8,
        epochs=2,
        evaluation=EvaluationSpec(every=3, subset=4),
        seed=seed,
    )


def settings_of(method: str, among: tuple[Setting, ...] = SETTINGS) -> list[Setting]:
    """The settings that a method can be used in."""
    found = []
    for setting in among:
        try:
            loop.complete(sample_experiment(method, setting))
        except InputError:
            continue
        found.append(setting)
    return found


def check_settings(method: str) -> None:
    """It runs in at least one setting, and in all that it does not refuse."""
    settings = settings_of(method)
    assert settings, f"{method} refuses every setting"
    for setting in settings:
        outcome = _whole(method, setting)
        assert outcome.evaluator.evaluations > 0
        assert isinstance(outcome.method, Method), f"{method} lacks one of the verbs"


def check_learns(method: str) -> None:
    """When the first task ends, it can tell its two classes apart."""
    for setting in settings_of(method):
        planned = replace(
            sample_experiment(method, setting), epochs=8, evaluation=EvaluationSpec(every=1000, subset=None)
        )
        first = planned.scenario.phases[:1]
        planned = replace(planned, scenario=replace(planned.scenario, phases=first))
        trace = loop.run(planned).evaluator.trace
        rows = [row for row in range(len(trace)) if trace.learning[row] == trace.learning[0]]
        last = next(row for row in reversed(rows) if trace.task[row] == 0)
        found = trace.correct[last] / trace.total[last]
        assert found > 0.75, f"{method} gets {found:.2f} right of what it has just learned ({setting.kind})"


def check_same_seed(method: str) -> None:
    """The same seed gives the same bits, another seed others."""
    for setting in settings_of(method):
        first = _whole(method, setting).evaluator
        second, other = (loop.run(sample_experiment(method, setting, seed=seed)).evaluator for seed in (0, 1))
        assert first.trace == second.trace, f"{method}: the same seed gave another trace"
        assert first.trace != other.trace, f"{method}: another seed changed nothing"


def check_watching(method: str) -> None:
    """Evaluation changes nothing: weights and buffers are the same bits without it."""
    settings = settings_of(method)
    for setting, model in [*((setting, MLP) for setting in settings), (settings[0], CNN)]:
        planned = sample_experiment(method, setting, model=model)
        planned = replace(planned, evaluation=replace(planned.evaluation, losses=True))
        digests = {weights_digest(_last(planned, watch=watch)) for watch in (True, False)}
        assert len(digests) == 1, f"{method}: watching changed the weights ({model.name})"


def check_gradient_split(method: str) -> None:
    """Splitting gradients for the probe changes nothing either."""
    setting = settings_of(method)[0]
    planned = sample_experiment(method, setting)
    split = replace(planned, evaluation=replace(planned.evaluation, gradients=True))
    assert weights_digest(_whole(method, setting).method) == weights_digest(_last(split))


def check_resume(method: str) -> None:
    """Put down in the middle of any task and taken up by a new process, it goes on to the same bits."""
    for setting in settings_of(method):
        whole = _whole(method, setting)
        steps = whole.evaluator.step
        _check_resumed(sample_experiment(method, setting), whole, stops=(3, steps // 2, steps - 2))


def check_resume_batch_norm(method: str) -> None:
    """It does so with what batch norm has learned, too."""
    planned = replace(sample_experiment(method, settings_of(method)[0], model=CNN), epochs=1)
    whole = loop.run(planned)
    _check_resumed(planned, whole, stops=(whole.evaluator.step // 2,))


def check_hidden_boundaries(method: str) -> None:
    """Where boundaries are hidden and it can do without, it stores data as they come, and resumes."""
    for setting in settings_of(method, HIDDEN):
        planned, whole = sample_experiment(method, setting), _whole(method, setting)
        middle = whole.evaluator.step // 2
        *_, progress = islice(loop.run_steps(planned, watch=False), middle)
        if "stored data" in METHODS[method].needs:
            kept = progress.line.method.kept_bytes()
            assert kept > 0, f"{method} stores data, but none before it is told that a task ended"
        _check_resumed(planned, whole, stops=(middle,))


def check_identity_hidden(method: str) -> None:
    """Where task identity is hidden, it is not read."""
    for setting in settings_of(method):
        if not isinstance(setting, TaskSetting):
            with patch.object(loop, "task_infos", _sealed_infos):
                loop.run(sample_experiment(method, setting))


def check_batch_norm(method: str) -> None:
    """It works with a convolutional network that has batch norm."""
    for setting in settings_of(method):
        _check_numbers(replace(sample_experiment(method, setting, model=CNN), epochs=1))


def check_single_sample(method: str) -> None:
    """Tasks may have one sample in all: the first, and one after a task that has more."""
    settings = settings_of(method)
    for setting, model in [*((setting, MLP) for setting in settings), (settings[0], CNN)]:
        scenario = sample_scenario(setting, groups=((3,), (2,), (6,)))
        planned = replace(sample_experiment(method, setting, model=model), scenario=scenario)
        _check_numbers(planned, watch=False)


def check_accounts(method: str) -> None:
    """It says of all that it holds how much that is, and a new one holds no samples."""
    for setting in settings_of(method):
        planned = loop.complete(sample_experiment(method, setting))
        stream, seeds = Stream(planned.scenario), Seeds.of(planned.seed)
        learned = _whole(method, setting).method
        new = loop.make_method(planned, loop.make_network(planned, stream, seeds), seeds)
        for each, answering in ((learned, learned.predictor()), (new, None)):
            kept, found = each.kept_bytes(), held(each, stream.shape, answering=answering)
            assert kept >= found.bytes, f"{method} says that it keeps {kept} bytes, but holds {found.bytes}"
        assert found.samples == 0, f"{method}: a new one holds samples that another was shown"
        if "stored data" in METHODS[method].needs:
            assert learned.kept_bytes() > 0, f"{method} stores data but accounts for none"


CHECKS: dict[str, Callable[[str], None]] = {
    "settings": check_settings,
    "learns": check_learns,
    "same-seed": check_same_seed,
    "watching": check_watching,
    "gradient-split": check_gradient_split,
    "resume": check_resume,
    "resume-batch-norm": check_resume_batch_norm,
    "hidden-boundaries": check_hidden_boundaries,
    "identity-hidden": check_identity_hidden,
    "batch-norm": check_batch_norm,
    "single-sample": check_single_sample,
    "accounts": check_accounts,
}


def check_method(method: str) -> None:
    """All checks, one after the other.

    Example:
        >>> check_method("finetune")
    """
    for check in CHECKS.values():
        check(method)


_WHOLE: dict[tuple[type[Any], Setting], loop.Outcome] = {}


def _whole(method: str, setting: Setting) -> loop.Outcome:
    """The sample run that several checks look at; a class that is registered anew is run anew."""
    key = METHODS[method], setting
    if key not in _WHOLE:
        _WHOLE[key] = loop.run(sample_experiment(method, setting))
    return _WHOLE[key]


def _check_resumed(planned: Experiment, whole: loop.Outcome, *, stops: tuple[int, ...]) -> None:
    """Put down at some steps and taken up from files, a run ends like the whole one."""
    files = {}
    for progress in islice(loop.run_steps(planned), max(stops)):
        if progress.step in stops:
            files[progress.step] = io.BytesIO()
            try:
                torch.save(progress.snapshot(), files[progress.step])
            except CannotKeep as reason:
                raise AssertionError(f"{planned.method}: {reason}") from reason
    for stop, file in files.items():
        file.seek(0)
        outcome = _drained(loop.run_steps(planned, resume=torch.load(file, weights_only=True)))
        differs = f"{planned.method}: resumed at {stop}, it differs ({planned.model.name})"
        assert outcome.evaluator.trace == whole.evaluator.trace, differs
        assert weights_digest(outcome.method) == weights_digest(whole.method), differs


def _check_numbers(planned: Experiment, *, watch: bool = True) -> None:
    """A run comes to its end with weights that are numbers."""
    try:
        method = _last(planned, watch=watch)
    except loop.Diverged as reason:
        raise AssertionError(f"{planned.method}: {reason}") from reason
    for tensor in method.predictor().state_dict().values():
        assert bool(torch.isfinite(tensor.float()).all()), f"{planned.method}: a weight is no number"


def _last(planned: Experiment, *, watch: bool = True) -> Method:
    return _drained(loop.run_steps(planned, watch=watch)).method


def _drained(steps: Any) -> loop.Outcome:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: loop.Outcome = end.value
            return outcome


class _Sealed(TaskInfo):
    """A task whose identity must not be asked for."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        assert name != "identity", "task identity was read although the setting hides it"
        return super().__getattribute__(name)


def _sealed_infos(experiment: Experiment, stream: Stream) -> list[TaskInfo]:
    shown = task_infos(experiment, stream)
    return [_Sealed(**{field.name: getattr(info, field.name) for field in fields(info)}) for info in shown]
