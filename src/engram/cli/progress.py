"""Progress on stderr: one bar per run and one over all runs; a line now and then where there is no terminal.

An observer in the sense of `engram.engine.observers`: a run tells when it began, after every update and
evaluation, when a task ended, and when it ended. It may be told from worker processes as well, several runs
at a time, in any order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from engram.cli.output import stderr
from engram.core.words import counted, duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn, Task, TaskID
    from rich.text import Text

    from engram.engine.observers import Step
    from engram.record.run import Run

REFRESH_SECONDS = 0.2
LINE_SECONDS = 10.0


@dataclass
class _State:
    """What is known about a run that is under way."""

    name: str
    began: float
    shown: float
    step: int = 0
    steps: int = 0
    learning: int = 0
    accuracies: dict[int, float] = field(default_factory=dict)
    lag: int = 0
    resumed: int = 0
    line: TaskID | None = None

    @property
    def share(self) -> float:
        return self.step / self.steps if self.steps else 0.0

    @property
    def news(self) -> str:
        """Which task is learned, the latest accuracies in percent, and how far evaluators are behind."""
        parts = [f"task {self.learning + 1}"] if self.steps else []
        if self.accuracies:
            parts.append("accuracy " + " ".join(f"{100 * value:.0f}" for value in self.accuracies.values()))
        if self.lag:
            parts.append(f"({counted(self.lag, 'update')} behind)")
        return "  ".join(parts)


class ProgressDisplay:
    """Shows how far runs are; use it as a context manager around them.

    On a terminal every run has a bar with its updates, accuracies and time, which stays when it ended, and a
    bar above all counts the runs. Elsewhere a line is written every ten seconds and whenever a run ends. With
    `-q` nothing is shown.

    Args:
        runs: How many runs there are; with one there is no bar over all.
        console: Where to write.
        name_failures: Whether to say at once why a run failed; else whoever runs it does.
        most_bars: At most so many finished bars are kept; then the oldest ones are cleared away.
        clock: Tells the time in seconds.

    Example:
        >>> from io import StringIO
        >>> from types import SimpleNamespace as Made
        >>> from rich.console import Console
        >>> run = Made(id="a", label="er on split-digits (class)", seed=0, finished=True, failure=None)
        >>> written = StringIO()
        >>> with ProgressDisplay(1, console=Console(file=written, width=100)) as display:
        ...     display.began(run)
        ...     scores = {0: 0.5, 1: 0.9}
        ...     done = Made(run=run, step=450, steps=450, resumed=0, learning=4, accuracies=scores, lag=0)
        ...     display.evaluated(done)
        ...     display.ended(run)
        >>> print(written.getvalue().strip())
        er on split-digits (class), seed 0: done, 450 updates in 1 s, accuracy 50 90
    """

    def __init__(
        self,
        runs: int,
        *,
        console: Console = stderr,
        name_failures: bool = True,
        most_bars: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs, self.console, self.most_bars, self.clock = runs, console, most_bars, clock
        self.name_failures = name_failures
        self.states: dict[str, _State] = {}
        self.done = self.failed = 0
        # Runs that ended and never began here: they were finished before, or other processes made them.
        self.read = 0
        # Shares of runs that were made before these resumed, added up.
        self.resumed = 0.0
        self.started = self.written = clock()
        self._finished: list[TaskID] = []
        self._bars: Bars | None = None
        self._over_all: TaskID | None = None

    def __enter__(self) -> ProgressDisplay:
        self.started = self.written = self.clock()
        if self.console.is_terminal and not self.console.quiet:
            self._bars = _bars(self.console)
            if self.runs > 1:
                self._over_all = self._bars.add_task(
                    "all runs", total=self.runs, news="", unit="runs", left=None
                )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop drawing, so that other things can be written below."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    # What runs tell ---------------------------------------------------------------------------------

    def began(self, run: Run) -> None:
        """A run began."""
        now = self.clock()
        name = f"{run.label}, seed {run.seed}"
        state = self.states[run.id] = _State(name, began=now, shown=now - REFRESH_SECONDS)
        if self._bars is not None:
            state.line = self._bars.add_task(name, total=None, news="", unit="updates")
            self._update_over_all()

    def updated(self, step: Step) -> None:
        """A run made an update."""
        state = self._note(step)
        now = self.clock()
        # Called after every update, so that most calls must cost nothing.
        if now - state.shown >= REFRESH_SECONDS or step.step == step.steps:
            state.shown = now
            self._show(state)
            self._write_now_and_then(now)

    def evaluated(self, step: Step) -> None:
        """A run was evaluated, maybe after an earlier update."""
        state = self.states.get(step.run.id)
        if state is None or step.step >= state.step:
            self.updated(step)
        else:
            state.accuracies = dict(step.accuracies)

    def task_ended(self, step: Step) -> None:
        """A run came to the end of a task."""
        self._show(self._note(step))

    def ended(self, run: Run) -> None:
        """A run ended; one that was finished before, or never began here, is counted as well."""
        failure = run.failure
        self.done += run.finished
        self.read += run.finished and run.id not in self.states
        self.failed += not run.finished
        state = self.states.pop(run.id, None)
        name = f"{run.label}, seed {run.seed}"
        if failure is not None and self.name_failures:
            self.console.print(f"failed: {name}: {failure.reason}", soft_wrap=True, markup=False)
        if state is not None:
            self._finish(state, failed=not run.finished)
        self._update_over_all()

    # What is shown ----------------------------------------------------------------------------------

    def _note(self, step: Step) -> _State:
        if step.run.id not in self.states:
            self.began(step.run)
        state = self.states[step.run.id]
        if not state.steps:
            state.resumed = step.resumed
            self.resumed += step.resumed / step.steps
        state.step, state.steps, state.learning, state.lag = step.step, step.steps, step.learning, step.lag
        if step.accuracies:
            state.accuracies = dict(step.accuracies)
        return state

    def _show(self, state: _State) -> None:
        if self._bars is not None and state.line is not None:
            self._bars.update(state.line, total=state.steps, completed=state.step, news=state.news)
            self._update_over_all()

    def _finish(self, state: _State, *, failed: bool) -> None:
        seconds = self.clock() - state.began
        if self._bars is not None and state.line is not None:
            news = "failed" if failed else state.news
            total = state.steps or 1
            self._bars.update(state.line, total=total, completed=state.step or total, news=news)
            self._bars.stop_task(state.line)
            self._finished.append(state.line)
            if len(self._finished) > self.most_bars:
                self._bars.remove_task(self._finished.pop(0))
        elif self._bars is None and not failed:
            accuracy = state.news.partition("accuracy ")[2]
            updates = counted(state.steps, "update") if state.steps else "no update"
            if state.resumed:
                updates = f"the last {state.steps - state.resumed:,} of {updates}"
            if state.steps:
                updates += f" in {duration(seconds)}"
            self._write(f"{state.name}: done, {updates}" + (f", accuracy {accuracy}" if accuracy else ""))

    def _update_over_all(self) -> None:
        if self._bars is not None and self._over_all is not None:
            under_way = sum(state.share for state in self.states.values())
            news = f"{len(self.states)} under way" if self.states else ""
            if self.failed:
                news = ", ".join(filter(None, (news, f"{self.failed} failed")))
            completed = self.done + self.failed + under_way
            self._bars.update(self._over_all, completed=completed, news=news, left=self._left(self.clock()))

    def _write_now_and_then(self, now: float) -> None:
        if self._bars is not None or now - self.written < LINE_SECONDS:
            return
        for state in self.states.values():
            news = f", {state.news}" if state.news else ""
            self._write(f"{state.name}: {state.step:,} of {counted(state.steps, 'update')}{news}")
        if self.runs > 1:
            self._write(self._over_all_in_words(now))

    def _over_all_in_words(self, now: float) -> str:
        """How many runs are done, failed, under way and left, how long it took, and how long it will take."""
        ended, under_way = self.done + self.failed, len(self.states)
        words = f"{self.done} of {counted(self.runs, 'run')} done"
        if self.failed:
            words += f", {self.failed} failed"
        words += f", {under_way} under way, {max(0, self.runs - ended - under_way)} left"
        words += f", after {duration(now - self.started)}"
        left = self._left(now)
        return words if left is None else f"{words}; time left: about {duration(left)}"

    def _left(self, now: float) -> float | None:
        """How many seconds are left, if runs take as long as those that were made here until now."""
        progressed = self.done + self.failed + sum(state.share for state in self.states.values())
        # Runs that were finished before, and what was made of others before they resumed, took no time here.
        made = progressed - self.read - self.resumed
        return (now - self.started) / made * (self.runs - progressed) if made > 0 else None

    def _write(self, line: str) -> None:
        self.written = self.clock()
        self.console.print(line, soft_wrap=True, markup=False)


def _bars(console: Console) -> Bars:
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        _counts(),
        _times(),
        TextColumn("{task.fields[news]}"),
        console=console,
        # Runs are long and differ: a speed over half a minute would jump.
        speed_estimate_period=600,
        transient=False,
    )


def _counts() -> ProgressColumn:
    """How many of how many, whole ones."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Counts(ProgressColumn):
        def render(self, task: Task) -> Text:
            of = "?" if task.total is None else f"{int(task.total):,}"
            return Text(f"{int(task.completed):,}/{of} {task.fields['unit']}", "progress.download")

    return Counts()


def _times() -> ProgressColumn:
    """The time left while something is under way, the time that it took when it ended."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Times(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.finished or task.stop_time is not None:
                took = task.finished_time if task.finished_time is not None else task.elapsed or 0.0
                return Text(f"in {duration(took)}", "progress.elapsed")
            # The speed of one run is its latest; that of all runs is the mean.
            left = task.fields.get("left", task.time_remaining)
            return Text("" if left is None else f"{duration(left)} left", "progress.remaining")

    return Times()
