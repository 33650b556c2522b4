"""Asks a network about test samples, and leaves it as it was; nothing is recorded here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from engram.evaluation.batch_sets import BatchQuestions, BatchSet, TestSet, size_of
from engram.evaluation.checked import Checked, against_half
from engram.evaluation.guard import Guard
from engram.evaluation.judge import Judge, Sought
from engram.evaluation.measured import Answering, Measured, Wanted, ask_at_once, ask_in_batches
from engram.evaluation.passes import Passes
from engram.evaluation.precision import Autocast, computing_in
from engram.evaluation.ranks import Team
from engram.evaluation.samples import Questions
from engram.evaluation.ways import CompetingUnits, Ways

NOTHING_ELSE = Wanted()


@dataclass(frozen=True, slots=True)
class Request:
    """What a network is asked at one moment.

    Attributes:
        learning: The task being learned.
        tasks: The tasks it is asked about.
        units: For each task, the output units that compete for the answer; None for all.
        rows: For every task, the samples that were chosen; None for all samples.
    """

    learning: int
    tasks: Sequence[int]
    units: CompetingUnits | None = None
    rows: Sequence[Tensor] | None = None


@dataclass
class Asker:
    """Everything that is needed to ask a network, but not when, and not what becomes of the answers.

    Attributes:
        sets: The test sets.
        names: The names of their tasks, for messages.
        ways: How a network is asked and judged.
        judge: Judges classes; None where answers are not classes.
        wanted: What to measure besides which answers are right.
        autocast: As for `Evaluator`.
        shuffle: The seed of the order in which samples are shown; None for that of the test sets.
        in_batches: Whether samples are asked in the batches of their test sets, or by own functions.
        hold: Whether chosen samples stay in memory even where their test set does not.
        checked: Half precision; None for full precision throughout.
        answering: Makes the context in which the network is called.
        choices: How many choices of samples are kept gathered: two, where samples have two levels.
        guard: Keeps the network as it was.

    Example:
        >>> from engram.evaluation.samples import TensorSet
        >>> x, y = torch.eye(2), torch.tensor([0, 0])
        >>> asker = Asker([TensorSet(x, y)], ["0"], Ways(), Judge([y]))
        >>> with asker.untouched(nn.Identity(), torch.device("cpu")):
        ...     asker.ask(nn.Identity(), Request(0, [0]), Team("share"), torch.device("cpu"))[0].right
        tensor([ True, False])
    """

    sets: Sequence[TestSet]
    names: Sequence[str]
    ways: Ways
    judge: Judge | None
    wanted: Wanted = NOTHING_ELSE
    autocast: Autocast = None
    shuffle: int | None = None
    in_batches: bool = False
    hold: bool = False
    checked: Checked | None = None
    answering: Answering = nullcontext
    choices: int = 1
    guard: Guard = field(init=False)
    _held: list[tuple[Sequence[Tensor], Questions | BatchQuestions]] = field(
        default_factory=list, init=False, repr=False
    )

    def __post_init__(self) -> None:
        self.guard = Guard(own_code=self.ways.own)

    @contextmanager
    def untouched(self, network: nn.Module, device: torch.device) -> Iterator[None]:
        """Ask in here: the network is in evaluation mode, and restored on exit."""
        with self.guard.untouched(network), computing_in(device, self.autocast):
            yield

    def ask(
        self, network: nn.Module, request: Request, team: Team, device: torch.device
    ) -> dict[int, Measured]:
        """What is measured of the samples of each task, in the order of the request.

        Args:
            network: The network, within `untouched`.
            request: What to ask.
            team: The processes that evaluate together.
            device: Where the network is.
        """
        questions = (
            self._everything(request, device) if request.rows is None else self.chosen(request, device)
        )
        with team.together(device):
            asked = self._asked(network, request, questions, team)
        measured = asked.combined(team, device).arranged(questions.in_order)
        return {
            task: measured.part(start, stop)
            for task, (start, stop) in zip(questions.tasks, questions.bounds, strict=True)
        }

    def gathered(self, rows: Sequence[Tensor]) -> list[int]:
        """The tasks of which samples are gathered, for one choice of samples."""
        return next((list(questions.tasks) for held, questions in self._held if held is rows), [])

    def gather(
        self, rows: Sequence[Tensor], tasks: Sequence[int], device: torch.device
    ) -> Questions | BatchQuestions:
        """Gather chosen samples, before the next evaluation does."""
        # Before the new ones are gathered, so that both are never in memory.
        others = [pair for pair in self._held if pair[0] is not rows]
        self._held = others[max(0, len(others) + 1 - self.choices) :]
        hold = self.hold or all(self.sets[task].in_memory for task in tasks)
        questions = self._questions(rows, tasks, device=device, hold=hold)
        self._held.append((rows, questions))
        return questions

    def chosen(self, request: Request, device: torch.device) -> Questions | BatchQuestions:
        """The chosen samples, gathered again only when they have changed."""
        assert request.rows is not None
        held = next((questions for rows, questions in self._held if rows is request.rows), None)
        if held is None or held.overwritten or held.tasks != list(request.tasks) or held.device != device:
            return self.gather(request.rows, request.tasks, device)
        return held

    def _everything(self, request: Request, device: torch.device) -> Questions | BatchQuestions:
        rows = [torch.arange(size_of(data)) for data in self.sets]
        return self._questions(rows, request.tasks, device=device, hold=False)

    def _questions(
        self, rows: Sequence[Tensor], tasks: Sequence[int], *, device: torch.device, hold: bool
    ) -> Questions | BatchQuestions:
        plain = [data for data in self.sets if not isinstance(data, BatchSet)]
        if self.in_batches or len(plain) < len(self.sets):
            return BatchQuestions(self.sets, rows, tasks, device=device, hold=hold)
        return Questions(plain, rows, tasks, device=device, hold=hold, shuffle=self.shuffle)

    def _asked(
        self, network: nn.Module, request: Request, questions: Questions | BatchQuestions, team: Team
    ) -> Measured:
        competing = [None if request.units is None else request.units[task] for task in questions.tasks]
        sought: Sought = [None if units is None else tuple(units) for units in competing]
        if isinstance(questions, BatchQuestions):
            if self.checked is not None:
                self.checked.why = "samples are asked in batches or by own functions"
            return ask_in_batches(
                network,
                questions,
                ways=self.ways,
                judge=self.judge,
                sought=sought,
                wanted=self.wanted,
                names=self.names,
                answering=self.answering,
                team=team,
            )
        assert self.judge is not None
        passes = Passes(network, questions, self.judge, sought, self.answering)
        whole = partial(ask_at_once, passes, wanted=self.wanted, team=team)
        if self.checked is None or request.rows is None:
            return whole()
        against = against_half(
            questions.device, team, more=any(self.wanted), changes=bool(self.guard.changes)
        )
        return self.checked.asked(passes, whole, learning=request.learning, against=against)
