"""Everything that a run holds between two updates, so that it can be saved and resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain

import torch
from torch import nn

from engram.core.errors import InputError, NonFinite
from engram.core.seeds import Seeds
from engram.core.values import Batch, TaskInfo
from engram.datasets.accounting import Ledger
from engram.datasets.outside import watch_outside
from engram.datasets.stream import PhaseData, Stream
from engram.engine.account import Meter, late_updates
from engram.engine.build import make_evaluator, make_method, make_network, task_infos, whole_stream
from engram.engine.card import make_card
from engram.engine.failures import failure_of
from engram.engine.guarded import Guarded
from engram.engine.place import Place, Shown
from engram.engine.probing import readings_at_end
from engram.engine.randomness import global_randomness, set_global_randomness
from engram.engine.reach import may_store
from engram.engine.sample_search import SampleSearch
from engram.engine.upstream import open_upstream
from engram.engine.where import Where
from engram.evaluation.schedule import Schedule
from engram.methods.base import as_learner
from engram.methods.state import State
from engram.record.card import ForbiddenRead
from engram.record.experiment import Experiment
from engram.record.failure import FailureKind
from engram.record.result import Seconds
from engram.record.run import Run

CHECKPOINT_FORMAT = 4
"""The layout of a snapshot; one with another layout is not used, and its run starts from the beginning."""


class RunState:
    """A run under way: its stream, its method and its evaluator, and how far it has come.

    Args:
        experiment: The experiment, complete.
        where: Where to search for data, the device, and whether the ledger is strict.
    """

    def __init__(self, experiment: Experiment, where: Where) -> None:
        seeds = Seeds.of(experiment.seed)
        self.experiment, self.scenario = experiment, experiment.scenario
        self.stream = Stream(self.scenario, where.data, device=where.device)
        self.ledger = Ledger(self.scenario, method=experiment.method, strict=where.strict)
        # Dropout and the like draw from the global generator.
        torch.manual_seed(seeds.noise)
        watch_outside()
        with self.ledger.reading("method"):
            network = make_network(experiment, self.stream, seeds)
        among = SampleSearch(self.stream)
        self.meter = Meter(experiment, network, self.stream.shape, among)
        self.parameters = sum(weight.numel() for weight in network.parameters())
        with self.ledger.reading("method"):
            method = make_method(experiment, network, seeds, self.stream)
            if torch.default_generator.initial_seed() != seeds.noise:
                self.ledger.refuse(ForbiddenRead("seed"))
        if experiment.augment and len(self.stream.shape) != 3:
            raise InputError(f"{self.scenario.name} has no images to crop and mirror: leave augment out")
        self.method = Guarded(
            method, name=experiment.method, network=network, ledger=self.ledger, meter=self.meter
        )
        self.upstream = open_upstream(experiment, data=where.data) if experiment.evaluation.upstream else None
        self.evaluator = make_evaluator(
            experiment, self.stream, seeds, precision=where.precision, parallel=where.parallel
        )
        self.evaluator.asker.answering = self.method.asked
        self.evaluator.must_stay = self._must_stay
        self.infos = task_infos(experiment, self.stream)
        self.place = Place.start(seeds.order)
        self.boundaries = self.scenario.setting.shows_boundaries

    @cached_property
    def steps(self) -> int:
        """Updates in all."""
        return sum(self.updates_of(phase) for phase in range(len(self.infos)))

    @property
    def updates(self) -> int:
        """Updates in the phase being learned; fewer than the method is told where the phase is stopped."""
        return self.updates_of(self.place.phase)

    def updates_of(self, phase: int) -> int:
        """Updates in a phase."""
        planned, stop = self.infos[phase].steps, self.experiment.of_phase(phase).stop
        return planned if stop is None else min(stop, planned)

    @property
    def tasks(self) -> tuple[int, ...]:
        """The tasks being learned."""
        return self.scenario.phases[min(self.place.phase, len(self.infos) - 1)]

    @property
    def info(self) -> TaskInfo:
        """What may be known of the phase being learned."""
        return self.infos[self.place.phase]

    def begin_phase(self, *, watch: bool) -> PhaseData:
        """Prepare the next phase, or the one that is resumed, and return its data."""
        place, spec = self.place, self.experiment.evaluation
        self.ledger.phase = place.phase
        self.meter.begin_phase(place.phase)
        data = self.stream.phase(place.phase)
        answers = self.scenario.answers(place.phase)
        self.evaluator.look(units=answers, schedule=Schedule(spec.every_in(self.info.steps), spec.per_epoch))
        self.ledger.note_answers(answers)
        self._set_rate()
        if not place.begun:
            if place.phase == 0 or self.boundaries:
                self.method.begin_task(self.info if self.boundaries else whole_stream(self.infos))
            if place.phase == 0 and watch and spec.before:
                with self.ledger.reading("evaluation"):
                    self.evaluator.before(self.method.predictor, learning=self.tasks[-1], together=self.tasks)
            place.begun = True
        return data

    def batches(self, data: PhaseData) -> Iterator[Shown]:
        """The remaining batches of the phase."""
        batches = self.place.batches(data, size=self.experiment.batch_size, steps=self.updates)
        return self.ledger.handed(batches, "training")

    def update(self, batch: Batch, *, watch: bool) -> float:
        """Make one update, and return its loss."""
        counted = watch and self.place.step_in_phase in late_updates(self.updates)
        self.place.step += 1
        with self.meter.update(count=counted):
            return self.method.observe(batch)

    @property
    def phase_is_over(self) -> bool:
        """Whether the phase has had all its updates."""
        return self.place.step_in_phase == self.updates

    def end_phase(self, data: PhaseData) -> None:
        """Tell the method that its task ended: each one, or the whole stream at its end."""
        self.meter.task_ending(self.method)
        phases = range(len(self.infos))
        if self.boundaries:
            self.method.end_task(self._once_more(data))
        elif self.place.phase == phases[-1]:
            everything = (self._once_more(self.stream.phase(phase)) for phase in phases)
            self.method.end_task(chain.from_iterable(everything))
        self.meter.task_ended(self.method)

    def _once_more(self, data: PhaseData) -> Iterator[Batch]:
        """The samples of a phase once, with their classes mixed: importance over batches depends on that."""
        return data.mixed(self.experiment.batch_size, seed=Seeds.of(self.experiment.seed).rereading)

    def evaluate(self, shown: Shown, *, last: bool) -> bool:
        """Evaluate if the schedule says so, and return whether it did."""
        self.method.listens = last
        with self.ledger.reading("evaluation"):
            evaluated = self.evaluator(
                self.method.predictor,
                learning=self.tasks[-1],
                last=last,
                epoch_step=shown.epoch_step,
                together=self.tasks,
            )
        self.method.answered()
        learner = as_learner(self.method.method)
        if evaluated and learner is not None and learner.split_gradients:
            with self.method.at_work():
                parts = {**learner.gradient_norms, **learner.loss_parts}
            self.evaluator.note(
                (self.place.step, self.tasks[-1], None, name, value) for name, value in parts.items()
            )
        return evaluated

    def _must_stay(self, network: nn.Module) -> str:
        """Why a network cannot be asked in another process: the account of the run would miss something."""
        if may_store(network):
            return "the network has code of its own, and what that reads is recorded here"
        held = self.evaluator.asker.hold or all(data.in_memory for data in self.evaluator.sets)
        return "" if held else "test data are read from files, and what is read is recorded here"

    def probe(self) -> None:
        """Make the measurements that belong to the end of a phase."""
        started = time.perf_counter()
        with self.method.at_work("probe"):
            readings = readings_at_end(
                self.experiment,
                self.stream,
                self.method,
                phase=self.place.phase,
                step=self.place.step,
                upstream=self.upstream,
            )
        self.evaluator.note(readings, seconds=time.perf_counter() - started)

    def _set_rate(self) -> None:
        """Set the learning rate of the phase; nothing happens if all phases have the same."""
        learner = as_learner(self.method.method)
        if not self.experiment.by_phase or learner is None:
            return
        with self.method.at_work():
            learner.optimizer_spec = replace(learner.optimizer_spec, lr=self.rate)
            # An optimiser whose state is kept between tasks is not rebuilt.
            for group in learner.optimizer.param_groups:
                group["lr"] = self.rate

    @property
    def rate(self) -> float:
        """The learning rate of the phase."""
        rate = self.experiment.of_phase(min(self.place.phase, len(self.infos) - 1)).lr
        return self.experiment.optimizer.lr if rate is None else rate

    # Results ------------------------------------------------------------------------------------

    def finished(self) -> Run:
        """The run at its end; a strict one has done nothing that it must not, since it began."""
        self.ledger.check(all_of_it=True)
        parameters = sum(weight.numel() for weight in self.method.predictor().parameters())
        account = self.meter.account(parameters)
        watched_run = self.evaluator.run(
            description=self.experiment.as_json(), train_seconds=self.meter.train_seconds
        )
        card = make_card(self.scenario, self.ledger, account) if self.ledger.whole else None
        return replace(watched_run, planned=self.experiment, account=account, card=card)

    def failed(self, error: BaseException) -> Run:
        """The run as far as it came before an error."""
        task = self.tasks[-1]
        step = self.evaluator.raised_at or self.place.step
        with suppress(Exception):
            # What evaluators have under way was measured too; why one of them failed matters less.
            self.evaluator.settle()
        failure = failure_of(error, step=step, task=task)
        if isinstance(error, NonFinite):
            hint = error.hint or f"try a learning rate smaller than {self.rate}"
            where = f"at step {step} while learning task {task + 1}"
            failure = replace(failure, kind=FailureKind.DIVERGED, reason=f"the {error.event} {where}: {hint}")
        return Run(
            planned=self.experiment,
            failure=failure,
            phases=dict(self.evaluator.learned),
            updates=self.place.step,
            evaluations=self.evaluator.evaluations,
            seconds=Seconds(self.meter.train_seconds, self.evaluator.seconds),
            account=self.meter.account(self.parameters),
            precision=self.evaluator.precision_record,
            parallel=self.evaluator.parallel_record,
            tables=self.evaluator.tables(),
        )

    # State ----------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """The whole state, as tensors and plain values."""
        return {
            "format": CHECKPOINT_FORMAT,
            "digest": self.experiment.digest,
            "place": self.place.state_dict(),
            "meter": self.meter.state_dict(),
            "noise": global_randomness(),
            "method": self.method.state_dict(),
            "evaluator": self.evaluator.state_dict(),
            "ledger": self.ledger.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a state, to the same bits."""
        self.place.load_state_dict(state["place"])
        self.meter.load_state_dict(state["meter"])
        self.method.load_state_dict(state["method"])
        self.evaluator.load_state_dict(state["evaluator"])
        # What the run has read already is read again unrecorded.
        self.evaluator.gather_again(self.stream.device)
        self.ledger.load_state_dict(state["ledger"])
        set_global_randomness(state["noise"])
