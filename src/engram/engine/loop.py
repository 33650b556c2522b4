"""The training loop: one experiment from its first update to its run."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from engram.core.errors import InputError
from engram.engine.check import complete
from engram.engine.checkpoint import DamagedCheckpoint
from engram.engine.failures import RunFailed, failure_of, is_out_of_memory
from engram.engine.observers import Step
from engram.engine.state import RunState
from engram.engine.where import Where
from engram.methods.state import State
from engram.record.experiment import Experiment
from engram.record.run import Run


def run_steps(
    experiment: Experiment,
    where: Where | None = None,
    *,
    watch: bool = True,
    resume: State | None = None,
) -> Generator[Step, None, Run]:
    """Run an experiment update by update, yielding a `Step` after each.

    Args:
        experiment: The experiment.
        where: Where to search for data sets, where to compute, and whether to stop a method that reads data
            it must not read.
        watch: Whether to evaluate at all; the weights are the same either way.
        resume: A state that `Step.snapshot` returned: the run continues from there, to the same bits.

    Raises:
        RunFailed: The run failed; what was measured until then is in the error's `run`.
        DamagedCheckpoint: The run cannot resume from this state.

    Example:
        >>> from engram.scenarios import prefix, split
        >>> digits = prefix(split("digits", setting="class"), 2)
        >>> steps = run_steps(Experiment(digits, "finetune", batch_size=64))
        >>> [step.step for step in steps]
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    state = state_of(experiment, where, resume)
    folder = None if where is None or where.out is None else where.out / experiment.id
    return (yield from steps_of(state, watch=watch, folder=folder))


def steps_of(
    state: RunState, *, watch: bool = True, folder: Path | None = None
) -> Generator[Step, None, Run]:
    """Continue a run from its state, update by update, yielding a `Step` after each.

    Args:
        state: The state, which changes while the run is made.
        watch: Whether to evaluate at all.
        folder: The folder of the run, if it has one.

    Raises:
        RunFailed: The run failed.
    """
    begun, resumed = Run(planned=state.experiment, folder=folder), state.place.step
    try:
        while state.place.phase < len(state.infos):
            data = state.begin_phase(watch=watch)
            for shown in state.batches(data):
                loss = state.update(shown.batch, watch=watch)
                last = state.phase_is_over
                if last:
                    # Before the evaluation, so that it measures what the method does at the end of a task.
                    state.end_phase(data)
                evaluated = watch and state.evaluate(shown, last=last)
                lag, late = state.evaluator.lag, state.evaluator.news()
                if last and watch:
                    state.probe()
                yield Step(
                    begun,
                    state.place.step,
                    state.steps,
                    state.tasks[-1],
                    loss,
                    state.evaluator.latest if evaluated and not lag else {},
                    ends_task=last,
                    pending=evaluated and lag > 0,
                    late=[result for result in late if result.step < state.place.step],
                    lag=lag,
                    resumed=resumed,
                    snapshot=state.state_dict,
                    method=state.method.method,
                )
            state.place.next_phase()
        return state.finished()
    except Exception as error:
        raise RunFailed(state.failed(error)) from error
    finally:
        state.evaluator.close(wait=False)


def state_of(experiment: Experiment, where: Where | None = None, resume: State | None = None) -> RunState:
    """The state in which a run starts or resumes; a method that raises while it is built has failed.

    Args:
        experiment: The experiment.
        where: Where to search for data sets, and where to compute.
        resume: A state that `Step.snapshot` returned; None to start.

    Raises:
        InputError: The experiment cannot be run.
        RunFailed: The method cannot be built, or memory or the disk failed while the state was restored.
        DamagedCheckpoint: The run cannot resume from this state.
    """
    planned = complete(experiment)
    try:
        state = RunState(planned, where or Where(out=None))
    except InputError:
        # The experiment cannot be run: no run failed.
        raise
    except Exception as error:
        raise RunFailed(Run(planned=planned, failure=failure_of(error))) from error
    if resume is not None:
        try:
            state.load_state_dict(resume)
        except Exception as error:
            if is_out_of_memory(error) or isinstance(error, OSError):
                # The checkpoint may be whole.
                raise RunFailed(Run(planned=planned, failure=failure_of(error))) from error
            raise DamagedCheckpoint(
                f"the checkpoint does not fit the run ({failure_of(error).reason})"
            ) from error
    return state


def run(experiment: Experiment, where: Where | None = None) -> Run:
    """Run an experiment to its end, in memory.

    Raises:
        RunFailed: The run failed.

    Example:
        >>> from engram.scenarios import prefix, split
        >>> digits = prefix(split("digits", setting="class"), 2)
        >>> run(Experiment(digits, "finetune", batch_size=64)).updates
        10
    """
    steps = run_steps(experiment, where)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            finished: Run = end.value
            return finished
