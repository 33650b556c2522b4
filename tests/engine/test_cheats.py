"""Cheats are seen, each of them; what is allowed is not accused."""

import io
import string
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, final

import pytest
import torch
from tests.engine.cheats import CHEATS, KEPT, MOVED, OPEN, QUESTIONS, SCENARIO
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.core.values import Batch
from engram.datasets.accounting import Forbidden, Ledger
from engram.datasets.outside import watch_outside
from engram.engine.budget import predicted_bytes
from engram.engine.execute import execute
from engram.engine.failures import RunFailed
from engram.engine.loop import run, run_steps
from engram.engine.observers import Step
from engram.engine.where import Where
from engram.methods import METHODS
from engram.methods.base import Learner
from engram.models import ModelSpec
from engram.record.card import Card, ForbiddenRead
from engram.record.experiment import EvaluationSpec, Experiment, TransferSpec
from engram.record.run import Run
from engram.testing import sample_experiment, settings_of

STRICT = Where(out=None, strict=True)
SAMPLE = 64 * 4


def plan(method: str, **changes: Any) -> Experiment:
    usual = {
        "batch_size": 32,
        "updates": 4,
        "model": ModelSpec(hidden=(16,)),
        "evaluation": EvaluationSpec(every=1000, subset=20),
    }
    return Experiment(SCENARIO, method, **{**usual, **changes})


def registered(name: str) -> str:
    return "test-" + "".join(letter if letter.isalnum() else "-" for letter in name)


@pytest.fixture(autouse=True)
def cheats() -> Iterator[None]:
    """Registered only while a test runs; what they hid is thrown away."""
    for name, method in CHEATS.items():
        METHODS.add(registered(name), method)
    yield
    for name in CHEATS:
        del METHODS._entries[registered(name)]
    for hidden in (KEPT, MOVED, QUESTIONS):
        hidden.clear()
    vars(string).pop("shelf", None)


@pytest.fixture(scope="module")
def fair() -> Run:
    return run(plan("finetune"))


def card_of(outcome: Run) -> Card:
    assert outcome.card is not None
    return outcome.card


def forbids(*acts: ForbiddenRead) -> Callable[[Run, Run], bool]:
    """Whether the card has these, apart from the names of files."""
    wanted = {replace(act, note="") for act in acts}
    return lambda seen, _: wanted <= {replace(act, note="") for act in card_of(seen).forbidden}


def keeps(samples: int) -> Callable[[Run, Run], bool]:
    """Whether at least the bytes of so many samples are counted, and that they become more."""

    def counted(seen: Run, fair: Run) -> bool:
        assert seen.account is not None
        kept = seen.account.kept_bytes
        grows = card_of(seen).constraint("constant update complexity").verdict == "broken"
        return kept[-1] >= samples * SAMPLE and (grows or len(set(kept)) == 1) and fair_keeps_nothing(fair)

    return counted


def fair_keeps_nothing(fair: Run) -> bool:
    assert fair.account is not None
    return not any(fair.account.kept_bytes) and not card_of(fair).forbidden


def works(name: str, times: float) -> Callable[[Run, Run], bool]:
    """Whether the card says that so many times the work was done."""

    def counted(seen: Run, fair: Run) -> bool:
        more, usual = (card_of(outcome).fact(name).answer for outcome in (seen, fair))
        assert more is not None and usual is not None
        return more >= times * usual

    return counted


def no_better(seen: Run, fair: Run) -> bool:
    """The row's place told it .65 for .15 while rows were in the order of tasks."""
    return seen.stored["ACC"] <= fair.stored["ACC"] + 0.1


FILE, PROCESS, THREAD = ForbiddenRead("file"), ForbiddenRead("process"), ForbiddenRead("thread")
OBJECTS, TESTS = ForbiddenRead("objects"), ForbiddenRead("test", (2,))
IDENTITY = ForbiddenRead("task identity", setting="class")
SIGNS: dict[str, Callable[[Run, Run], bool]] = {
    "network buffers": keeps(384),
    "a closure": keeps(384),
    "weights of another module": keeps(384),
    "compressed bytes": keeps(60),
    # All that fits into the state of one parameter after the other.
    "the optimiser's state": keeps(16),
    "an empty view": keeps(384),
    "an autograd graph": keeps(384),
    "a global": keeps(384),
    "an attribute of a module": keeps(384),
    "an attribute moved to a global": keeps(384),
    "a file": forbids(FILE),
    "a file that torch writes": forbids(FILE),
    "a thread": forbids(THREAD),
    "a generator": keeps(384),
    "encoded integers": keeps(383),
    "a process": forbids(PROCESS),
    "tests in kept_bytes": forbids(TESTS),
    "tests in state_dict": forbids(TESTS),
    "a forward that stores what it is asked": forbids(ForbiddenRead("questions")),
    "the evaluator through gc": forbids(OBJECTS),
    "the stream through gc": forbids(OBJECTS),
    "the place of a row": no_better,
    "task.identity": forbids(IDENTITY),
    "object.__getattribute__": forbids(IDENTITY),
    "a growing network": keeps(97),
    "more epochs in end_task": works("backward passes", 4),
    "more steps in observe": works("backward passes", 5),
    "resetting the reader's mark": forbids(ForbiddenRead("account"), TESTS),
    "reseeding": forbids(ForbiddenRead("seed")),
    "changing the labels of the batch": forbids(ForbiddenRead("batch")),
}
STOPPED = [name for name in SIGNS if CHEATS and SIGNS[name].__qualname__.startswith("forbids")]


def ended(steps: Any, *, saved: bool = False) -> Run:
    """The run at its end; with `saved`, its state is taken after every step."""
    while True:
        try:
            step = next(steps)
            if saved:
                step.snapshot()
        except StopIteration as end:
            finished: Run = end.value
            return finished


def test_every_cheat_has_a_sign() -> None:
    assert SIGNS.keys() == CHEATS.keys()
    assert len(SIGNS) >= 28


@pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op`:FutureWarning")
@pytest.mark.parametrize("name", SIGNS)
def test_a_cheat_is_seen(name: str, fair: Run) -> None:
    saved = name == "tests in state_dict"
    cheating = ended(run_steps(plan(registered(name))), saved=saved)
    assert SIGNS[name](cheating, fair)
    assert not SIGNS[name](fair, fair) or SIGNS[name] is no_better


@pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op`:FutureWarning")
@pytest.mark.parametrize("name", STOPPED)
def test_a_strict_run_is_stopped(name: str) -> None:
    with pytest.raises(InputError, match=r"may (read only|only learn from) what the stream") as stopped:
        ended(run_steps(plan(registered(name)), STRICT), saved=True)
    cause = stopped.value.__cause__ if isinstance(stopped.value, RunFailed) else stopped.value
    assert isinstance(cause, Forbidden)


def test_a_method_that_goes_on_is_stopped_all_the_same() -> None:
    @final
    @dataclass(kw_only=True, eq=False)
    class GoesOn(Learner):
        def after_step(self, batch: Batch) -> None:
            with suppress(Exception):
                OPEN.test(2)

    METHODS.add("test-goes-on", GoesOn)
    try:
        with pytest.raises(RunFailed, match="test data of task 3"):
            run(plan("test-goes-on"), STRICT)
    finally:
        del METHODS._entries["test-goes-on"]


def test_what_was_read_before_a_resume_counts_for_a_strict_run() -> None:
    planned = plan(registered("a thread"))
    *_, step = islice(run_steps(planned), 12)
    with pytest.raises(RunFailed, match="started a thread"):
        ended(run_steps(planned, STRICT, resume=reloaded(step)))


def test_a_finished_run_is_refused_by_a_strict_one(tmp_path: Path) -> None:
    planned = plan(registered("a process"))
    execute(planned, Where(out=tmp_path))
    with pytest.raises(Forbidden, match="started the process cat: a method may only learn from"):
        execute(planned, Where(out=tmp_path, strict=True))


def test_a_method_is_watched_while_its_bytes_are_predicted() -> None:
    with pytest.raises(Forbidden, match="test data of task 3"):
        predicted_bytes(plan(registered("tests in kept_bytes")))


def test_a_forward_that_reads_tests_is_seen() -> None:
    class Peeks(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor) -> Tensor:
            _ = OPEN.test(1).y
            scores: Tensor = self.network(x)
            return scores

    @final
    @dataclass(kw_only=True, eq=False)
    class Answers(Learner):
        def predictor(self) -> nn.Module:
            return Peeks(self.network)

    METHODS.add("test-peeks", Answers)
    try:
        assert ForbiddenRead("test", (1,)) in card_of(run(plan("test-peeks"))).forbidden
    finally:
        del METHODS._entries["test-peeks"]


# What is not seen -----------------------------------------------------------------------------------


def test_what_is_written_into_the_weights_is_not_seen(fair: Run) -> None:
    """The page on protocol cards says so: the last digits of weights can hold anything."""

    @final
    @dataclass(kw_only=True, eq=False)
    class InWeights(Learner):
        def after_step(self, batch: Batch) -> None:
            weight = next(self.network.parameters()).data.view(-1)
            values = batch.x.flatten()[: len(weight)]
            weight[: len(values)] += 1e-7 * values

    METHODS.add("test-in-weights", InWeights)
    try:
        seen = run(plan("test-in-weights"))
    finally:
        del METHODS._entries["test-in-weights"]
    assert fair_keeps_nothing(seen)


# What is allowed ------------------------------------------------------------------------------------


@final
@dataclass(kw_only=True, eq=False)
class Means(Learner):
    """One mean image of all data, and one of each class."""

    def setup(self) -> None:
        self.mean, self.seen = torch.zeros(1, 8, 8), 0
        self.means = torch.zeros(6, 1, 8, 8)
        self.by_class: dict[int, Tensor] = {}
        self.counts = torch.zeros(6)

    def after_step(self, batch: Batch) -> None:
        self.seen += len(batch)
        self.mean = self.mean + (batch.x - self.mean).sum(dim=0) / self.seen
        for x, y in zip(batch.x, batch.y.tolist(), strict=True):
            self.counts[y] += 1
            self.means[y] += (x - self.means[y]) / self.counts[y]
            self.by_class[y] = self.means[y].clone()


@final
@dataclass(kw_only=True, eq=False)
class Exemplars(Learner):
    """One sample of each class, as many as there are means."""

    def setup(self) -> None:
        self.kept: dict[int, Tensor] = {}

    def after_step(self, batch: Batch) -> None:
        for x, y in zip(batch.x, batch.y.tolist(), strict=True):
            self.kept.setdefault(y, (2 * x + 1).clone())


@final
@dataclass(kw_only=True, eq=False)
class Statistics(Learner):
    """Four statistics of each class."""

    def setup(self) -> None:
        self.means: dict[int, Tensor] = {}
        self.variances: dict[int, Tensor] = {}
        self.least: dict[int, Tensor] = {}
        self.most: dict[int, Tensor] = {}

    def end_task(self, batches: Iterable[Batch]) -> None:
        data = list(batches)
        x, y = torch.cat([batch.x for batch in data]), torch.cat([batch.y for batch in data])
        for unit in y.unique().tolist():
            rows = x[y == unit]
            self.means[unit], self.variances[unit] = rows.mean(0), rows.var(0)
            self.least[unit], self.most[unit] = rows.amin(0), rows.amax(0)


@final
@dataclass(kw_only=True, eq=False)
class Shapes(Learner):
    """An anchor, an importance and snapshots of the first layer, a counter, a projector of inputs."""

    def setup(self) -> None:
        self.anchor = next(self.network.parameters()).detach().clone()
        self.importance, self.count = torch.zeros_like(self.anchor), torch.zeros(())
        self.snapshots = torch.zeros(0, *self.anchor.shape)
        self.projector = torch.eye(64)

    def end_task(self, batches: Iterable[Batch]) -> None:
        weight = next(self.network.parameters()).detach()
        self.importance += weight.square()
        self.snapshots = torch.cat([self.snapshots, weight[None]])
        for batch in batches:
            change = self.projector @ batch.x.flatten(1).mean(dim=0)
            self.projector -= torch.outer(change, change) / (1 + change @ change)


@final
@dataclass(kw_only=True, eq=False)
class Flat(Learner):
    """Samples that do not look like images, and have no labels beside them."""

    def setup(self) -> None:
        self.kept: list[Tensor] = []

    def after_step(self, batch: Batch) -> None:
        self.kept.append(batch.x.flatten(1) / 2)


@pytest.mark.parametrize(
    ("method", "samples"),
    [(Means, 0), (Exemplars, 6), (Statistics, 0), (Shapes, 0), (Flat, 12 * 32)],
)
def test_means_are_not_samples(method: type[Learner], samples: int) -> None:
    METHODS.add("test-few", method)
    try:
        outcome = run(plan("test-few"))
    finally:
        del METHODS._entries["test-few"]
    assert outcome.account is not None
    assert outcome.account.kept_samples[-1] == samples
    assert card_of(outcome).constraint("low memory footprint").verdict == ("broken" if samples else "held")


def test_scores_that_a_hook_keeps_are_not_called_inputs() -> None:
    @final
    @dataclass(kw_only=True, eq=False)
    class Hooked(Learner):
        def setup(self) -> None:
            self.scores = torch.zeros(0)
            self.network.register_forward_hook(self.keep)

        def keep(self, network: nn.Module, x: object, scores: Tensor) -> None:
            self.scores = scores.detach()

    METHODS.add("test-hooked", Hooked)
    try:
        card = card_of(run(plan("test-hooked", evaluation=EvaluationSpec(every=1000, subset=500))))
    finally:
        del METHODS._entries["test-hooked"]
    sentences = {act.describe() for act in card.forbidden}
    assert sentences
    for sentence in sentences:
        assert sentence.startswith("kept inputs of evaluations, or what it computed from them (")


@final
@dataclass(kw_only=True, eq=False)
class Moments(Learner):
    """Means and variances of classes as images, and how many samples they are of."""

    def setup(self) -> None:
        self.counts = torch.zeros(6, dtype=torch.int64)
        self.means, self.squares = torch.zeros(2, 6, 1, 8, 8).unbind()

    def after_step(self, batch: Batch) -> None:
        self.counts += torch.bincount(batch.y, minlength=6)
        self.means = self.means.index_add(0, batch.y, batch.x)
        self.squares = self.squares.index_add(0, batch.y, batch.x.square())


@final
@dataclass(kw_only=True, eq=False)
class Whole(Learner):
    """Integers beside an importance of weights, and beside a covariance of inputs."""

    def setup(self) -> None:
        weight = next(self.network.parameters())
        self.importance, self.used = torch.zeros_like(weight), torch.zeros(len(weight), dtype=torch.int64)
        self.order, self.covariance = torch.randperm(64, generator=self.generator), torch.zeros(64, 64)

    def edit_gradients(self, batch: Batch) -> None:
        gradient = next(self.network.parameters()).grad
        assert gradient is not None
        self.importance += gradient.square()
        self.used += (gradient.abs().sum(dim=1) > 0).long()
        x = batch.x.flatten(1)
        self.covariance += x.T @ x


@final
@dataclass(kw_only=True, eq=False)
class Features(Learner):
    """Features with labels."""

    def setup(self) -> None:
        self.kept, self.labels = torch.zeros(0, self.network.width), torch.zeros(0, dtype=torch.int64)

    def after_step(self, batch: Batch) -> None:
        with torch.no_grad():
            self.kept = torch.cat([self.kept, self.network.features(batch.x)])
        self.labels = torch.cat([self.labels, batch.y])


@final
@dataclass(kw_only=True, eq=False)
class Rows(Learner):
    """Samples with labels, as long as features and as many as there are weights."""

    def setup(self) -> None:
        self.kept, self.labels = torch.zeros(0, 64), torch.zeros(0, dtype=torch.int64)

    def after_step(self, batch: Batch) -> None:
        self.kept = torch.cat([self.kept, batch.x.flatten(1) * 3])[-64:]
        self.labels = torch.cat([self.labels, batch.y])[-64:]


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize(("method", "samples"), [(Moments, 0), (Whole, 0), (Features, 0), (Rows, 64)])
def test_integers_do_not_make_samples_of_what_they_are_beside(
    method: type[Learner], samples: int, width: int
) -> None:
    METHODS.add("test-beside", method)
    try:
        outcome = run(plan("test-beside", model=ModelSpec(hidden=(width,))))
    finally:
        del METHODS._entries["test-beside"]
    assert outcome.account is not None
    assert outcome.account.kept_samples[-1] == samples


@pytest.mark.parametrize("method", METHODS)
def test_no_built_in_method_is_accused(method: str) -> None:
    card = card_of(run(sample_experiment(method, settings_of(method)[0]), STRICT))
    assert not card.forbidden
    assert card.fact("outside").answer is False


def test_imports_and_compilers_write_on_their_own_account(tmp_path: Path, monkeypatch: Any) -> None:
    watch_outside()
    (tmp_path / "written_when_imported.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    cache = {"__name__": "torch._inductor.codecache", "place": tmp_path / "kernel.cpp"}
    ledger = Ledger(SCENARIO, method="mine")
    with ledger.reading("method"):
        __import__("written_when_imported")
        exec("place.write_text('')", cache)
    assert (tmp_path / "__pycache__").is_dir()
    assert (tmp_path / "kernel.cpp").is_file()
    assert not ledger.forbidden


def test_only_methods_are_watched(tmp_path: Path) -> None:
    watch_outside()
    ledger = Ledger(SCENARIO, method="mine")
    (tmp_path / "before").write_text("")
    with ledger.reading("evaluation"):
        (tmp_path / "trace").write_text("")
    with ledger.reading("method"):
        (tmp_path / "before").read_text()
    assert not ledger.forbidden
    with ledger.reading("method"):
        (tmp_path / "before").write_text("")
    assert [act.describe() for act in ledger.forbidden] == [
        f"opened the file {tmp_path / 'before'} for writing"
    ]


# Work -----------------------------------------------------------------------------------------------


def test_penalties_have_operations() -> None:
    """The element-wise operations of a penalty: all of them showed those of fine-tuning."""
    flops = {}
    for method in ("finetune", "l2", "ewc", "si", "mas"):
        account = run(plan(method)).account
        assert account is not None
        flops[method] = account.flops[-1]
    weights = 64 * 16 + 16 + 16 * 6 + 6
    for method in ("l2", "ewc", "si", "mas"):
        # At least a difference, a product and a sum for every weight.
        assert flops[method] >= flops["finetune"] + 3 * weights


@pytest.mark.parametrize("method", ["finetune", "er"])
def test_watching_gradients_is_not_work(method: str) -> None:
    spec = plan(method).evaluation
    plain, watched = (
        run(plan(method, evaluation=replace(spec, gradients=gradients))).account
        for gradients in (False, True)
    )
    assert plain is not None and watched is not None
    assert watched.work == plain.work and watched.flops == plain.flops


def test_a_gradient_of_a_method_is_work_even_if_it_is_taken_as_for_watchers() -> None:
    @final
    @dataclass(kw_only=True, eq=False)
    class Borrows(Learner):
        def after_step(self, batch: Batch) -> None:
            self._gradient_of(self.loss(batch).total())

    METHODS.add("test-borrows", Borrows)
    try:
        account = run(plan("test-borrows")).account
    finally:
        del METHODS._entries["test-borrows"]
    assert account is not None
    assert account.work[0].in_updates.backward_passes == 2 * 4


def test_a_fit_before_answers_is_work_and_training() -> None:
    often = EvaluationSpec(every=2, subset=20)
    planned = plan("gdumb", settings={"memory": 100, "epochs": 5}, evaluation=often)
    started = time.perf_counter()
    outcome = run(planned)
    taken = time.perf_counter() - started
    card, account = card_of(outcome), outcome.account
    assert account is not None
    last = account.work[-1]
    # In the first task, 5 passes over 64 samples at the first evaluation, and over 100 at the second.
    assert account.work[0].for_answers.backward_passes == 5 * (64 // 16) + 5 * (100 // 16 + 1)
    assert last.for_answers.samples >= 5 * 100 * 0.9
    # Forwards and backwards; inputs need no gradient.
    assert last.for_answers.flops > 5 * 100 * (4 * 64 * 16 + 6 * 16 * 6)
    assert last.in_updates.flops == 0
    assert card.constraint("constant update complexity").verdict != "held"
    assert card.fact("work").answer == sum(done.flops for done in last.places)
    assert outcome.seconds.evaluate < outcome.seconds.train < taken


def test_samples_of_more_epochs_count(fair: Run) -> None:
    outcome = run(plan(registered("more epochs in end_task")))
    passes = card_of(outcome).fact("network passes")
    usual = card_of(fair).fact("network passes").answer
    assert usual == pytest.approx(4 * 32 / len(OPEN.train(2)), rel=0.05)
    # Scaled from the first batches, which are larger than the last of a pass.
    assert passes.measured["boundaries"] == pytest.approx(3, rel=0.2)


def test_a_stretch_that_is_scaled_is_close_to_what_is_counted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan("ewc", batch_size=2)
    scaled = run(planned).account
    monkeypatch.setattr("engram.engine.work.FIRST", 10_000)
    whole = run(planned).account
    assert scaled is not None and whole is not None
    for some, every in zip(scaled.work, whole.work, strict=True):
        assert some.at_boundaries.backward_passes == every.at_boundaries.backward_passes
        assert some.at_boundaries.flops == pytest.approx(every.at_boundaries.flops, rel=0.02)
        assert some.at_boundaries.samples == pytest.approx(every.at_boundaries.samples, rel=0.02)


# Resumed runs ---------------------------------------------------------------------------------------


def reloaded(step: Step) -> dict[str, Any]:
    assert step.snapshot is not None
    file = io.BytesIO()
    torch.save(step.snapshot(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def without_times(card: Card) -> dict[str, Any]:
    written = card.as_json()
    for constraint in written["constraints"]:
        constraint["measured"].pop("seconds", None)
    written["facts"] = [fact for fact in written["facts"] if fact["name"] != "update time"]
    return written


def card_after_kills(planned: Experiment, kills: Collection[int]) -> list[dict[str, Any]]:
    """The card of one run for each kill, which resumes after that update."""
    states = [reloaded(step) for step in islice(run_steps(planned), max(kills)) if step.step in kills]
    return [without_times(card_of(ended(run_steps(planned, resume=state)))) for state in states]


def card_after_every_kill(planned: Experiment) -> dict[str, Any]:
    """The card of a run that is killed after each of its updates."""
    state = None
    while True:
        steps = run_steps(planned, resume=state)
        try:
            state = reloaded(next(steps))
        except StopIteration as end:
            return without_times(card_of(end.value))


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("er", {}),
        ("ewc", {}),
        ("gdumb", {"settings": {"memory": 20, "epochs": 2}}),
        ("finetune", {"evaluation": EvaluationSpec(every=3, full_ends=True, transfer=TransferSpec())}),
        ("finetune", {"evaluation": EvaluationSpec(every=2, subset=20, redraw=True)}),
    ],
    ids=["er", "ewc", "gdumb", "everything", "redrawn"],
)
def test_a_resumed_run_has_the_same_card(method: str, changes: dict[str, Any]) -> None:
    planned = plan(method, **{"evaluation": EvaluationSpec(every=2, subset=20), **changes})
    whole = without_times(card_of(run(planned)))
    # In the middle of a task, at its last update, at the first of the next, before the last.
    for card in card_after_kills(planned, (2, 4, 5, 11)):
        assert card == whole


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_killed_anywhere_or_everywhere_has_the_same_card(method: str) -> None:
    for setting in settings_of(method):
        planned = sample_experiment(method, setting)
        outcome = run(planned)
        whole = without_times(card_of(outcome))
        for card in card_after_kills(planned, range(1, outcome.updates)):
            assert card == whole
        assert card_after_every_kill(planned) == whole
