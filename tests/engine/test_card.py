"""The protocol card: what was read, kept and known is measured, and a method that cheats is caught."""

import ctypes
import functools
import io
import json
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from engram.core.errors import InputError
from engram.core.files import read_json, write_json
from engram.core.folder import CHECKPOINT, RESULT, finite
from engram.core.trace import Trace
from engram.core.values import Batch, TaskInfo
from engram.datasets import load
from engram.datasets.accounting import Forbidden, Ledger, watched
from engram.datasets.stream import Stream
from engram.engine.card import LaterStatistics, later_through_normalisation
from engram.engine.checkpoint import read_checkpoint, save_checkpoint, write_checkpoint
from engram.engine.execute import execute
from engram.engine.failures import RunFailed
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.observers import Step
from engram.engine.recipe import experiment
from engram.engine.retained import Retained, retained, shapes_of
from engram.engine.where import Where
from engram.methods import METHODS
from engram.methods.base import Learner
from engram.models import ModelSpec, build
from engram.record.card import Card, ForbiddenRead, Verdict, growth
from engram.record.experiment import EvaluationSpec, Experiment
from engram.record.failure import FailureKind
from engram.record.run import Run
from engram.record.seal import sealed
from engram.results.card import Line, constraint_lines, fact_lines
from engram.scenarios import DomainSetting, joint, online, permuted, prefix, split
from engram.scenarios.preparation import UNIT_RANGE
from engram.scenarios.values import ClassSetting
from engram.testing import sample_experiment, settings_of

DIGITS = split("digits", setting="class")
# As a plugin may open them when it is imported, before a run could record it.
OPEN = Stream(DIGITS)
WHOLE = load("digits")
LAST_TESTS = OPEN.test(4)
RARELY = EvaluationSpec(every=10_000, subset=20)
STRICT = Where(out=None, strict=True)


def plan(method: str, scenario: Any = DIGITS, **changes: Any) -> Experiment:
    return Experiment(scenario, method, **{"batch_size": 32, "evaluation": RARELY, **changes})


def card_of(method: str, scenario: Any = DIGITS, **changes: Any) -> Card:
    card = run(plan(method, scenario, **changes)).card
    assert card is not None
    return card


def line(card: Card, name: str) -> Line:
    """What is shown of a fact."""
    return next(line for line in fact_lines(card) if line.name == name)


def reason(card: Card, name: str) -> str:
    """What is shown of a constraint."""
    return next(line.figure for line in constraint_lines(card) if line.name == name)


def answers(card: Card, *names: str) -> list[str]:
    return [line(card, name).answer for name in names]


def verdicts(card: Card) -> list[Verdict]:
    return [constraint.verdict for constraint in card.constraints]


# Methods that cheat -------------------------------------------------------------------------------


@final
@dataclass(kw_only=True, eq=False)
class ReadsTests(Learner):
    def after_step(self, batch: Batch) -> None:
        OPEN.test(2).rows(torch.arange(3))


@final
@dataclass(kw_only=True, eq=False)
class ReadsLater(Learner):
    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        if task.index < 4:
            next(OPEN.phase(task.index + 1).in_order(8))


@final
@dataclass(kw_only=True, eq=False)
class ReadsEarlier(Learner):
    def end_task(self, batches: Iterable[Batch]) -> None:
        assert self.task is not None
        if self.task.index > 0:
            for _ in OPEN.phase(0).batches(torch.arange(100), 50):
                pass


@final
@dataclass(kw_only=True, eq=False)
class AsksIdentity(Learner):
    def rehearse(self, batch: Batch) -> Batch:
        assert self.task is not None
        _ = self.task.identity
        return batch


@final
class _Routes(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def route(self, task: int) -> nn.Module:
        return self.network

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(x)
        return scores


@final
@dataclass(kw_only=True, eq=False)
class AnswersByTask(Learner):
    def predictor(self) -> nn.Module:
        return _Routes(self.network)


@final
@dataclass(kw_only=True, eq=False)
class OpensEverything(Learner):
    def setup(self) -> None:
        load("digits")


@final
@dataclass(kw_only=True, eq=False)
class HoldsEverything(Learner):
    def rehearse(self, batch: Batch) -> Batch:
        _ = WHOLE.test
        return batch


@final
@dataclass(kw_only=True, eq=False)
class PreparesTests(Learner):
    def rehearse(self, batch: Batch) -> Batch:
        LAST_TESTS.prepared(torch.arange(2))
        return batch


@final
@dataclass(kw_only=True, eq=False)
class ReadsLabels(Learner):
    def rehearse(self, batch: Batch) -> Batch:
        _ = LAST_TESTS.y
        return batch


@final
@dataclass(kw_only=True, eq=False)
class Denies(Learner):
    """Keeps all samples, and says that it does not."""

    def setup(self) -> None:
        self.kept: list[Tensor] = []

    def after_step(self, batch: Batch) -> None:
        self.kept.append(batch.x)

    def kept_bytes(self) -> int:
        return 0


DIGITS_OPENED = ForbiddenRead("data set", dataset="digits")
CHEATS: dict[str, tuple[type[Learner], str, ForbiddenRead, str]] = {
    "test-reads-tests": (ReadsTests, "test data", ForbiddenRead("test", (2,)), "test data of task 3"),
    "test-reads-later": (
        ReadsLater,
        "later data",
        ForbiddenRead("train", (1,), "later"),
        "training data of task 2 before it began",
    ),
    "test-reads-earlier": (
        ReadsEarlier,
        "earlier data",
        ForbiddenRead("train", (0,), "earlier"),
        "training data of task 1 after it had ended",
    ),
    "test-asks-identity": (
        AsksIdentity,
        "identity in training",
        ForbiddenRead("task identity", setting="class"),
        "task identity, which the class setting hides",
    ),
    "test-answers-by-task": (
        AnswersByTask,
        "identity at test",
        ForbiddenRead("task identity at test time", setting="class"),
        "task identity at test time, which the class setting hides",
    ),
    "test-opens-everything": (OpensEverything, "test data", DIGITS_OPENED, "the whole data set digits"),
    "test-holds-everything": (HoldsEverything, "test data", DIGITS_OPENED, "the whole data set digits"),
    "test-prepares-tests": (PreparesTests, "test data", ForbiddenRead("test", (4,)), "test data of task 5"),
    "test-reads-labels": (ReadsLabels, "test data", ForbiddenRead("test", (4,)), "test data of task 5"),
}


@pytest.fixture(autouse=True)
def cheats() -> Iterator[None]:
    """Registered only while a test runs, so that other tests do not see them."""
    for name, (method, *_) in CHEATS.items():
        METHODS.add(name, method)
    METHODS.add("test-denies", Denies)
    yield
    for name in (*CHEATS, "test-denies"):
        del METHODS._entries[name]


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_recorded(name: str) -> None:
    _, question, read, what = CHEATS[name]
    cheating, fair = card_of(name), card_of("finetune")
    assert answers(cheating, question) == ["yes"]
    assert answers(fair, question) == ["no"]
    assert read in cheating.forbidden
    assert read.describe() == what
    assert not fair.forbidden


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_stopped(name: str) -> None:
    with pytest.raises(InputError, match="may read only what the stream hands to it") as stopped:
        run(plan(name), STRICT)
    assert CHEATS[name][3] in str(stopped.value)
    if isinstance(stopped.value, RunFailed):
        assert stopped.value.failure.kind is FailureKind.BAD_INPUT
        assert isinstance(stopped.value.__cause__, Forbidden)
    else:
        # It read data while it was built: the run did not start.
        assert isinstance(stopped.value, Forbidden)


def test_cheats_break_constraints() -> None:
    assert card_of("test-reads-later").constraint("causality").verdict == "broken"
    assert card_of("test-reads-earlier").constraint("low memory footprint").verdict == "broken"
    opens = card_of("test-opens-everything")
    assert reason(opens, "causality") == "the whole data set digits"
    # Test samples of the third task, read while the first was learned.
    assert "of later tasks" in reason(card_of("test-reads-tests"), "causality")


@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith("test-")])
@pytest.mark.slow
def test_built_in_methods_read_only_what_they_may(method: str) -> None:
    for setting in settings_of(method):
        outcome = run(sample_experiment(method, setting), STRICT)
        assert outcome.card is not None
        assert not outcome.card.forbidden


def test_identity_is_watched_again_after_a_resume() -> None:
    *_, step = islice(run_steps(plan("test-asks-identity", epochs=2)), 3)
    file = io.BytesIO()
    torch.save(snapshot(step), file)
    file.seek(0)
    steps = run_steps(plan("test-asks-identity", epochs=2), STRICT, resume=torch.load(file))
    with pytest.raises(RunFailed) as stopped:
        next(steps)
    assert isinstance(stopped.value.__cause__, Forbidden)


# Counting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"epochs": 1}, "1"), ({"epochs": 3}, "3"), ({"scenario": online(DIGITS), "epochs": 3}, "1")],
    ids=["one", "three", "online"],
)
def test_passes(change: dict[str, Any], expected: str) -> None:
    assert answers(card_of("finetune", **change), "passes") == [expected]


def test_the_pass_at_the_end_of_a_task_counts_where_it_is_used() -> None:
    passes = line(card_of("ewc", epochs=2), "passes")
    assert (passes.answer, passes.figure) == ("3", "2 in updates, 1 when a task ends")


def test_a_batch_that_is_not_learned_is_not_counted() -> None:
    card = card_of("finetune", prefix(DIGITS, 2), updates=5)
    [read] = [read for read in card.reads if read.reader == "training"]
    assert read.samples == 2 * 5 * 32


def test_offline_learns_all_tasks_together() -> None:
    card = card_of("offline", joint(DIGITS), epochs=3)
    assert answers(card, "passes", "later data", "earlier data") == ["3", "yes", "yes"]
    assert verdicts(card) == ["broken", "broken", "unknown"]
    assert reason(card, "causality") == "5 tasks are learned together"


def test_hidden_boundaries_hand_out_the_whole_stream_at_its_end() -> None:
    scenario = split("digits", setting=ClassSetting(boundaries=False))
    card = card_of("gdumb", scenario, settings={"memory": 20, "epochs": 1})
    assert answers(card, "boundaries") == ["no"]
    assert not card.forbidden


def test_a_resumed_run_has_the_same_card() -> None:
    planned = plan("ewc", epochs=2)
    whole = run(planned).card
    *_, step = islice(run_steps(planned), 31)
    file = io.BytesIO()
    torch.save(snapshot(step), file)
    file.seek(0)
    resumed = _end(run_steps(planned, resume=torch.load(file, weights_only=True))).card
    assert whole is not None
    assert resumed is not None
    assert [fact for fact in whole.facts if fact.name != "update time"] == [
        fact for fact in resumed.facts if fact.name != "update time"
    ]
    assert [fact for fact in fact_lines(whole) if fact.name != "update time"] == [
        fact for fact in fact_lines(resumed) if fact.name != "update time"
    ]
    assert verdicts(whole) == verdicts(resumed)
    assert set(whole.reads) >= {read for read in resumed.reads if read.reader != "evaluation"}


def test_counting_changes_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def learned(planned: Experiment) -> tuple[str, Trace]:
        *_, last = run_steps(planned)
        assert last.method is not None
        return weights_digest(last.method), run(planned).trace

    experiments = [sample_experiment(name, settings_of(name)[0]) for name in ("er", "ewc", "lwf")]
    counted = [learned(planned) for planned in experiments]
    ignored: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    monkeypatch.setattr("engram.datasets.stream.enter", ignored)
    monkeypatch.setattr(Ledger, "note_identity", ignored)
    for planned, (weights, trace) in zip(experiments, counted, strict=True):
        alone_weights, alone_trace = learned(planned)
        assert alone_weights == weights
        assert alone_trace == trace


# What is kept and what it costs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "settings", "bytes_grow", "update_grows", "memory"),
    [
        ("finetune", {}, "no", "no", "held"),
        ("ewc", {}, "no", "no", "held"),
        ("er", {"memory": 50}, "no", "no", "broken"),
        ("gem", {"memory": 50}, "yes", "yes", "broken"),
        ("multitask", {}, "yes", "no", "broken"),
        ("imm-mean", {}, "yes", "no", "held"),
    ],
)
def test_what_grows(
    method: str, settings: dict[str, Any], bytes_grow: str, update_grows: str, memory: str
) -> None:
    card = card_of(method, settings=settings)
    assert answers(card, "bytes grow", "update grows") == [bytes_grow, update_grows]
    constant = "held" if (bytes_grow, update_grows) == ("no", "no") else "broken"
    assert verdicts(card) == [memory, "held", constant]


def test_one_network_per_task_grows() -> None:
    card = card_of("independent", split("digits", setting="task"))
    assert answers(card, "bytes grow", "identity in training", "identity at test") == ["yes"] * 3
    assert not card.forbidden


def test_samples_are_recognised_among_attributes() -> None:
    outcome = run(plan("er", settings={"memory": 40}))
    assert outcome.account is not None
    assert outcome.account.kept_samples == (40,) * 5
    assert len(outcome.account.update_seconds) == 5
    # An anchor of the first layer has the shape of many vectors, but no labels with it.
    *_, last = run_steps(plan("ewc"))
    assert last.method is not None
    assert retained(last.method, (64,)).samples == 0


def _on_the_network(method: Any) -> list[Any]:
    kept: list[Any] = []
    method.network.__dict__["kept"] = kept
    return kept


class _Silent:
    """Says that it has no state."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def append(self, x: Tensor) -> None:
        self.kept.append(x)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _buffer(method: Any, batch: Batch) -> None:
    place = f"memory{len(list(method.network.buffers()))}"
    method.network.register_buffer(place, batch.x.flatten(1))


def _closure(method: Any, batch: Batch) -> None:
    before = getattr(method, "recall", None)
    method.recall = lambda: (before, batch.x)


def _weight(method: Any) -> Tensor:
    weight: Tensor = next(method.network.parameters())
    return weight


def _attribute(weight: Tensor, batch: Batch) -> None:
    vars(weight).setdefault("kept", []).append(batch.x)


def _hook(weight: Tensor, batch: Batch) -> None:
    weight.register_hook(lambda _, kept=batch: None)


def _late_hook(weight: Tensor, batch: Batch) -> None:
    weight.register_post_accumulate_grad_hook(lambda _, kept=batch: None)


HIDING_PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Batch], Any]]] = {
    "batches": (lambda method: [], lambda kept, batch: kept.append(batch)),
    "pairs in a deque": (lambda method: deque(), lambda kept, batch: kept.append((batch.x, batch.y))),
    "arrays": (lambda method: [], lambda kept, batch: kept.append(batch.x.numpy().copy())),
    "flat": (lambda method: [], lambda kept, batch: kept.append(batch.x.flatten(1))),
    "row by row": (lambda method: [], lambda kept, batch: kept.extend(batch.x.flatten(1).unbind())),
    "images one by one": (lambda method: {}, lambda kept, batch: kept.update(enumerate(batch.x, len(kept)))),
    "lists of numbers": (lambda method: [], lambda kept, batch: kept.append(batch.x.tolist())),
    "an attribute of the network": (_on_the_network, lambda kept, batch: kept.append(batch.x)),
    "a store that hides its state": (lambda method: _Silent(), lambda kept, batch: kept.append(batch.x)),
    "an attribute of a weight": (_weight, _attribute),
    "hooks of a weight": (_weight, _hook),
    "later hooks of a weight": (_weight, _late_hook),
    "buffers of the network": (lambda method: method, _buffer),
    "a closure": (lambda method: method, _closure),
    "the optimiser": (
        lambda method: method.optimizer.state,
        lambda kept, batch: kept.update({len(kept): {"x": batch.x}}),
    ),
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_kept_samples_are_counted(place: str) -> None:
    """Every sample counts with its bytes, wherever it is stored and whatever the method declares."""

    @final
    @dataclass(kw_only=True, eq=False)
    class Keeps(Learner):
        def setup(self) -> None:
            self.kept = HIDING_PLACES[place][0](self)

        def after_step(self, batch: Batch) -> None:
            HIDING_PLACES[place][1](self.kept, batch)

        def kept_bytes(self) -> int:
            return 0

    learner = Keeps(network=build(ModelSpec(hidden=(32,)), shape=(1, 8, 8), n_units=10, seed=0))
    at_first = shapes_of(learner.network)
    assert retained(learner, (1, 8, 8), network=at_first) == Retained(0, 0)
    for _ in range(2):
        x = torch.rand(32, 1, 8, 8)
        learner.observe(Batch(x, torch.zeros(32, dtype=torch.int64), heads=(tuple(range(10)),)))
    held = retained(learner, (1, 8, 8), network=at_first)
    assert held.samples == 64
    assert held.bytes >= 64 * 64 * 4


def test_what_is_measured_overrides_what_a_method_declares() -> None:
    card = card_of("test-denies")
    kept = sum(len(OPEN.train(task)) for task in range(5)) * 64 * 4
    assert card.fact("kept bytes").answer == kept
    assert answers(card, "kept bytes") == [f"{kept:,}"]
    assert verdicts(card) == ["broken", "held", "broken"]


def test_weights_features_and_old_networks_are_not_samples() -> None:
    """Even if layers are as wide as inputs and have as many rows as a batch."""
    for hidden in ((64,), (64, 64), (32,)):
        for method in ("ewc", "si", "imm-mode", "lwf", "packnet"):
            network = build(ModelSpec(hidden=hidden), shape=(1, 8, 8), n_units=10, seed=0)
            learner = METHODS[method](network=network)
            learner.begin_task(TaskInfo(0, 0, (0, 1), samples=32, steps=1, epochs=1, batch_size=32))
            batch = Batch(torch.rand(32, 1, 8, 8), torch.arange(32) % 2, heads=(tuple(range(10)),))
            learner.observe(batch)
            learner.end_task([batch])
            assert retained(learner, (1, 8, 8)).samples == 0
            assert retained(learner, (1, 8, 8)).bytes <= learner.kept_bytes()


@given(st.lists(st.integers(0, 100), min_size=3, max_size=9))
def test_what_never_rises_does_not_grow(values: list[int]) -> None:
    assert growth(sorted(values, reverse=True)) == 0


@given(st.integers(1, 100), st.integers(3, 9))
def test_what_rises_with_every_task_grows(step: int, n: int) -> None:
    share = growth([step * (task + 1) for task in range(n)])
    assert share is not None
    assert share > 0.05


# What was known -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "known"),
    [
        (ClassSetting(classes_known=True), "yes"),
        (ClassSetting(classes_known=False), "no"),
        ("task", "yes"),
        (DomainSetting(), "no"),
    ],
)
def test_the_number_of_classes(setting: Any, known: str) -> None:
    assert answers(card_of("finetune", split("digits", setting=setting)), "classes") == [known]


@pytest.mark.parametrize("visible", [True, False])
def test_boundaries(visible: bool) -> None:
    card = card_of("finetune", split("digits", setting=DomainSetting(boundaries=visible)))
    assert card.fact("boundaries").answer is visible
    assert card.fact("boundaries").measured == {"told": 5 if visible else 1, "phases": 5}
    assert line(card, "boundaries").figure.endswith(f"told of {5 if visible else 1} of 5 task beginnings")


def test_normalisation() -> None:
    assert later_through_normalisation(split("mnist", setting="class")) == LaterStatistics("mnist", 8)
    assert not later_through_normalisation(split("mnist", setting="class", transforms=(UNIT_RANGE,)))
    assert not later_through_normalisation(joint(split("mnist", setting="class")))
    assert not later_through_normalisation(permuted("mnist", 3, setting="domain", seed=0))
    # SVHN is normalised with the statistics of CIFAR-10, which is not in this stream.
    assert not later_through_normalisation(split("svhn", setting="class"))


@settings(max_examples=10, deadline=None)
@given(
    n_tasks=st.integers(2, 5),
    epochs=st.integers(1, 2),
    batch_size=st.integers(20, 90),
    visible=st.booleans(),
)
def test_fine_tuning_breaks_no_constraint(n_tasks: int, epochs: int, batch_size: int, visible: bool) -> None:
    """On tasks that come one after the other, scaled without statistics."""
    scenario = prefix(split("digits", setting=ClassSetting(boundaries=visible)), n_tasks)
    card = card_of("finetune", scenario, epochs=epochs, batch_size=batch_size)
    assert verdicts(card) == ["held", "held", "held"]
    assert answers(card, "passes") == [str(epochs)]
    assert not card.forbidden


# In a folder --------------------------------------------------------------------------------------


def test_the_card_is_kept_with_the_run(tmp_path: Path) -> None:
    planned = experiment("split-digits", "er", epochs=1, evaluation={"every": 1000})
    where = Where(out=tmp_path, strict=True)
    finished = execute(planned, where)
    assert finished.card is not None
    assert answers(finished.card, "passes") == ["2"]
    assert answers(Card.of_json(read_json(tmp_path / planned.id / RESULT)["card"]), "passes") == ["2"]
    assert finite(execute(planned, where).result()) == finite(finished.result())


def test_strict_asks_for_a_card(tmp_path: Path) -> None:
    planned = plan("finetune")
    execute(planned, Where(out=tmp_path))
    place = tmp_path / planned.id / RESULT
    write_json(place, sealed({name: value for name, value in read_json(place).items() if name != "card"}))
    with pytest.raises(InputError, match="before cards were recorded: run it again with --again"):
        execute(planned, Where(out=tmp_path, strict=True))


def test_strict_refuses_what_was_recorded(tmp_path: Path) -> None:
    execute(plan("test-reads-tests"), Where(out=tmp_path))
    with pytest.raises(Forbidden, match="test data of task 3"):
        execute(plan("test-reads-tests"), Where(out=tmp_path, strict=True))


def test_a_checkpoint_without_an_account_leaves_no_card(tmp_path: Path) -> None:
    planned = plan("finetune", epochs=3)
    *_, step = islice(run_steps(planned), 20)
    folder = tmp_path / planned.id
    folder.mkdir()
    save_checkpoint(folder / CHECKPOINT, step)
    state = read_checkpoint(folder / CHECKPOINT)
    state["ledger"]["whole"] = False
    write_checkpoint(folder / CHECKPOINT, state)
    with pytest.raises(InputError, match="before cards were recorded"):
        execute(planned, Where(out=tmp_path, strict=True))
    assert execute(planned, Where(out=tmp_path)).card is None
    assert "card" not in read_json(folder / RESULT)


def test_a_damaged_card_raises_one_line() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Card.of_json({"lines": [{"strange": 1}], "constraints": [], "reads": [], "forbidden": {}})


def test_a_measured_card_survives_json() -> None:
    card = card_of("test-reads-later")
    assert Card.of_json(json.loads(json.dumps(card.as_json(), allow_nan=False))) == card


def snapshot(step: Step) -> dict[str, Any]:
    assert step.snapshot is not None
    return step.snapshot()


def _end(steps: Any) -> Run:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            finished: Run = end.value
            return finished


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        (torch.sparse_coo, ("values", "indices")),
        (torch.sparse_csr, ("values", "crow_indices", "col_indices")),
        (torch.sparse_csc, ("values", "ccol_indices", "row_indices")),
    ],
)
def test_a_sparse_tensor_counts_what_it_stores(layout: torch.layout, parts: tuple[str, ...]) -> None:
    class Keeper:
        kept: torch.Tensor

    whole = torch.zeros(1000, 1000)
    whole[1, 3] = 1.0
    keeper = Keeper()
    keeper.kept = whole.to_sparse(layout=layout).clone()
    stored = sum(getattr(keeper.kept, part)().untyped_storage().nbytes() for part in parts)
    assert stored < 10_000 < whole.untyped_storage().nbytes()
    assert retained(keeper, (1, 8, 8)) == Retained(stored, 0)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_a_layout_that_shows_no_memory_counts_its_elements() -> None:
    class Keeper:
        kept: torch.Tensor

    keeper = Keeper()
    keeper.kept = torch.zeros(10, 30).to_mkldnn()
    with pytest.raises(NotImplementedError):
        keeper.kept.untyped_storage()
    assert retained(keeper, (1, 8, 8)) == Retained(1200, 0)


def cached_by_a_function() -> object:
    @functools.lru_cache(maxsize=4)
    def remember(_: int) -> torch.Tensor:
        return torch.rand(50, 1, 8, 8)

    remember(1)
    return remember


def in_a_module() -> object:
    module = ModuleType("hidden")
    vars(module)["x"] = torch.rand(50, 1, 8, 8)
    return module


def in_an_array_of_c() -> object:
    return ctypes.create_string_buffer(torch.rand(50, 64).numpy().tobytes())


def in_a_structure_of_c() -> object:
    class Structure(ctypes.Structure):
        _fields_ = (("text", ctypes.c_char * (50 * 64 * 4)),)

    return Structure(torch.rand(50, 64).numpy().tobytes())


def in_a_gradient() -> object:
    small = torch.zeros(()).expand(50, 1, 8, 8).requires_grad_()
    small.grad = torch.rand(50, 1, 8, 8)
    return small


def in_the_attributes_of_a_graph() -> object:
    result = torch.ones((), requires_grad=True) * 1
    assert result.grad_fn is not None
    result.grad_fn.metadata["x"] = torch.rand(50, 1, 8, 8)  # type: ignore[index]
    return result


def in_an_exception() -> object:
    x = torch.rand(50, 1, 8, 8)
    try:
        raise ValueError(len(x))
    except ValueError as error:
        return error


def in_the_cause_of_an_exception() -> object:
    error = ValueError()
    error.__cause__ = error.__context__ = KeyError(torch.rand(50, 1, 8, 8))
    return error


def in_names() -> object:
    rows = torch.rand(50, 64).numpy().view(np.uint8).reshape(50, -1)
    return SimpleNamespace(**{row.tobytes().hex(): 1 for row in rows})


def in_a_task() -> object:
    task = TaskInfo(0, None, (), samples=1, steps=1, epochs=1, batch_size=1)
    return replace(watched(task), classes=(None, torch.rand(50, 1, 8, 8)))  # type: ignore[arg-type]


def numbers() -> list[float]:
    values: list[float] = torch.rand(50 * 64).tolist()
    return values


def in_short_bytes() -> object:
    return {row.tobytes(): 1 for row in torch.rand(50 * 8, 8).numpy()}


PLACES: dict[str, tuple[Callable[[], object], int]] = {
    "cache of a function": (cached_by_a_function, 50),
    "module that was not imported": (in_a_module, 50),
    "storage": (lambda: torch.rand(50, 64).untyped_storage(), 0),
    "text in memory": (lambda: io.StringIO(torch.rand(50, 64).numpy().tobytes().hex()), 0),
    "bytes in memory": (lambda: io.BytesIO(torch.rand(50, 64).numpy().tobytes()), 0),
    "array of C": (in_an_array_of_c, 0),
    "structure of C": (in_a_structure_of_c, 0),
    # The tensor has the shape of samples as well.
    "gradient": (in_a_gradient, 100),
    "attributes of a graph": (in_the_attributes_of_a_graph, 50),
    "exception": (in_an_exception, 50),
    "arguments of an exception": (lambda: ValueError(torch.rand(50, 1, 8, 8)), 50),
    "cause of an exception": (in_the_cause_of_an_exception, 50),
    "names of attributes": (in_names, 0),
    "short byte strings": (in_short_bytes, 0),
    "numbers in a dictionary": (lambda: dict(enumerate(numbers())), 0),
    "numbers in a deque": (lambda: deque(numbers()), 0),
    "integers in a deque": (lambda: deque(int(16 * number) for number in numbers()), 0),
    "numbers after something else": (lambda: [None, *numbers()], 0),
    "pairs in a set": (lambda: frozenset(enumerate(numbers())), 0),
    "pairs in a dictionary": (lambda: {n: (n, number) for n, number in enumerate(numbers())}, 0),
    "task": (in_a_task, 50),
}


@pytest.mark.parametrize("name", PLACES)
def test_bytes_are_counted_wherever_they_are(name: str) -> None:
    class Keeper:
        kept: object

    make, samples = PLACES[name]
    keeper = Keeper()
    keeper.kept = make()
    held = retained(keeper, (1, 8, 8))
    assert 50 * 64 * 4 <= held.bytes <= 2 * 50 * 64 * 4 and held.samples == samples


def test_few_or_different_numbers_are_not_data() -> None:
    class Keeper:
        kept: object

    keeper, ledger = Keeper(), Ledger(DIGITS, method="mine", strict=True)
    # Settings, classes, indices, integers that no array holds; and a task, whose identity is not read.
    task = watched(TaskInfo(0, 1, tuple(range(100)), samples=1, steps=1, epochs=1, batch_size=1))
    keeper.kept = [deque([0.5] * 15), deque(range(1000)), deque([1 << 200] * 20), {1: (0.5, 2)}, task]
    with ledger.reading("method"):
        held = retained(keeper, (1, 8, 8))
    assert held == Retained(0, 0)


def test_what_hooks_of_all_modules_hold_is_counted() -> None:
    x = torch.rand(50, 1, 8, 8)
    handle = nn.modules.module.register_module_forward_hook(lambda *_, kept=x: None)
    held = retained(object(), (1, 8, 8))
    handle.remove()
    assert held == Retained(50 * 64 * 4, 50)
    assert retained(object(), (1, 8, 8)) == Retained(0, 0)


def test_the_cache_of_a_method_is_counted() -> None:
    class Keeper:
        @functools.cache  # noqa: B019
        def images(self) -> torch.Tensor:
            return torch.rand(50, 1, 8, 8)

    keeper = Keeper()
    assert retained(keeper, (1, 8, 8)) == Retained(0, 0)
    keeper.images()
    assert retained(keeper, (1, 8, 8)) == Retained(50 * 64 * 4, 50)


@pytest.mark.parametrize(
    ("loss", "samples"),
    [
        ("self.network(batch.x)", 0),
        ("x.sum()", 50),
        ("(lambda: x)", 50),
        ("shelf.x", 50),
    ],
)
def test_an_attribute_with_the_name_of_a_global_is_not_that_global(loss: str, samples: int) -> None:
    """As in a script that has its data in `x`: a method that only uses `batch.x` does not hold them."""
    shelf = ModuleType("shelf")
    vars(shelf)["x"] = torch.rand(50, 1, 8, 8)
    script: dict[str, Any] = {"__name__": "script", "network": nn.Linear(64, 10), "x": vars(shelf)["x"]}
    if "shelf" in loss:
        script |= {"shelf": shelf, "x": 0}
    exec(f"class Mine:\n    def loss(self, batch):\n        return {loss}", script)
    assert retained(script["Mine"](), (1, 8, 8)) == Retained(samples * 64 * 4, samples)


@pytest.mark.parametrize("kind", [io.BytesIO, io.StringIO])
def test_closed_files_hold_nothing(kind: type[io.BytesIO | io.StringIO]) -> None:
    class Keeper:
        kept: object

    keeper = Keeper()
    keeper.kept = file = kind()
    file.close()
    assert retained(keeper, (1, 8, 8)) == Retained(0, 0)


def _cyclic() -> list[object]:
    itself: list[object] = []
    itself.append(itself)
    return itself


def _released() -> memoryview:
    view = memoryview(bytes(100))
    view.release()
    return view


def _gone() -> object:
    return weakref.proxy(_Silent())


def _checkpointed() -> Tensor:
    layer = nn.Linear(3, 3)
    scores: Tensor = checkpoint(lambda x: layer(x).relu().square(), torch.ones(2, 3), use_reentrant=False)
    return scores


class _Raises:
    """Its attributes raise something else than AttributeError where there are none."""

    __slots__ = ("kept", "later")

    def __init__(self) -> None:
        self.kept = torch.zeros(100)

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


class _Odd:
    """One of its attributes has no text as its name."""

    def __init__(self) -> None:
        names: dict[Any, object] = vars(self)
        names[1] = torch.zeros(100)


def _numbers_and_weights() -> list[object]:
    return [0.5, nn.Parameter(torch.zeros(100)), 1.5]


ODD: dict[str, tuple[Callable[[], object], int]] = {
    "a number and a parameter": (_numbers_and_weights, 400),
    "numbers and views": (lambda: [0.0, *torch.zeros(100).unbind()], 400),
    "a list in itself": (_cyclic, 0),
    "a released view": (_released, 0),
    "a weak proxy of nothing": (_gone, 0),
    "attributes that raise": (_Raises, 400),
    "a number as a name": (_Odd, 400),
    "a weight without a size": (nn.UninitializedParameter, 0),
    "nested tensors": (lambda: torch.nested.nested_tensor([torch.zeros(30), torch.zeros(70)]), 400),
    "a checkpointed graph": (_checkpointed, 24),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ODD)
def test_nothing_that_a_method_holds_stops_the_counting(kind: str) -> None:
    make, size = ODD[kind]
    held = retained(SimpleNamespace(kept=make(), beside=torch.zeros(3)), (1, 8, 8), few=11)
    assert held.bytes >= size + 12 and held.samples == 0
    assert held.bytes <= size + 12 or kind == "a checkpointed graph"
