"""The contract of methods, as checks that you can run on your own methods.

    import engram.testing

    print(engram.testing.check_method("my-method"))

runs all checks on a registered method, raises `AssertionError` at the first that fails, and reports what was
compared. In pytest, one test per check gives clearer output:

    @pytest.mark.parametrize("check", engram.testing.CHECKS.values(), ids=engram.testing.CHECKS)
    def test_contract(check):
        check("my-method")

`engram.testing.check_isolation(network, batch)` checks that evaluating a network of yours does not change how
it is trained.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import islice
from typing import Annotated, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from pydantic import Field
from torch import nn

from engram.core.errors import InputError
from engram.core.seeds import Seeds
from engram.core.values import OptimizerSpec, TaskInfo
from engram.datasets import arrays
from engram.datasets.stream import Stream
from engram.engine import state
from engram.engine.build import make_method, make_network, task_infos
from engram.engine.check import complete
from engram.engine.failures import RunFailed
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.observers import Step
from engram.engine.retained import retained
from engram.evaluation.isolated import IsolationReport as IsolationReport
from engram.evaluation.isolated import check_isolation as check_isolation
from engram.methods import METHODS, traits_of
from engram.methods.base import Method
from engram.methods.state import CannotKeep
from engram.models import model as named_model
from engram.models.network import Network
from engram.models.spec import ModelSpec
from engram.record.experiment import EvaluationSpec, Experiment
from engram.record.run import Run
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
"""Settings that hide the boundaries between tasks."""
Groups = tuple[tuple[int, ...], ...]
"""The classes of each task."""


@cache
def sample_data() -> str:
    """The name of a small synthetic data set: seven classes of different sizes, images of 6×6."""
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
    """Three tasks: two classes with 33 samples, one class with 9, and three classes, one with one sample."""
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


@named_model("contract-frozen")
def partly_frozen(
    shape: tuple[int, ...], n_units: int, *, layers: Annotated[int, Field(ge=1)] = 1
) -> Network:
    """Two dense layers, of which the first ones do not learn."""
    inputs = int(np.prod(shape))
    hidden = [nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()]
    for layer in hidden[: 2 * layers]:
        layer.requires_grad_(False)
    return Network(nn.Sequential(nn.Flatten(1), *hidden), nn.Linear(8, n_units))


MLP = ModelSpec("mlp", hidden=(8,), dropout_hidden=0.25)
CNN = ModelSpec("contract-cnn")
FROZEN = (ModelSpec("contract-frozen"), ModelSpec("contract-frozen", layers=2))
"""A network whose first layer does not learn, and one in which only the head does."""


QUICK: dict[str, dict[str, object]] = {"gdumb": {"epochs": 8}}
"""Hyper-parameters that keep the checks of a method short."""
WITHOUT_BOUNDARIES: dict[str, dict[str, object]] = {"er": {"policy": "reservoir"}}
"""Hyper-parameters with which a method does not need boundaries, where its defaults do."""


class Check(NamedTuple):
    """A check that a method has passed.

    Attributes:
        name: Its name in `CHECKS`.
        compared: What was run and compared.
    """

    name: str
    compared: str


@dataclass(frozen=True, slots=True)
class MethodReport:
    """The checks that a method has passed; a method that fails gets no report.

    Example:
        >>> print(MethodReport("er", (Check("same-seed", "two runs with seed 0: equal traces"),)))
        er passed 1 check
          same-seed  two runs with seed 0: equal traces
    """

    method: str
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        width = max((len(check.name) for check in self.checks), default=0)
        count = len(self.checks)
        lines = [f"{self.method} passed {count} check{'' if count == 1 else 's'}"]
        return "\n".join([*lines, *(f"  {check.name:<{width}}  {check.compared}" for check in self.checks)])

    def __repr__(self) -> str:
        return str(self)


def sample_experiment(method: str, setting: Setting, *, model: ModelSpec = MLP, seed: int = 0) -> Experiment:
    """An experiment of a few updates; 33 samples in batches of 8 leave a last batch of one."""
    changed = WITHOUT_BOUNDARIES.get(method, {}) if setting in HIDDEN else {}
    return Experiment(
        sample_scenario(setting),
        method,
        settings={**QUICK.get(method, {}), **changed},
        model=model,
        optimizer=OptimizerSpec("sgd", lr=0.05, momentum=0.5),
        batch_size=8,
        epochs=2,
        evaluation=EvaluationSpec(every=3, subset=4),
        seed=seed,
    )


def settings_of(method: str, among: tuple[Setting, ...] = SETTINGS) -> list[Setting]:
    """The settings that a method can be used in.

    Example:
        >>> [setting.kind for setting in settings_of("packnet")]
        ['task']
    """
    return [setting for setting in among if _accepts(method, setting)]


def _accepts(method: str, setting: Setting) -> bool:
    try:
        complete(sample_experiment(method, setting))
    except InputError:
        return False
    return True


def check_settings(method: str) -> Check:
    """The method runs in at least one setting, and in all that it does not refuse."""
    settings = settings_of(method)
    assert settings, f"{method} refuses every setting"
    for setting in settings:
        whole = _whole(method, setting)
        assert whole.run.evaluations > 0
        assert isinstance(whole.method, Method), f"{method} is missing one of the verbs"
    return Check("settings", f"a run of three tasks in the settings {_names(settings)}: all finished")


def check_learns(method: str) -> Check:
    """At the end of the first task, it can tell the two classes of the task apart."""
    settings = settings_of(method)
    accuracies = [_accuracy_when_learned(method, setting) for setting in settings]
    for setting, accuracy in zip(settings, accuracies, strict=True):
        assert accuracy > 0.75, (
            f"{method} has an accuracy of {accuracy:.2f} on the task just learned ({setting.kind})"
        )
    return Check("learns", f"accuracy on the first task when it ends: {min(accuracies):.2f}, above .75")


def _accuracy_when_learned(method: str, setting: Setting) -> float:
    planned = replace(
        sample_experiment(method, setting), epochs=8, evaluation=EvaluationSpec(every=1000, subset=None)
    )
    first = planned.scenario.phases[:1]
    planned = replace(planned, scenario=replace(planned.scenario, phases=first))
    trace = run(planned).trace
    rows = [row for row in range(len(trace)) if trace.learning[row] == trace.learning[0]]
    last = next(row for row in reversed(rows) if trace.task[row] == 0)
    return trace.correct[last] / trace.total[last]


def check_same_seed(method: str) -> Check:
    """The same seed gives the same bits, another seed gives different ones."""
    settings = settings_of(method)
    for setting in settings:
        first = _whole(method, setting).run
        second, other = (run(sample_experiment(method, setting, seed=seed)) for seed in (0, 1))
        assert first.trace == second.trace, f"{method}: the same seed gave another trace"
        assert first.trace != other.trace, f"{method}: another seed changed nothing"
    return Check(
        "same-seed", f"traces of two runs with seed 0 (equal) and one with seed 1 (different){_in(settings)}"
    )


def check_watching(method: str) -> Check:
    """Evaluation does not change training: weights and buffers have the same bits without it."""
    settings = settings_of(method)
    for setting, model in [*((setting, MLP) for setting in settings), (settings[0], CNN)]:
        planned = sample_experiment(method, setting, model=model)
        digests = {weights_digest(_last(planned, watch=False))}
        if model is MLP:
            digests.add(weights_digest(_whole(method, setting).method))
        if setting is settings[0]:
            losses = replace(planned, evaluation=replace(planned.evaluation, losses=True))
            digests.add(weights_digest(_last(losses)))
        assert len(digests) == 1, f"{method}: evaluation changed the weights ({model.name})"
    return Check("watching", f"weights of runs with and without evaluation: equal bits{_in(settings)}")


def check_gradient_split(method: str) -> Check:
    """Splitting gradients for the probe does not change training."""
    setting = settings_of(method)[0]
    planned = sample_experiment(method, setting)
    split = replace(planned, evaluation=replace(planned.evaluation, gradients=True))
    assert weights_digest(_whole(method, setting).method) == weights_digest(_last(split)), (
        f"{method}: splitting gradients changed the weights"
    )
    return Check("gradient-split", "weights of runs with and without split gradients: equal bits")


def check_resume(method: str) -> Check:
    """Interrupted in the middle of any task and resumed by a new process, it continues with the same bits."""
    settings = settings_of(method)
    for setting in settings:
        whole = _whole(method, setting)
        steps = whole.run.updates
        _check_resumed(sample_experiment(method, setting), whole, stops=(3, steps // 2, steps - 2))
    return Check(
        "resume", f"runs resumed three times and whole ones: equal traces, equal bits{_in(settings)}"
    )


def check_resume_batch_norm(method: str) -> Check:
    """Resuming also restores what batch norm has learned."""
    planned = replace(sample_experiment(method, settings_of(method)[0], model=CNN), epochs=1)
    whole = _drained(run_steps(planned))
    _check_resumed(planned, whole, stops=(whole.run.updates // 2,))
    return Check(
        "resume-batch-norm", "a resumed run of a network with batch norm and a whole one: equal bits"
    )


def check_hidden_boundaries(method: str) -> Check:
    """If it runs with hidden boundaries, it stores data as they arrive, and resumes."""
    settings = settings_of(method, HIDDEN)
    for setting in settings:
        planned, whole = sample_experiment(method, setting), _whole(method, setting)
        middle = whole.run.updates // 2
        *_, step = islice(run_steps(planned, watch=False), middle)
        if traits_of(method).stores_data:
            assert step.method is not None
            kept = step.method.kept_bytes()
            assert kept > 0, f"{method} stores data, but only when it is told that a task ended"
        _check_resumed(planned, whole, stops=(middle,))
    if not settings:
        return Check("hidden-boundaries", "nothing: it needs boundaries")
    return Check(
        "hidden-boundaries", f"runs without boundaries, whole and resumed: equal bits{_in(settings)}"
    )


def check_identity_hidden(method: str) -> Check:
    """It does not read the task identity if the setting hides it."""
    settings = [setting for setting in settings_of(method) if not isinstance(setting, TaskSetting)]
    for setting in settings:
        try:
            with patch.object(state, "task_infos", _sealed_infos):
                run(sample_experiment(method, setting))
        except RunFailed as failed:
            raise failed.__cause__ or failed from None
    if not settings:
        return Check("identity-hidden", "nothing: it needs task identity")
    return Check("identity-hidden", f"runs in which reading the task identity is an error{_in(settings)}")


def check_batch_norm(method: str) -> Check:
    """It works with a convolutional network that has batch norm."""
    settings = settings_of(method)
    for setting in settings:
        _check_numbers(replace(sample_experiment(method, setting, model=CNN), epochs=1))
    return Check("batch-norm", f"weights of a network with batch norm: all finite{_in(settings)}")


def check_frozen(method: str) -> Check:
    """It works with layers that do not learn (`requires_grad=False`), and leaves them as they are."""
    settings = settings_of(method)
    for setting, model in [*((setting, FROZEN[0]) for setting in settings), (settings[-1], FROZEN[1])]:
        check_frozen_run(replace(sample_experiment(method, setting, model=model), epochs=1))
    return Check("frozen", f"weights of frozen layers before and after a run: equal bits{_in(settings)}")


def check_frozen_run(planned: Experiment) -> None:
    """After a run, the frozen layers of the network and of the predictor are as they were before it.

    Raises:
        AssertionError: They have not, or the run failed.
    """
    planned = complete(planned)
    network = make_network(planned, Stream(planned.scenario), Seeds.of(planned.seed))
    began = {name: weight for name, weight in network.named_parameters() if not weight.requires_grad}
    try:
        method = _last(planned, watch=False)
    except RunFailed as reason:
        raise AssertionError(f"{planned.method} fails where layers are frozen: {reason}") from reason
    for place in (getattr(method, "network", None), method.predictor()):
        held = place.state_dict() if isinstance(place, nn.Module) else {}
        for name, weight in began.items():
            for path in [path for path in held if path == name or path.endswith(f".{name}")]:
                assert torch.equal(held[path], weight), f"{planned.method} changed the frozen weight {path}"


def check_single_sample(method: str) -> Check:
    """Tasks may have a single sample: the first task, and one after a task that has more."""
    settings = settings_of(method)
    for setting, model in [*((setting, MLP) for setting in settings), (settings[0], CNN)]:
        scenario = sample_scenario(setting, groups=((3,), (2,), (6,)))
        planned = replace(sample_experiment(method, setting, model=model), scenario=scenario)
        _check_numbers(planned, watch=False)
    return Check("single-sample", f"weights after tasks of a single sample: all finite{_in(settings)}")


def check_accounts(method: str) -> Check:
    """It accounts for all bytes that it holds, and a new instance holds no samples."""
    settings = settings_of(method)
    for setting in settings:
        planned = complete(sample_experiment(method, setting))
        stream, seeds = Stream(planned.scenario), Seeds.of(planned.seed)
        learned = _whole(method, setting).method
        new = make_method(planned, make_network(planned, stream, seeds), seeds, stream)
        _check_kept(method, learned, retained(learned, stream.shape, answering=learned.predictor()).bytes)
        holds = retained(new, stream.shape, answering=None)
        _check_kept(method, new, holds.bytes)
        assert holds.samples == 0, f"{method}: a new instance holds samples that another one was shown"
        if traits_of(method).stores_data:
            assert learned.kept_bytes() > 0, f"{method} stores data but accounts for none"
    return Check(
        "accounts", f"kept_bytes and the bytes of all tensors that it holds: not less{_in(settings)}"
    )


def _check_kept(name: str, method: Method, holds: int) -> None:
    kept = method.kept_bytes()
    assert kept >= holds, f"{name} says that it keeps {kept} bytes, but holds {holds}"


def _names(settings: Sequence[Setting]) -> str:
    return ", ".join(setting.kind for setting in settings)


def _in(settings: Sequence[Setting]) -> str:
    return f" ({_names(settings)})"


CHECKS: dict[str, Callable[[str], Check]] = {
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
    "frozen": check_frozen,
    "single-sample": check_single_sample,
    "accounts": check_accounts,
}


def check_method(method: str) -> MethodReport:
    """Run all checks, and report what each of them compared.

    Raises:
        AssertionError: A check failed; the message says what the method did wrong.

    Example:
        >>> report = check_method("finetune")
        >>> len(report.checks)
        13
        >>> report.checks[4].compared
        'weights of runs with and without split gradients: equal bits'
    """
    return MethodReport(method, tuple(check(method) for check in CHECKS.values()))


class _Ended(NamedTuple):
    """A finished run and its method."""

    run: Run
    method: Method


_WHOLE: dict[tuple[type, Setting], _Ended] = {}


def _whole(method: str, setting: Setting) -> _Ended:
    """The sample run that several checks share; a class that is registered again is run again."""
    key = METHODS[method], setting
    if key not in _WHOLE:
        _WHOLE[key] = _drained(run_steps(sample_experiment(method, setting)))
    return _WHOLE[key]


def _check_resumed(planned: Experiment, whole: _Ended, *, stops: tuple[int, ...]) -> None:
    """Saved at some steps and resumed from files every time, a run ends with the bits of the whole one."""
    steps = run_steps(planned)
    for stop in stops:
        step = next(step for step in steps if step.step == stop)
        assert step.snapshot is not None
        file = io.BytesIO()
        try:
            torch.save(step.snapshot(), file)
        except CannotKeep as reason:
            raise AssertionError(f"{planned.method}: {reason}") from reason
        steps.close()
        file.seek(0)
        steps = run_steps(planned, resume=torch.load(file, weights_only=True))
    resumed = _drained(steps)
    when = " and ".join(map(str, stops))
    differs = f"{planned.method}: resumed at step {when}, it differs ({planned.model.name})"
    assert resumed.run.trace == whole.run.trace, differs
    assert weights_digest(resumed.method) == weights_digest(whole.method), differs


def _check_numbers(planned: Experiment, *, watch: bool = True) -> None:
    """A run finishes, and all its weights are finite."""
    try:
        method = _last(planned, watch=watch)
    except RunFailed as reason:
        raise AssertionError(f"{planned.method}: {reason}") from reason
    for tensor in method.predictor().state_dict().values():
        assert bool(torch.isfinite(tensor.float()).all()), f"{planned.method}: a weight is NaN or infinite"


def _last(planned: Experiment, *, watch: bool = True) -> Method:
    return _drained(run_steps(planned, watch=watch)).method


def _drained(steps: Generator[Step, None, Run]) -> _Ended:
    method: Method | None = None
    while True:
        try:
            method = next(steps).method
        except StopIteration as end:
            assert method is not None
            return _Ended(end.value, method)


class _Sealed(TaskInfo):
    """A task whose identity must not be read."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> object:
        assert name != "identity", "task identity was read although the setting hides it"
        return super().__getattribute__(name)


def _sealed_infos(experiment: Experiment, stream: Stream) -> list[TaskInfo]:
    shown = task_infos(experiment, stream)
    return [_Sealed(**{field.name: getattr(info, field.name) for field in fields(info)}) for info in shown]
