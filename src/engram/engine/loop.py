"""One experiment as a straight line."""

from __future__ import annotations

import math
import random
import statistics
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from engram.core.errors import InputError, NoNumber
from engram.core.seeds import Seeds
from engram.core.values import Batch, TaskInfo
from engram.datasets.accounting import Ledger, Reader, WatchedTask, watched
from engram.datasets.stream import PhaseData, Stream
from engram.engine.card import Card, make_card
from engram.engine.experiment import Experiment
from engram.engine.probing import check_probes, readings_at_end
from engram.engine.retained import Held, held, shapes_of
from engram.engine.upstream import open_upstream
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.schedule import Schedule
from engram.methods import METHODS
from engram.methods.base import Learner, Method, build_method, validate_fields
from engram.methods.optimizers import check_optimizer
from engram.models import build
from engram.models.network import Network
from engram.models.weights import load_weights
from engram.scenarios import joint
from engram.scenarios.values import Permute, TaskSetting


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is, after one update.

    Attributes:
        step: Updates done.
        steps: Updates in all.
        learning: The task being learned.
        loss: The loss that the update minimised.
        evaluated: Whether it was evaluated; then the evaluator has news.
        line: The run itself.
    """

    step: int
    steps: int
    learning: int
    loss: float
    evaluated: bool
    line: _Line

    @property
    def accuracies(self) -> dict[int, float]:
        """The latest accuracy of each task."""
        return self.line.evaluator.accuracies()

    def snapshot(self) -> dict[str, Any]:
        """The run's whole state, from which it can go on to the same bits."""
        return self.line.state_dict()


@dataclass(frozen=True, slots=True)
class Account:
    """What a method costs, measured on the run itself.

    Attributes:
        parameters: Weights of the network that answers.
        kept_bytes: Bytes kept beyond the weights and the optimiser's state at the end of each phase, before
            or after the method made what it will of it, whichever is more: memories, importance, older
            networks, generators; counted from the tensors and arrays that are really held, whatever the
            method says.
        flops: Floating-point operations of the last but one update of each phase, counted as they were done.
        kept_samples: Samples among those bytes.
        update_seconds: The median time of an update, in each phase.
    """

    parameters: int
    kept_bytes: tuple[int, ...]
    flops: tuple[int, ...]
    kept_samples: tuple[int, ...]
    update_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished run leaves: the evaluator with its trace, the method, the times, and the card.

    There is no card of a run that went on from a checkpoint which had no account of what was read.
    """

    experiment: Experiment
    evaluator: Evaluator
    method: Method
    train_seconds: float
    account: Account
    card: Card | None

    def result(self) -> dict[str, Any]:
        """What `result.json` says."""
        found = self.evaluator.result(
            id=self.experiment.id, seed=self.experiment.seed, train_seconds=self.train_seconds
        )
        card = {} if self.card is None else {"card": self.card.as_json()}
        return {**found, "account": asdict(self.account), **card}


class Diverged(InputError):
    """The loss is no number any more; what was measured until then is in `outcome`."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


def complete(experiment: Experiment) -> Experiment:
    """The experiment with every hyper-parameter of its method filled in and checked.

    Done before hashing, so that a default and the same value given by hand are the same experiment.
    """
    method = METHODS[experiment.method]
    # An unknown name is refused here.
    _ = experiment.model.model
    Schedule(experiment.evaluation.every, experiment.evaluation.per_epoch)
    check_optimizer(experiment.optimizer)
    check_probes(experiment, method)
    for rate in [phase.lr for phase in experiment.by_phase if phase.lr is not None]:
        check_optimizer(replace(experiment.optimizer, lr=rate))
        if not issubclass(method, Learner):
            raise InputError(f"method {experiment.method} has no learning rate by phase: give it one for all")
    if experiment.augment and not issubclass(method, Learner):
        raise InputError(f"method {experiment.method} does not take images changed at random: leave it out")
    steps = [step for task in experiment.scenario.tasks for step in task.transforms]
    if experiment.augment and any(isinstance(step, Permute) for step in steps):
        raise InputError(f"{experiment.scenario.name} permutes pixels: there is nothing to crop and mirror")
    settings = validate_fields(experiment.method, method, experiment.settings)
    needs_with = getattr(method, "needs_with", None)
    check_needs(experiment, needs_with(settings) if needs_with else method.needs)
    scenario = experiment.scenario
    if getattr(method, "joint", False) and len(scenario.phases) > 1:
        scenario = joint(scenario)
    return replace(experiment, settings=settings, scenario=scenario)


def check_needs(experiment: Experiment, needs: tuple[str, ...]) -> None:
    """Refuse a method that needs to know what the setting hides."""
    setting = experiment.scenario.setting
    if "task identity" in needs and not isinstance(setting, TaskSetting):
        raise InputError(
            f"method {experiment.method} needs task identity, which the {setting.kind} setting hides: "
            "use the task setting"
        )
    if "boundaries" in needs and not getattr(setting, "boundaries", True):
        raise InputError(
            f"method {experiment.method} needs to know where tasks begin, which {experiment.scenario.name} "
            "hides: use a stream with visible boundaries"
        )


def run(
    experiment: Experiment, *, data: Path | None = None, device: str = "cpu", strict: bool = False
) -> Outcome:
    """Run an experiment to its end; `strict` stops a method that reads what it should not.

    Example:
        >>> from engram.scenarios import prefix, split
        >>> digits = prefix(split("digits", setting="class"), 2)
        >>> outcome = run(Experiment(digits, "finetune", batch_size=64))
        >>> outcome.evaluator.step
        10
    """
    steps = run_steps(experiment, data=data, device=device, strict=strict)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def run_steps(
    experiment: Experiment,
    *,
    data: Path | None = None,
    device: str = "cpu",
    watch: bool = True,
    strict: bool = False,
    resume: dict[str, Any] | None = None,
) -> Generator[Progress, None, Outcome]:
    """Run an experiment update by update; storage, progress bars and the like are consumers.

    Args:
        experiment: What to run.
        data: Where data sets are looked for first.
        device: Where to compute.
        watch: Whether to evaluate at all; the weights come out the same either way.
        strict: Whether to stop a method that reads what it should not; else that is recorded.
        resume: What `Progress.snapshot` gave: the run goes on from there, to the same bits.
    """
    experiment = complete(experiment)
    line = _Line(experiment, data, device=device, strict=strict)
    if resume is not None:
        line.load_state_dict(resume)
    method, evaluator, scenario = line.method, line.evaluator, experiment.scenario
    visible = getattr(scenario.setting, "boundaries", True)
    steps = sum(info.steps for info in line.infos)
    for number in range(line.phase, len(scenario.phases)):
        tasks = scenario.phases[number]
        learning = tasks[-1]
        line.ledger.phase = number
        phase = line.stream.phase(number)
        evaluator.answers = scenario.answers(number)
        line.ledger.note_answers(evaluator.answers)
        line.set_rate(number)
        line.set_schedule(number)
        if not line.begun:
            if number == 0 or visible:
                line.begin_task(line.infos[number] if visible else _whole(line.infos))
            if number == 0 and watch and experiment.evaluation.before:
                with line.ledger.reading("evaluation"):
                    evaluator.before(line.predictor, learning=learning, together=tasks)
            line.begun = True
        for epoch_step, batch in line.shown(phase, number):
            # Late, because some begin gently; not the last, whose batch may be smaller.
            counted = max(1, line.infos[number].steps - 1)
            loss = line.update(batch, count=watch and line.step_in_phase == counted)
            if not math.isfinite(loss):
                raise line.diverged(f"the loss became {loss}")
            last = line.steps_left(number) == 0
            if last:
                # Before the evaluation, so that what a method makes of a task when it ends is measured.
                line.end_task(phase, number, visible=visible)
            with line.ledger.reading("evaluation"):
                evaluated = watch and evaluator(
                    line.predictor,
                    learning=learning,
                    last=last,
                    epoch_step=epoch_step,
                    together=tasks,
                )
            if evaluated and isinstance(method, Learner) and method.split_gradients:
                parts = {**method.gradient_norms, **method.loss_parts}.items()
                evaluator.readings += [(line.step, learning, None, name, value) for name, value in parts]
            if last and watch:
                line.probe(number)
            yield Progress(line.step, steps, learning, loss, evaluated, line)
        line.next_phase()
    return line.outcome()


CHECKPOINT_FORMAT = 2
"""How a snapshot is laid out; one of another layout is not used, and its run starts anew."""
_SERIES = ("kept_bytes", "kept_samples", "flops", "phase_seconds", "update_seconds")


class _Line:
    """Everything that a run holds between two updates, so that it can be put down and taken up again."""

    def __init__(self, experiment: Experiment, data: Path | None, *, device: str, strict: bool) -> None:
        seeds = Seeds.of(experiment.seed)
        self.experiment = experiment
        self.stream = Stream(experiment.scenario, data, device=device)
        self.ledger = Ledger(experiment.scenario, method=experiment.method, strict=strict)
        # Dropout and the like draw from the global generator.
        torch.manual_seed(seeds.noise)
        with self.ledger.reading("method"):
            network = make_network(experiment, self.stream, seeds)
            self.network_shapes = shapes_of(network)
            self.parameters = sum(p.numel() for p in network.parameters())
            self.method = make_method(experiment, network, seeds)
        if experiment.augment and len(self.stream.shape) != 3:
            raise InputError(f"{experiment.scenario.name} has no images to crop and mirror: leave that out")
        self.upstream = open_upstream(experiment, data=data) if experiment.evaluation.upstream else None
        self.evaluator = make_evaluator(experiment, self.stream, seeds)
        self.infos = task_infos(experiment, self.stream)
        self.answering: Callable[[], nn.Module | None] = lambda: None
        self.order = torch.Generator().manual_seed(seeds.order)
        self.phase = 0
        self.begun = False
        self.step = 0
        self.step_in_phase = 0
        self.step_in_pass = 0
        self.pass_order = self.order.get_state()
        self.train_seconds = 0.0
        self.kept_bytes: list[int] = []
        self.kept_samples: list[int] = []
        self.flops: list[int] = []
        self.phase_seconds: list[float] = []
        self.update_seconds: list[float] = []

    def rate(self, number: int) -> float:
        """The learning rate of a phase."""
        own = self.experiment.of_phase(number).lr
        return self.experiment.optimizer.lr if own is None else own

    def set_rate(self, number: int) -> None:
        """Let the method learn at the rate of a phase; nothing happens where all have the same."""
        if not self.experiment.by_phase or not isinstance(self.method, Learner):
            return
        self.method.optimizer_spec = replace(self.method.optimizer_spec, lr=self.rate(number))
        # An optimiser whose state is kept between tasks is not built anew.
        for group in self.method.optimizer.param_groups:
            group["lr"] = self.rate(number)

    def set_schedule(self, number: int) -> None:
        """Let a phase be evaluated as often as its own length asks for."""
        spec = self.experiment.evaluation
        self.evaluator.schedule = Schedule(spec.every_in(self.infos[number].steps), spec.per_epoch)

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the method that a task begins."""
        self.ledger.told += 1
        with self.asking():
            self.method.begin_task(task)

    def predictor(self) -> nn.Module:
        """The network that would answer now."""
        with self.asking():
            network = self.method.predictor()
        if not isinstance(network, nn.Module):
            raise InputError(
                f"method {self.experiment.method}: predictor gives a {type(network).__name__}: "
                "let it return the network that answers"
            )
        self.answering = weakref.ref(network)
        if hasattr(network, "route"):
            self.ledger.note_route()
        return network

    @contextmanager
    def asking(self, reader: Reader = "method") -> Iterator[None]:
        """The method at work: what it reads is noted, and where it fails for want of numbers the run ends."""
        try:
            with self.ledger.reading(reader):
                yield
        except NoNumber as error:
            raise self.diverged(str(error)) from error
        except InputError:
            raise
        except (ArithmeticError, RuntimeError, ValueError) as error:
            if self.finite():
                raise
            raise self.diverged("the weights became no numbers") from error

    def finite(self) -> bool:
        """Whether the network's weights and gradients are numbers, as far as the method shows them."""
        network = getattr(self.method, "network", None)
        weights = list(network.parameters()) if isinstance(network, nn.Module) else []
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        return all(bool(tensor.isfinite().all()) for tensor in (*weights, *gradients))

    def diverged(self, what: str) -> Diverged:
        """The error of a run that cannot go on, with what it has measured."""
        phase = min(self.phase, len(self.infos) - 1)
        what, _, hint = what.partition(": ")
        hint = hint or f"try a learning rate smaller than {self.rate(phase)}"
        task = self.experiment.scenario.phases[phase][-1] + 1
        return Diverged(
            f"{what} at step {self.step} while learning task {task}: {hint}", self.outcome(self.parameters)
        )

    def probe(self, number: int) -> None:
        """Measure what is measured at the end of a phase only."""
        started = time.perf_counter()
        with self.asking("probe"):
            self.evaluator.readings += readings_at_end(
                self.experiment,
                self.stream,
                self.method,
                phase=number,
                step=self.step,
                upstream=self.upstream,
            )
        self.evaluator.seconds += time.perf_counter() - started

    def update(self, batch: Batch, *, count: bool) -> float:
        """One update, timed; with `count`, its floating-point operations are counted as well."""
        started = time.perf_counter()
        self.step += 1
        try:
            if count:
                with FlopCounterMode(display=False) as counter, self.asking():
                    loss = self.method.observe(batch)
                self.flops.append(counter.get_total_flops())
            else:
                with self.asking():
                    loss = self.method.observe(batch)
        except ValueError as error:
            if len(batch) == 1 and "more than 1 value per channel" in str(error):
                raise InputError(
                    f"batch norm cannot learn from the single sample that update {self.step} has: "
                    f"choose a batch size other than {self.experiment.batch_size}"
                ) from error
            raise
        took = time.perf_counter() - started
        self.train_seconds += took
        self.phase_seconds.append(took)
        try:
            return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"method {self.experiment.method}: observe gives a {type(loss).__name__}: "
                "let it return the loss as a number"
            ) from error

    def end_task(self, phase: PhaseData, number: int, *, visible: bool) -> None:
        """Tell the method that its task ended: each one, or the whole stream at its end."""
        phases = len(self.experiment.scenario.phases)
        # What is only needed while a task is learned is kept as well.
        before = max(self.found().bytes, self.method.kept_bytes())
        if visible:
            self.tell_end(_once(phase, self.experiment))
        elif number == phases - 1:
            every = (self.stream.phase(each) for each in range(phases))
            self.tell_end(chain.from_iterable(_once(each, self.experiment) for each in every))
        after = self.found()
        # What is found is less than what is kept where several things share a tensor.
        self.kept_bytes.append(max(before, after.bytes, self.method.kept_bytes()))
        self.kept_samples.append(after.samples)
        # In the first update of a phase much is done for once.
        self.update_seconds.append(statistics.median(self.phase_seconds[1:] or self.phase_seconds))
        self.phase_seconds = []
        self.check_budget()

    def found(self) -> Held:
        """What the method holds now, besides its network."""
        return held(self.method, self.stream.shape, network=self.network_shapes, answering=self.answering())

    def tell_end(self, batches: Iterator[Batch]) -> None:
        """Tell the method that its task ended, with data that it may read once more."""
        with self.asking():
            self.method.end_task(self.ledger.handed(batches, "end of task"))

    def check_budget(self) -> None:
        """Stop a method that keeps more than it may."""
        budget, kept = self.experiment.budget_bytes, self.kept_bytes[-1]
        if budget is not None and kept > budget:
            raise InputError(
                f"method {self.experiment.method} keeps {kept} bytes after phase {self.phase + 1}, "
                f"over the budget of {budget}: give it more, or a smaller network or memory"
            )

    def shown(self, phase: PhaseData, number: int) -> Iterator[tuple[int, Batch]]:
        """The batches of a phase, shuffled anew in every pass, each with its number in the pass."""
        size = self.experiment.batch_size
        while self.steps_left(number):
            self.order.set_state(self.pass_order)
            shuffled = torch.randperm(len(phase), generator=self.order)
            rest = shuffled[self.step_in_pass * size :][: self.steps_left(number) * size]
            for batch in self.ledger.handed(phase.batches(rest, size), "training"):
                self.step_in_phase += 1
                self.step_in_pass += 1
                if self.step_in_pass * size >= len(phase):
                    # The pass ends with this batch: a snapshot taken after it starts with the next one.
                    self.step_in_pass, self.pass_order = 0, self.order.get_state()
                    yield -(-len(phase) // size) - 1, batch
                else:
                    yield self.step_in_pass - 1, batch

    def steps_left(self, number: int) -> int:
        """How many updates the phase still has."""
        return self.infos[number].steps - self.step_in_phase

    def next_phase(self) -> None:
        """A phase is over."""
        self.phase += 1
        self.begun = False
        self.step_in_phase = self.step_in_pass = 0
        self.pass_order = self.order.get_state()

    def outcome(self, parameters: int | None = None) -> Outcome:
        """What the run leaves; the network that answers is asked for its size, unless that is given."""
        if parameters is None:
            parameters = sum(p.numel() for p in self.predictor().parameters())
        account = Account(
            parameters=parameters,
            kept_bytes=tuple(self.kept_bytes),
            flops=tuple(self.flops),
            kept_samples=tuple(self.kept_samples),
            update_seconds=tuple(self.update_seconds),
        )
        card = None
        if self.ledger.whole:
            card = make_card(
                self.experiment.scenario,
                self.ledger,
                kept_bytes=account.kept_bytes,
                kept_samples=account.kept_samples,
                flops=account.flops,
                seconds=account.update_seconds,
                parameters=account.parameters,
            )
        return Outcome(self.experiment, self.evaluator, self.method, self.train_seconds, account, card)

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as tensors and plain values."""
        plain = ("phase", "begun", "step", "step_in_phase", "step_in_pass", "pass_order", "train_seconds")
        return {
            "format": CHECKPOINT_FORMAT,
            "digest": self.experiment.digest,
            "place": {name: getattr(self, name) for name in (*plain, *_SERIES)},
            "order": self.order.get_state(),
            "noise": global_randomness(),
            "method": self.method.state_dict(),
            "evaluator": self.evaluator.state_dict(),
            "ledger": self.ledger.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name, value in state["place"].items():
            setattr(self, name, value)
        self.order.set_state(state["order"])
        self.method.load_state_dict(state["method"])
        for name, value in list(vars(self.method).items()):
            if type(value) is TaskInfo:
                setattr(self.method, name, watched(value))
        self.evaluator.load_state_dict(state["evaluator"])
        self.ledger.load_state_dict(state.get("ledger"))
        set_global_randomness(state["noise"])


def global_randomness() -> dict[str, Any]:
    """The global random states of torch, NumPy and Python, as tensors and plain values."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "numpy": [str(name), [int(key) for key in keys], *rest],
        "python": random.getstate(),
    }


def set_global_randomness(state: dict[str, Any]) -> None:
    """Put the global random states back."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    random.setstate(state["python"])


def make_network(experiment: Experiment, stream: Stream, seeds: Seeds) -> Network:
    """The network as it is before it learns, seeded."""
    network = build(
        experiment.model, shape=stream.shape, n_units=stream.scenario.n_units, seed=seeds.initialisation
    )
    if (start := experiment.start) is not None:
        load_weights(network, start.file, sha256=start.sha256)
    return network.to(stream.device)


def make_method(experiment: Experiment, network: Network, seeds: Seeds) -> Method:
    """The method with its network, seeded."""
    method = build_method(
        METHODS[experiment.method],
        experiment.settings,
        network=network,
        optimizer_spec=experiment.optimizer,
        generator=torch.Generator().manual_seed(seeds.method),
    )
    if isinstance(method, Learner):
        method.split_gradients = experiment.evaluation.gradients
        if experiment.augment:
            method.augmentation = torch.Generator().manual_seed(seeds.augmentation)
    return method


def make_evaluator(experiment: Experiment, stream: Stream, seeds: Seeds) -> Evaluator:
    """What watches the run."""
    spec, scenario = experiment.evaluation, experiment.scenario
    part = {"test": stream.test, "train": stream.train, "validation": stream.validation}[spec.on]
    return Evaluator(
        [part(task) for task in range(len(scenario.tasks))],
        every=spec.every,
        per_epoch=spec.per_epoch,
        subset=spec.subset,
        redraw=spec.redraw,
        seed=seeds.evaluation,
        tasks=spec.tasks,
        full_ends=spec.full_ends,
        losses=spec.losses,
        classes=scenario.classes_seen,
    )


def task_infos(experiment: Experiment, stream: Stream) -> list[TaskInfo]:
    """What a learner may know of each task."""
    scenario = experiment.scenario
    identity = isinstance(scenario.setting, TaskSetting)
    found: list[TaskInfo] = []
    for number, tasks in enumerate(scenario.phases):
        samples = sum(len(stream.train(task)) for task in tasks)
        found.append(
            WatchedTask(
                index=number,
                identity=tasks[0] if identity and len(tasks) == 1 else None,
                classes=tuple(sorted({unit for task in tasks for unit in scenario.tasks[task].units})),
                samples=samples,
                steps=experiment.steps(samples, phase=number),
                epochs=-(-experiment.steps(samples, phase=number) * experiment.batch_size // samples),
                batch_size=experiment.batch_size,
            )
        )
    return found


def _whole(infos: list[TaskInfo]) -> TaskInfo:
    """The stream as one task, for a learner that sees no boundaries."""
    return WatchedTask(
        index=0,
        identity=None,
        classes=tuple(sorted({unit for info in infos for unit in info.classes})),
        samples=sum(info.samples for info in infos),
        steps=sum(info.steps for info in infos),
        epochs=infos[0].epochs,
        batch_size=infos[0].batch_size,
    )


def _once(phase: PhaseData, experiment: Experiment) -> Iterator[Batch]:
    """The samples of a phase once more, in the data set's own order."""
    return phase.in_order(experiment.batch_size)
