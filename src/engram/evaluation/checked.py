"""Evaluations in half precision with the bits of full precision: when, how sure, and whether it is faster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor, nn

from engram.evaluation.asking import Routes
from engram.evaluation.dense import watched
from engram.evaluation.doubt import BLOCK, FACTOR, Settled, settle
from engram.evaluation.measured import Measured
from engram.evaluation.passes import Passes
from engram.evaluation.precision import in_force
from engram.evaluation.ranks import Team
from engram.evaluation.trial import WORTH_IT, Trial, trial_of, trial_rows
from engram.record.half_checked import HalfChecked, Precision

COMPARED_EVERY = 64
"""Every so many evaluations, and the first after another task begins, one is made in both precisions."""
WINDOW = 16
"""Evaluations whose largest error counts."""
FEWEST_SAMPLES = 4 * BLOCK
"""With fewer samples, those that are asked in both precisions are too large a part."""
PATIENCE = 3
"""Evaluations in a row with too many answers in doubt, after which full precision is used until another task
begins."""
HOOKED = "the network has hooks or is compiled"


class CheckedState(TypedDict):
    """What a resumed evaluator continues from."""

    record: dict[str, int | float | str]
    errors: list[float]
    off: str


class Checked:
    """Decides, evaluation by evaluation, whether half precision is used, and checks its answers.

    In the first evaluation of every task, and in every 64th from there on, all samples are asked in both
    precisions, and full precision is recorded. If an answer differs, it is counted and the safety factor is
    doubled. If even an answer that was asked again differs, what the network answers to a sample depends on
    the others of its batch, and half precision is not used any more.

    Args:
        wanted: `half-checked`, or `auto` for where a trial finds it faster.

    Example:
        >>> Checked("auto").record
        HalfChecked(wanted='auto', evaluations=0, answers=0, ..., factor=4.0, why='', trial='')
    """

    def __init__(self, wanted: Precision) -> None:
        self.wanted = wanted
        self.factor, self.why = FACTOR, ""
        self.evaluations = self.answers = self.asked_again = 0
        self.compared = self.compared_answers = self.wrong = 0
        self._errors: deque[float] = deque(maxlen=WINDOW)
        self._off = ""
        self._stretch: tuple[int, ...] | None = None
        self._since = self._crowded = 0
        self._integers = True
        self._trials: dict[int, Trial] = {}
        self._trial = ""

    @property
    def record(self) -> HalfChecked:
        """What was done so far."""
        return HalfChecked(
            self.wanted,
            self.evaluations,
            self.answers,
            self.asked_again,
            self.compared,
            self.compared_answers,
            self.wrong,
            self.factor,
            self.why,
            self._trial,
        )

    def asked(
        self, passes: Passes, whole: Callable[[], Measured], *, learning: int, against: str = ""
    ) -> Measured:
        """Which samples are answered correctly: the bits of full precision.

        Args:
            passes: Asks the network.
            whole: Asks all samples in full precision.
            learning: The task being learned.
            against: Why half precision cannot be used; empty where nothing speaks against it.
        """
        reason = against or self._off or self._unsuitable(passes)
        if reason:
            self.why = reason
            return whole()
        due = self._is_due(learning, passes.questions.tasks)
        full = whole() if due else None
        settled = None
        if self._crowded < PATIENCE:
            settled = self._settled(passes)
        if settled is None or settled.right is None:
            return whole() if full is None else full
        self.evaluations += 1
        self.answers += len(settled.right)
        self.asked_again += int(settled.asked.sum())
        if full is None:
            return Measured(settled.right)
        assert full.right is not None
        self._compare(settled.right, settled.asked, full.right)
        return full

    def _settled(self, passes: Passes) -> Settled | None:
        """The answers in half precision, those in doubt asked again; None where that is impossible."""
        try:
            settled = settle(
                passes.half(integers=self._integers),
                passes.full,
                known_error=max(self._errors, default=0.0),
                factor=self.factor,
                seed=self.evaluations,
            )
        except (RuntimeError, TypeError, ValueError) as error:
            first = str(error).partition("\n")[0]
            self._off = self.why = f"the network cannot be asked in half precision ({first})"
            return None
        if settled.right is None and self._integers and passes.lattice is not None:
            # Rounding weights to 8 bits leaves too much in doubt: the next evaluation rounds inputs instead.
            self._integers = False
            self._errors.clear()
            return settled
        if math.isfinite(settled.error):
            self._errors.append(settled.error)
        self._crowded = self._crowded + 1 if settled.right is None else 0
        if settled.right is None:
            self.why = "too many answers were in doubt"
        return settled

    def _compare(self, right: Tensor, asked: Tensor, full: Tensor) -> None:
        """Count the answers that differ from those of full precision, and be more careful if any does."""
        differs = right != full
        wrong = int(differs.sum())
        self.compared += 1
        self.compared_answers += len(right)
        self.wrong += wrong
        if wrong:
            self.factor *= 2
        if bool((differs & asked).any()):
            self._off = "what the network answers to a sample depends on the other samples of a batch"
            self.why = self._off

    def _is_due(self, learning: int, tasks: Sequence[int]) -> bool:
        """Whether this evaluation is made in both precisions."""
        stretch = (learning, *tasks)
        if stretch != self._stretch:
            self._stretch, self._since, self._crowded = stretch, 0, 0
            self._integers = True
            self._trials = {}
        self._since += 1
        return self._since % COMPARED_EVERY == 1

    def _unsuitable(self, passes: Passes) -> str:
        """Why this network and these samples are asked in full precision; empty if they need not be."""
        questions = passes.questions
        if questions.total < FEWEST_SAMPLES:
            return f"there are fewer than {FEWEST_SAMPLES} samples"
        if passes.judge.single:
            return "the network has a single output"
        if torch.device(questions.device).type not in ("cpu", "cuda"):
            return f"it is not used on {questions.device}"
        if nn.modules.module._has_any_global_hook():
            return HOOKED
        # Layers that are known to be dense are in 32 bits and have no hooks.
        if passes.dense is None and (reason := _unfit(passes.network)):
            return reason
        if self.wanted == "auto":
            trial = self._tried(passes)
            if not trial.worth_it:
                return f"{trial}, more than {WORTH_IT}" if math.isfinite(trial.ratio) else str(trial)
        return ""

    def _tried(self, passes: Passes) -> Trial:
        """Whether half precision is faster for this network and so many samples."""
        rows = trial_rows(passes.questions.total)
        if rows not in self._trials:
            self._trials[rows] = trial_of(passes)
        self._trial = str(self._trials[rows])
        return self._trials[rows]

    # In several processes ---------------------------------------------------------------------------

    def since(self, before: HalfChecked) -> CheckedState:
        """What was done since an earlier record, for `add` in another process."""
        return {
            "record": self.record.since(before).as_json(),
            "errors": list(self._errors)[-1:],
            "off": self._off,
        }

    def add(self, done: CheckedState) -> None:
        """Count what an evaluator process did."""
        record = HalfChecked.of_json(done["record"])
        self.evaluations += record.evaluations
        self.answers += record.answers
        self.asked_again += record.asked_again
        self.compared += record.compared
        self.compared_answers += record.compared_answers
        self.wrong += record.wrong
        self.factor, self.why = max(self.factor, record.factor), record.why or self.why
        self._trial = record.trial or self._trial
        self._errors.extend(done["errors"])
        self._off = self._off or done["off"]

    # State ------------------------------------------------------------------------------------------

    def state_dict(self) -> CheckedState:
        """What a resumed evaluator continues from."""
        return {"record": self.record.as_json(), "errors": list(self._errors), "off": self._off}

    def load_state_dict(self, state: CheckedState) -> None:
        """Continue from there; the next evaluation is made in both precisions."""
        record = HalfChecked.of_json(state["record"])
        self.evaluations, self.answers, self.asked_again = (
            record.evaluations,
            record.answers,
            record.asked_again,
        )
        self.compared, self.compared_answers = record.compared, record.compared_answers
        self.wrong, self.factor, self.why = record.wrong, record.factor, record.why
        self._trial = record.trial
        self._errors = deque(state["errors"], maxlen=WINDOW)
        self._off = state["off"]


def _unfit(network: nn.Module) -> str:
    """Why a network cannot be asked in half precision; empty if it can."""
    if isinstance(network, Routes):
        return "every task is answered by a network of its own"
    if any(part.is_floating_point() and part.dtype is not torch.float32 for part in network.parameters()):
        return "the weights are not in 32 bits"
    return HOOKED if any(watched(part) for part in network.modules()) else ""


def against_half(device: torch.device | str, team: Team, *, more: bool, changes: bool) -> str:
    """Why an evaluation must be made in full precision; empty where nothing speaks against half precision.

    Args:
        device: Where the network is.
        team: The processes that evaluate together.
        more: Whether losses or answers are recorded.
        changes: Whether the network changes itself in evaluations.
    """
    reasons = {
        "losses or answers are recorded, which need it": more,
        "processes evaluate together": not team.alone,
        "autocast is in force": in_force(torch.device(device).type),
        "the network changes itself in evaluation": changes,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
