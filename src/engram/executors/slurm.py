"""The executor that runs experiments in jobs of a Slurm cluster, whose nodes share the folder of runs."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, final

import torch

from engram.core.errors import InputError
from engram.core.folder import RESULT
from engram.core.leases import holder_of
from engram.core.owner import unique_name
from engram.core.plugins import load_plugin
from engram.core.stopping import Stopped
from engram.engine.execute import record_failure
from engram.engine.memory import keep_freed_memory
from engram.engine.observers import Observer, Step, Watcher, tell
from engram.engine.where import Where
from engram.executors.executor import Executor
from engram.executors.machines import Machines
from engram.executors.queue import failed_since, failure_stamp
from engram.executors.serial import Serial
from engram.executors.survey import expected_seconds, survey
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.progress import progress_of
from engram.record.run import Run

LOOK_SECONDS = 1.0
"""How often to look for results, and longer where there are thousands of runs."""

SEEN_SECONDS = 30.0
"""So long it may take until a file that another machine wrote is seen here."""

CANCEL_SECONDS = 40.0
"""So long a job that is cancelled may take: Slurm itself allows 30 s between SIGTERM and SIGKILL."""

JOB_SECONDS = 600.0
"""Runs are bundled into jobs of about this length."""

MOST_JOBS = 200
"""Where the length of a run is unknown, runs are bundled into at most so many jobs."""

MOST_LOSSES = 3
"""So often a job may end without a result of a run that it began; then it is the run's fault."""

MINUTES = 60
_REQUEUED = 1000
"""How often submitit queues a job again that reached its time limit."""


@final
class Slurm(Executor):
    """Runs experiments in job arrays of Slurm, several short ones per job.

    All nodes must see the folder of runs, the data and the plugin under the same paths as this machine. A job
    that is preempted, or reaches its time limit, writes a checkpoint and is queued again; a job that dies is
    submitted again. If this process is interrupted, its jobs are cancelled, and keep their checkpoints; if it
    is killed, they go on.

    Args:
        where: Where and how to run; `jobs` limits the jobs that run at a time.
        observers: Told when runs begin and end, and every few seconds how far they are.
        machines: The partition, the time limit, and what each run gets.
        cluster: `slurm`, or `local` for processes of this machine in place of jobs.
    """

    def __init__(
        self,
        where: Where,
        observers: Sequence[Observer] = (),
        *,
        machines: Machines | None = None,
        cluster: str = "slurm",
    ) -> None:
        super().__init__(where, observers)
        self.machines = Machines(on="slurm") if machines is None else machines
        self.cluster = cluster

    def make_runs(self, waiting: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Run experiments in jobs."""
        self.machines.check_installed()
        place = self.where.folder.absolute() / f".slurm-{unique_name()}"
        jobs = _Jobs(self, place)
        try:
            jobs.submit(waiting)
            yield from jobs.run()
        except BaseException:
            jobs.cancel()
            raise
        finally:
            jobs.close()


def bundles(
    experiments: Sequence[Experiment], seconds: Sequence[float | None], *, per_job: int | None = None
) -> list[list[Experiment]]:
    """Experiments in groups that a job makes one after the other.

    Args:
        experiments: The experiments.
        seconds: How long each is expected to take; None where that is unknown.
        per_job: How many a job makes (default: as many as take ten minutes; where that is unknown, as few as
            give at most 200 jobs).

    Example:
        >>> from engram.engine.recipe import experiment
        >>> planned = [experiment("split-digits", "er", seed=seed) for seed in range(5)]
        >>> [len(bundle) for bundle in bundles(planned, [200.0] * 5)]
        [3, 2]
        >>> [len(bundle) for bundle in bundles(planned, [None] * 5, per_job=4)]
        [4, 1]
    """
    if per_job is None and any(expected is None for expected in seconds):
        per_job = math.ceil(len(experiments) / MOST_JOBS)
    groups: list[list[Experiment]] = []
    filled = math.inf
    for experiment, expected in zip(experiments, seconds, strict=True):
        size = 1 / per_job if per_job is not None else (expected or 0.0) / JOB_SECONDS
        # A little more than full is full enough: sums of floats are not exact.
        if filled + size > 1 + 1e-9:
            groups.append([])
            filled = 0.0
        groups[-1].append(experiment)
        filled += size
    return groups


# In a job -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """The runs of a job.

    Attributes:
        experiments: What `experiment.json` says of each, and the path of its weights.
        where: Where and how to run them.
    """

    experiments: tuple[tuple[str, str | None], ...]
    where: Where

    @classmethod
    def of(cls, experiments: Sequence[Experiment], where: Where) -> Bundle:
        """A bundle of these experiments."""
        return cls(
            tuple(
                (json.dumps(one.as_json()), None if one.start is None else str(one.start.file.absolute()))
                for one in experiments
            ),
            where,
        )

    def unpacked(self) -> list[Experiment]:
        """The experiments."""
        return [
            Experiment.of_json(json.loads(written), weights=None if weights is None else Path(weights))
            for written, weights in self.experiments
        ]


class Preemption(Watcher):
    """Notes the signals that end a job, and stops its run after the update under way, with a checkpoint.

    Attributes:
        noted: The signals.
    """

    def __init__(self) -> None:
        self.noted: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Preemption:
        submitit = import_module("submitit")
        preempted = submitit.JobEnvironment()._usr_sig()
        for number in (preempted, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.noted.append(number)

    def updated(self, step: Step) -> None:
        """Stop if a signal was noted."""
        if self.noted:
            raise Stopped(self.noted[0])

    def pass_on(self) -> None:
        """Let submitit queue the job again, if it was preempted rather than cancelled; ends the process."""
        # At a preemption SIGTERM comes first.
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and set(self.noted) <= {signal.SIGTERM, signal.SIGINT}:
            time.sleep(0.05)
        for number in self.noted:
            if number != signal.SIGTERM:
                self._before[number](number, None)
        raise SystemExit(128 + self.noted[0])


class Work:
    """What a job does. submitit calls `checkpoint` when the job is preempted or reaches its time limit."""

    def __call__(self, bundle: Bundle) -> list[tuple[str, str]]:
        """Make the runs of a bundle; returns the status of each."""
        where = bundle.where
        torch.set_num_threads(where.threads or 1)
        keep_freed_memory()
        if where.plugin is not None:
            load_plugin(where.plugin)
        with Preemption() as preemption:
            try:
                runs = list(Serial(where, [preemption]).make_runs(bundle.unpacked()))
            except KeyboardInterrupt as error:
                if not preemption.noted:
                    raise SystemExit(getattr(error, "code", 130)) from None
                preemption.pass_on()
        return [(run.id, run.status) for run in runs]

    def checkpoint(self, bundle: Bundle) -> Any:
        """The same bundle once more: what is finished is read, and what was under way resumes."""
        return import_module("submitit").helpers.DelayedSubmission(self, bundle)


# Where the jobs are submitted -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """A job, the experiments that it has, and when it was seen to have ended."""

    handle: Any
    experiments: tuple[Experiment, ...]


class _Jobs:
    """The jobs of a sweep, and the runs that they are to make.

    Args:
        executor: The executor.
        place: The folder of submitit's files and logs.
    """

    def __init__(self, executor: Slurm, place: Path) -> None:
        self.executor, self.place = executor, place
        where = executor.where
        self.where = replace(
            where,
            out=where.folder.absolute(),
            data=None if where.data is None else where.data.absolute(),
            plugin=None if where.plugin is None else where.plugin.absolute(),
        )
        self.jobs: list[_Job] = []
        self.waiting: dict[str, Experiment] = {}
        self.failed: dict[str, int | None] = {}
        self.losses: dict[str, int] = {}
        self.began: set[str] = set()
        self.told: dict[str, int] = {}

    def submit(self, experiments: Sequence[Experiment]) -> None:
        """Submit experiments as one array of jobs.

        Raises:
            InputError: Slurm does not take them.
        """
        everything = survey(experiments, self.where.folder)
        groups = bundles(
            experiments,
            [expected_seconds(run, self._finished()) for run in everything],
            per_job=self.executor.machines.runs_per_job,
        )
        for experiment in experiments:
            self.waiting[experiment.id] = experiment
            self.failed[experiment.id] = failure_stamp(self.where.folder / experiment.id)
        submitit = import_module("submitit")
        try:
            executor = self._submitter(submitit)
            handles = executor.map_array(Work(), [Bundle.of(group, self.where) for group in groups])
        except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
            raise InputError(f"Slurm did not take the jobs: {_reason(error)}") from error
        self.jobs += [_Job(handle, tuple(group)) for handle, group in zip(handles, groups, strict=True)]

    def _finished(self) -> list[Run]:
        """Runs of the folder that say how long a run takes."""
        if not hasattr(self, "_known"):
            folders = [path.parent for path in self.where.folder.glob(f"*/{RESULT}")][:100]
            self._known: list[Run] = []
            for folder in folders:
                with suppress(InputError):
                    self._known.append(Run.load(folder))
        return self._known

    def _submitter(self, submitit: Any) -> Any:
        machines, cluster = self.executor.machines, self.executor.cluster
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise InputError("no Slurm here: sbatch is not in PATH; run this where jobs can be submitted")
        options = {f"{cluster}_max_num_timeout": _REQUEUED}
        executor = submitit.AutoExecutor(folder=self.place / "%j", cluster=cluster, **options)
        executor.update_parameters(
            name="engram",
            timeout_min=machines.minutes or MINUTES,
            cpus_per_task=math.ceil(machines.cpus_per_run or 1),
            gpus_per_node=int(self.where.device.startswith("cuda")),
        )
        if cluster == "slurm":
            chosen: dict[str, object] = {"slurm_array_parallelism": self.where.jobs or 1000}
            if machines.partition is not None:
                chosen["slurm_partition"] = machines.partition
            executor.update_parameters(**chosen)
        return executor

    def run(self) -> Iterator[Run]:
        """Yield runs as they end."""
        while self.waiting:
            ended = [job for job in self.jobs if self._has_ended(job)]
            for run in self._results():
                self._end(run)
                yield run
            for job in ended:
                self.jobs.remove(job)
                for run in self._after(job):
                    self._end(run)
                    yield run
            if self.waiting:
                time.sleep(LOOK_SECONDS * max(1.0, len(self.waiting) / 1000))

    def _end(self, run: Run) -> None:
        self.waiting.pop(run.id, None)
        self.executor._ended(run)

    def _results(self) -> Iterator[Run]:
        """The runs that have ended; observers are told of those that are under way."""
        for experiment in [*self.waiting.values()]:
            folder = self.where.folder / experiment.id
            if (folder / RESULT).is_file() or failure_stamp(folder) != self.failed[experiment.id]:
                run = Run.find(experiment, self.where.folder)
                if run.finished or self._is_final(run):
                    yield run
                    continue
            self._tell(experiment, folder)

    def _is_final(self, run: Run) -> bool:
        """Whether a run failed since it was submitted, and will not go on by itself."""
        if run.failure is None or run.failure.kind in (FailureKind.INTERRUPTED, FailureKind.DAMAGED):
            return False
        return failed_since(run, self.failed[run.id])

    def _tell(self, experiment: Experiment, folder: Path) -> None:
        progress = progress_of(folder)
        if progress.step is None or progress.steps is None or self.told.get(experiment.id) == progress.step:
            return
        run = Run(planned=experiment, folder=folder)
        if experiment.id not in self.began:
            self.began.add(experiment.id)
            for observer in self.executor.observers:
                observer.began(run)
        self.told[experiment.id] = progress.step
        tell(
            self.executor.observers,
            Step(
                run,
                progress.step,
                progress.steps,
                progress.learning or 0,
                math.nan,
                resumed=max(0, progress.first - 1),
            ),
        )

    def _has_ended(self, job: _Job) -> bool:
        if self.executor.cluster != "slurm":
            return bool(job.handle.done())
        if job.handle.paths.result_pickle.exists():
            return True
        # Not sacct, as submitit does: many clusters keep no accounts.
        asked = subprocess.run(
            ["squeue", "--noheader", "--jobs", job.handle.job_id, "--format", "%T"],
            capture_output=True,
            text=True,
            check=False,
        )
        unknown = "Invalid job id" in asked.stderr
        return unknown or (asked.returncode == 0 and not asked.stdout.strip())

    def _after(self, job: _Job) -> Iterator[Run]:
        """The runs that a job which has ended did not make: they are submitted again, or have failed."""
        left = [experiment for experiment in job.experiments if experiment.id in self.waiting]
        deadline = time.monotonic() + SEEN_SECONDS
        while left and self._made(job) and time.monotonic() < deadline:
            # On network disks a result may take a moment to be seen.
            yield from self._results()
            left = [experiment for experiment in left if experiment.id in self.waiting]
            if left:
                time.sleep(LOOK_SECONDS)
        if left and self._made(job):
            raise InputError(
                f"the nodes of the cluster do not share {self.where.folder}: their runs are not seen here; "
                "choose a folder that they see with --out"
            )
        again = []
        for experiment in left:
            if holder_of(self.where.folder / experiment.id) is not None:
                again.append(experiment)
                continue
            began = (self.where.folder / experiment.id).is_dir()
            self.losses[experiment.id] = self.losses.get(experiment.id, 0) + began
            if self.losses[experiment.id] >= MOST_LOSSES or not began:
                reason = f"its job {job.handle.job_id} ended without a result{_last_line(job.handle)}"
                failure = Failure(FailureKind.CRASHED, reason)
                yield record_failure(Run.find(experiment, self.where.folder), failure)
            else:
                again.append(experiment)
        if again:
            warnings.warn(f"job {job.handle.job_id} ended early: its runs are submitted again", stacklevel=2)
            self.submit(again)

    def _made(self, job: _Job) -> bool:
        """Whether a job came to its end."""
        return bool(job.handle.paths.result_pickle.exists())

    def cancel(self) -> None:
        """Cancel the jobs, and wait until their runs have written checkpoints."""
        with suppress(OSError, subprocess.SubprocessError):
            for job in self.jobs:
                job.handle.cancel(check=False)
        deadline = time.monotonic() + CANCEL_SECONDS
        while time.monotonic() < deadline and not all(self._has_ended(job) for job in self.jobs):
            time.sleep(0.2)

    def close(self) -> None:
        """Remove submitit's files and logs, unless something failed: then they help."""
        deadline = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < deadline and not all(self._has_ended(job) for job in self.jobs):
            time.sleep(0.2)
        if not self.losses:
            shutil.rmtree(self.place, ignore_errors=True)


def _reason(error: BaseException) -> str:
    """Why a submission failed, in one line; sbatch says it on stderr, and submitit passes that on."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "error:" in line.lower()]
    return (told or lines or [type(error).__name__])[-1].removeprefix("sbatch: ").removeprefix("error: ")


def _last_line(handle: Any) -> str:
    """The last line that a job wrote to stderr, with a colon in front; empty if there is none."""
    with suppress(OSError):
        lines = handle.paths.stderr.read_text(errors="replace").strip().splitlines()
        if lines:
            return f": {lines[-1][:300]}"
    return ""
