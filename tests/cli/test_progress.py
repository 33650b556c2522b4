"""The progress display, told made-up news."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from engram.cli.progress import ProgressDisplay
from engram.engine.observers import Step
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run


def step_of(
    run: Run,
    step: int,
    *,
    steps: int = 1000,
    learning: int = 0,
    accuracies: dict[int, float] | None = None,
    resumed: int = 0,
) -> Step:
    return Step(run, step, steps, learning, 0.5, accuracies or {}, resumed=resumed)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def made_up(seed: int) -> Run:
    description = {"id": f"id-{seed}", "label": "er on split-digits (class)", "seed": seed}
    return Run(description=description, finished=True)


def console(*, terminal: bool, width: int = 160) -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, force_terminal=terminal, width=width, color_system=None), file


def test_without_a_terminal_a_line_now_and_then() -> None:
    clock, (place, file) = Clock(), console(terminal=False)
    with ProgressDisplay(2, console=place, clock=clock) as display:
        for seed in (0, 1):
            run = made_up(seed)
            display.began(run)
            for step in range(1, 1001):
                clock.now += 0.025
                told = step_of(
                    run, step, learning=step // 501, accuracies={0: step / 1000} if step % 2 else {}
                )
                (display.evaluated if told.accuracies else display.updated)(told)
            display.ended(run)
    lines = file.getvalue().splitlines()
    assert (
        lines[0].startswith("er on split-digits (class), seed 0: ") and "of 1,000 updates, task 1" in lines[0]
    )
    assert "accuracy 4" in lines[0]
    assert lines[1] == "0 of 2 runs done, 1 under way, 1 left, after 10 s; time left: about 40 s"
    assert "er on split-digits (class), seed 0: done, 1,000 updates in 25 s, accuracy 100" in lines
    assert lines[-1] == "er on split-digits (class), seed 1: done, 1,000 updates in 25 s, accuracy 100"
    assert len(lines) <= 10


def test_on_a_terminal_finished_bars_keep_updates_and_time() -> None:
    clock, (place, file) = Clock(), console(terminal=True)
    with ProgressDisplay(3, console=place, clock=clock) as display:
        for seed in (0, 1):
            run = made_up(seed)
            display.began(run)
            display.evaluated(step_of(run, 1000, learning=4, accuracies={0: 0.5, 1: 0.97}))
            display.task_ended(step_of(run, 1000, learning=4))
            display.ended(run)
        third = made_up(2)
        display.began(third)
        display.updated(step_of(third, 500, learning=2))
    last = file.getvalue().split("all runs")[-1]
    assert "2/3 runs" in last
    for seed in (0, 1):
        (line,) = [line for line in last.splitlines() if f"seed {seed}" in line]
        assert "1,000/1,000 updates" in line and " in 1 s" in line and "accuracy 50 97" in line
    (line,) = [line for line in last.splitlines() if "seed 2" in line]
    assert "500/1,000 updates" in line and "task 3" in line


def test_what_was_made_before_a_run_resumed_took_no_time_here() -> None:
    clock, (place, file) = Clock(), console(terminal=False)
    with ProgressDisplay(2, console=place, clock=clock) as display:
        run = made_up(0)
        display.began(run)
        for step in range(901, 1001):
            clock.now += 0.25
            display.updated(step_of(run, step, learning=4, resumed=900))
        display.ended(run)
    lines = file.getvalue().splitlines()
    # 40 updates took ten seconds, and 1,060 are left.
    assert lines[1] == "0 of 2 runs done, 1 under way, 1 left, after 10 s; time left: about 4 min"
    assert lines[-1] == "er on split-digits (class), seed 0: done, the last 100 of 1,000 updates in 25 s"


def test_the_bar_of_all_runs_knows_what_was_made_before() -> None:
    clock, (place, file) = Clock(), console(terminal=True)
    with ProgressDisplay(2, console=place, clock=clock) as display:
        run = made_up(0)
        display.began(run)
        for step in range(901, 951):
            clock.now += 0.25
            display.updated(step_of(run, step, learning=4, resumed=900))
    (line,) = [line for line in file.getvalue().split("\r")[-1].splitlines() if "all runs" in line][-1:]
    assert "4 min left" in line


def test_a_failure_is_said_at_once_and_counted() -> None:
    for terminal in (False, True):
        place, file = console(terminal=terminal)
        with ProgressDisplay(2, console=place) as display:
            run = made_up(0)
            display.began(run)
            display.updated(step_of(run, 3))
            failure = Failure(FailureKind.DIVERGED, "the loss became NaN or infinite")
            display.ended(replace(run, finished=False, failure=failure))
            assert "failed: er on split-digits (class), seed 0: the loss became NaN" in file.getvalue()
            assert (display.done, display.failed) == (0, 1)


def test_only_a_finished_run_is_done() -> None:
    """Whatever else ended, maybe without a word."""
    place, file = console(terminal=False)
    with ProgressDisplay(2, console=place) as display:
        run = replace(made_up(0), finished=False)
        display.began(run)
        display.updated(step_of(run, 3))
        display.ended(run)
        assert (display.done, display.read, display.failed) == (0, 0, 1)
    assert "done" not in file.getvalue()


def test_runs_of_several_processes_come_in_any_order() -> None:
    place, file = console(terminal=True)
    runs = [made_up(seed) for seed in range(3)]
    with ProgressDisplay(4, console=place) as display:
        # One was there already, one is heard of first by an update.
        display.ended(made_up(9))
        display.began(runs[0])
        display.updated(step_of(runs[1], 10))
        display.updated(step_of(runs[0], 20))
        display.ended(runs[1])
        display.ended(runs[0])
        assert display.done == 3
    assert "3/4 runs" in file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet_is_silent(terminal: bool) -> None:
    clock, (place, file) = Clock(), console(terminal=terminal)
    place.quiet = True
    with ProgressDisplay(1, console=place, clock=clock) as display:
        run = made_up(0)
        display.began(run)
        clock.now = 100
        display.updated(step_of(run, 10))
        display.ended(run)
    assert file.getvalue() == ""


def test_most_updates_cost_nothing() -> None:
    clock, (place, _) = Clock(), console(terminal=True)
    with ProgressDisplay(1, console=place, clock=clock) as display:
        run = made_up(0)
        display.began(run)
        display.updated(step_of(run, 1))
        shown = display.states["id-0"].shown
        display.updated(step_of(run, 2))
        assert display.states["id-0"].shown == shown and display.states["id-0"].step == 2
        clock.now += 1
        display.updated(step_of(run, 3))
        assert display.states["id-0"].shown == clock.now
