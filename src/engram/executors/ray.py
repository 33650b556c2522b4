"""The executor that runs experiments on a Ray cluster, whose workers and nodes may die at any time."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, final

from engram.core.errors import InputError
from engram.core.files import as_input_error, make_folder, remove_left_over, temporary_path
from engram.core.leases import Held, lease
from engram.core.stopping import NUMBERS
from engram.engine.execute import attempt, record_failure
from engram.engine.observers import Observer, tell
from engram.engine.progress import ProgressFile
from engram.engine.where import Where
from engram.executors.cargo import Cargo, Packer
from engram.executors.elsewhere import Order, Outcome, carry_out, order_for, receive
from engram.executors.executor import Executor
from engram.executors.machines import Machines
from engram.executors.queue import ExperimentQueue, failed_since, failure_stamp
from engram.executors.worker import Told, step_of
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.run import Run

LOOK_SECONDS = 0.3
"""How often to look for news."""

CANCEL_SECONDS = 20.0
"""So long a run that is cancelled may take to write its checkpoint."""

SEEN_SECONDS = 30.0
"""So long it may take until a file that another machine wrote is seen here."""

MOST_LOSSES = 3
"""So often the worker of a run may die without having come further; then it is the run's fault."""

_MARK = ".mark"
"""How the name of the file ends by which a machine sees that it shares the folder."""

_AHEAD = 64
"""At least so many runs are submitted at a time, so that a cluster that can grow knows what is wanted."""


@final
class Ray(Executor):
    """Runs experiments on a Ray cluster, of which this machine is a part or which is started here.

    Data sets, the plugin file and weights are sent to each machine once. Where a machine sees the folder of
    runs, it writes there, and a run resumes from its checkpoint on any machine. Where it does not, the files
    of a run come back through Ray. The run of a worker or node that dies is submitted again. If this process
    dies, the next one goes on with what is in the folder.

    Args:
        where: Where and how to run; `jobs` limits the parallel runs (default: what the cluster has).
        observers: Notified of every step of all runs.
        machines: The cluster's address, and what each run gets.
        shared: Whether all machines see the folder of runs (default: each of them looks).
    """

    def __init__(
        self,
        where: Where,
        observers: Sequence[Observer] = (),
        *,
        machines: Machines | None = None,
        shared: bool | None = None,
    ) -> None:
        super().__init__(where, observers)
        self.machines = Machines(on="ray") if machines is None else machines
        self.shared = shared

    def make_runs(self, waiting: Sequence[Experiment]) -> Generator[Run, None, None]:
        """Run experiments on the cluster."""
        self.machines.check_installed()
        ray = connect(self.machines.address)
        resources = self._resources(ray)
        where = _absolute(self.where)
        # What a process that was killed left goes first.
        remove_left_over(where.folder, of="shared", ending=_MARK)
        mark = temporary_path(where.folder / "shared", ending=_MARK).name
        with ExitStack() as stack:
            place = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="engram-data-", ignore_cleanup_errors=True)
            )
            with as_input_error(f"cannot write to {where.folder}", "; choose another folder"):
                (where.folder / mark).touch()
            stack.callback((where.folder / mark).unlink, missing_ok=True)
            packer = Packer()
            cargo = packer.pack(waiting, Path(place), data=where.data, plugin=where.plugin)
            with _Crew(ray, self, where, cargo, mark, resources) as crew:
                crew.send(packer)
                yield from crew.run(ExperimentQueue(waiting, where.folder))

    def _resources(self, ray: Any) -> dict[str, float]:
        """What a run gets, if any node of the cluster has that.

        Raises:
            InputError: None has.
        """
        machines = self.machines
        gpus = float(self.where.device.startswith("cuda"))
        wanted = {
            "CPU": 1.0 if machines.cpus_per_run is None else machines.cpus_per_run,
            "GPU": gpus if machines.gpus_per_run is None else machines.gpus_per_run,
        }
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            amounts = f"{wanted['CPU']:g} CPUs and {wanted['GPU']:g} GPUs"
            raise InputError(
                f"no node of the Ray cluster has the {amounts} that a run is to get: "
                "lower --cpus-per-run or --gpus-per-run"
            )
        return {"num_cpus": wanted["CPU"], "num_gpus": wanted["GPU"]}


def connect(address: str | None) -> Any:
    """The library `ray`, connected to a cluster; a connection that exists is used.

    Args:
        address: `host:port`, `auto` for the cluster that this machine belongs to, None for `RAY_ADDRESS`, or
            else a new cluster on this machine.

    Raises:
        InputError: The cluster does not answer.
    """
    # Before the import, which reads it: nothing is reported to anybody.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_module("ray")
    if ray.is_initialized():
        return ray
    named = address or os.environ.get("RAY_ADDRESS") or None
    _check_address(named)
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(
                address=named,
                log_to_driver=False,
                configure_logging=False,
                logging_level="ERROR",
                **({} if named else {"include_dashboard": False}),
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = str(error).strip().partition(". ")[0].partition("\n")[0].rstrip(".")
            raise InputError(
                f"the Ray cluster {named or 'on this machine'} does not answer: {reason}; start one with "
                "`ray start --head`, or name its address"
            ) from error
    return ray


def _check_address(address: str | None) -> None:
    """Notice within seconds that nobody listens: Ray itself would try for a minute."""
    if address is None or address == "auto" or "://" in address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"the address of a Ray cluster must be auto or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"the Ray cluster {address} does not answer: {getattr(error, 'strerror', None) or error}; "
            "start one with `ray start --head`, or name its address"
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what signals do here: Ray would have SIGTERM end the process without a word."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(ValueError):
                signal.signal(number, handler)


def _absolute(where: Where) -> Where:
    """The same with paths that do not depend on the working directory."""
    return replace(
        where,
        # The cores of a node belong to other runs too.
        parallel="off" if where.parallel == "auto" else where.parallel,
        out=where.folder.absolute(),
        data=None if where.data is None else where.data.absolute(),
        plugin=None if where.plugin is None else where.plugin.absolute(),
    )


@dataclass
class _Submitted:
    """A run that Ray has.

    Attributes:
        run: The run.
        failed: When its folder's `failure.json` was written, if there was one.
        heard: When it told something last; None before it began.
        step: The last step that it told.
        kept: Held while it is made on a machine that does not see the folder: its lease, and its progress.
        progress: Tells others how far it is, in the same case.
    """

    run: Run
    failed: int | None
    heard: float | None = None
    step: Told | None = None
    kept: ExitStack = field(default_factory=ExitStack)
    progress: ProgressFile | None = None


class _Crew:
    """The runs that a cluster is making, and what is known of each.

    Args:
        ray: The library.
        executor: The executor.
        where: Where and how to run, in absolute paths.
        cargo: What the runs need.
        mark: The name of the file by which a machine sees that it shares the folder.
        resources: What a run gets.
    """

    def __init__(
        self, ray: Any, executor: Ray, where: Where, cargo: Cargo, mark: str, resources: dict[str, float]
    ) -> None:
        self.ray, self.executor, self.where, self.cargo, self.mark = ray, executor, where, cargo, mark
        self.observers = executor.observers
        self.contents: dict[str, Any] = {}
        self.submitted: dict[Any, _Submitted] = {}
        self.losses: dict[str, tuple[int, int]] = {}
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        # Its runs are submitted again here, which knows where they resume.
        options = {"max_retries": 0, "scheduling_strategy": "SPREAD", **resources}
        self.task = ray.remote(run_order).options(**options)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(self.mailbox)

    def send(self, packer: Packer) -> None:
        """Put all files where every node can get them once."""
        numpy = import_module("numpy")
        for sha256, file in packer.places.items():
            with as_input_error(f"cannot read {file}"):
                content = file.read_bytes()
            try:
                self.contents[sha256] = self.ray.put(numpy.frombuffer(content, numpy.uint8))
            except self.ray.exceptions.ObjectStoreFullError as error:
                raise InputError(
                    f"{file.name} does not fit into Ray's object store: start Ray with a larger "
                    "--object-store-memory"
                ) from error

    def run(self, queue: ExperimentQueue) -> Iterator[Run]:
        """Yield the run of every experiment in the queue as it ends, here or in another process."""
        while queue or self.submitted:
            for run in self._submit(queue):
                self.executor._ended(run)
                yield run
            if not self.submitted:
                if queue:
                    queue.wait()
                continue
            ready, _ = self.ray.wait([*self.submitted], num_returns=1, timeout=LOOK_SECONDS)
            self._hear()
            for reference in [*ready, *self._late()]:
                run_or_experiment = self._end(reference)
                if isinstance(run_or_experiment, Experiment):
                    queue.put_back(run_or_experiment)
                elif run_or_experiment is not None:
                    self.executor._ended(run_or_experiment)
                    yield run_or_experiment

    def _submit(self, queue: ExperimentQueue) -> Iterator[Run]:
        """Submit as many runs as there may be; yield those that other processes ended."""
        while queue and len(self.submitted) < self._most():
            match queue.take():
                case None:
                    return
                case Run(finished=False) as failed:
                    yield failed
                case Run() as run:
                    yield attempt(run.experiment, self.where)
                case Experiment() as experiment:
                    folder = self.where.folder / experiment.id
                    reference = self.task.remote(
                        order_for(experiment, self.where, self.cargo, self.mark),
                        self.contents,
                        self.mailbox,
                        self.executor.shared,
                    )
                    self.submitted[reference] = _Submitted(
                        Run(planned=experiment, folder=folder), failure_stamp(folder)
                    )

    def _most(self) -> int:
        if self.where.jobs is not None:
            return self.where.jobs
        return max(_AHEAD, 2 * int(self.ray.cluster_resources().get("CPU", 1)))

    # What runs tell ---------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Read what runs told since the last time, and pass it on."""
        by_id = {submitted.run.id: submitted for submitted in self.submitted.values()}
        try:
            letters: list[Letter] = self.ray.get(self.mailbox.empty.remote(), timeout=CANCEL_SECONDS)
        except self.ray.exceptions.RayError:
            # Only progress is lost; results come another way.
            return
        for letter in letters:
            if (submitted := by_id.get(letter.run)) is not None:
                self._note(submitted, letter)

    def _note(self, submitted: _Submitted, letter: Letter) -> None:
        if submitted.heard is None:
            if not letter.shared:
                self._hold(submitted)
            for observer in self.observers:
                observer.began(submitted.run)
        submitted.heard = time.monotonic()
        for told in letter.told:
            submitted.step = told
            step = step_of(told, submitted.run)
            tell(self.observers, step)
            if submitted.progress is not None:
                submitted.progress.updated(step)

    def _hold(self, submitted: _Submitted) -> None:
        """Hold the lease of a run that is made where its folder is not seen; `receive` checks again."""
        assert submitted.run.folder is not None
        with suppress(Held, InputError):
            make_folder(submitted.run.folder)
            submitted.kept.enter_context(lease(submitted.run.folder))
            submitted.progress = submitted.kept.enter_context(ProgressFile(submitted.run.folder))

    def _late(self) -> list[Any]:
        """End the runs that take too long."""
        timeout = self.where.timeout
        if timeout is None:
            return []
        now = time.monotonic()
        late = [
            reference
            for reference, submitted in self.submitted.items()
            if submitted.heard is not None and now - submitted.heard > timeout
        ]
        for reference in late:
            self.ray.cancel(reference, force=True)
        return late

    # How runs end -----------------------------------------------------------------------------------

    def _end(self, reference: Any) -> Run | Experiment | None:
        """The run that ended; its experiment if it is to be submitted again; None if it is known."""
        submitted = self.submitted.pop(reference, None)
        if submitted is None:
            return None
        experiment, errors = submitted.run.experiment, self.ray.exceptions
        submitted.kept.close()
        late = self.where.timeout is not None and (
            submitted.heard is not None and time.monotonic() - submitted.heard > self.where.timeout
        )
        try:
            outcome: Outcome = self.ray.get(reference, timeout=CANCEL_SECONDS)
        except (errors.RayTaskError, errors.TaskCancelledError, errors.RayError) as error:
            if late:
                return self._failed(submitted, _timed_out(submitted.step, self.where.timeout or 0.0))
            if isinstance(error, errors.RayTaskError):
                return self._failed(submitted, _broken(error))
            return self._lost(submitted, error)
        if outcome.held:
            return experiment
        if outcome.files is not None:
            try:
                return receive(experiment, outcome.files, self.where.folder)
            except Held:
                return experiment
        if outcome.failure is not None:
            return self._failed(submitted, outcome.failure)
        return self._seen(submitted)

    def _seen(self, submitted: _Submitted) -> Run | Experiment:
        """The run as another machine wrote it; on network disks that may take a moment to be seen."""
        experiment = submitted.run.experiment
        deadline = time.monotonic() + SEEN_SECONDS
        while True:
            run = Run.find(experiment, self.where.folder)
            if run.finished or failed_since(run, submitted.failed):
                return run
            if time.monotonic() > deadline:
                return experiment
            time.sleep(LOOK_SECONDS)

    def _lost(self, submitted: _Submitted, error: Exception) -> Run | Experiment:
        """The experiment of a worker that died, to be submitted again, unless that happens too often."""
        experiment = submitted.run.experiment
        if (run := Run.find(experiment, self.where.folder)).finished:
            # It died after its run had ended.
            return run
        step = 0 if submitted.step is None else submitted.step.step
        count, furthest = self.losses.get(experiment.id, (0, -1))
        node_died = isinstance(error, self.ray.exceptions.NodeDiedError)
        count = 0 if node_died else count + 1 if step <= furthest else 1
        self.losses[experiment.id] = count, max(step, furthest)
        reason = " ".join(str(error).partition("\n")[0].split())
        if count >= MOST_LOSSES:
            return self._failed(
                submitted, Failure(FailureKind.CRASHED, f"its worker died {count} times: {reason}")
            )
        warnings.warn(
            f"the worker of {experiment.label}, seed {experiment.seed}, died: it is run again", stacklevel=2
        )
        return experiment

    def _failed(self, submitted: _Submitted, failure: Failure) -> Run:
        return record_failure(Run.find(submitted.run.experiment, self.where.folder), failure)

    def _cancel(self) -> None:
        """Let all runs write their checkpoints and end; those that do not are killed."""
        left = [*self.submitted]
        with suppress(self.ray.exceptions.RayError, ConnectionError, RuntimeError):
            for reference in left:
                self.ray.cancel(reference, force=False)
            if left:
                _, stubborn = self.ray.wait(left, num_returns=len(left), timeout=CANCEL_SECONDS)
                for reference in stubborn:
                    self.ray.cancel(reference, force=True)
        for submitted in self.submitted.values():
            submitted.kept.close()
        self.submitted.clear()


def _timed_out(step: Told | None, timeout: float) -> Failure:
    after = "its first update" if step is None else f"the update after step {step.step}"
    reason = (
        f"{after} was not completed in {timeout:g} s (--timeout): "
        "the method hangs, or the update needs more time"
    )
    if step is None:
        return Failure(FailureKind.TIMED_OUT, reason)
    return Failure(FailureKind.TIMED_OUT, reason, step.step, step.learning)


def _broken(error: Any) -> Failure:
    """The failure of a worker that could not even begin, such as one without engram."""
    cause = getattr(error, "cause", None) or error
    return Failure(
        FailureKind.CRASHED,
        f"a worker of the Ray cluster failed: {type(cause).__name__}: {' '.join(str(cause).split())[:300]}",
        details=str(error),
    )


# On the cluster -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Letter:
    """What a run tells: its id, whether its machine sees the folder of runs, and its latest steps."""

    run: str
    shared: bool
    told: tuple[Told, ...]


class Mailbox:
    """An actor beside the process that asked for the runs: runs put letters in, that process takes them out.

    Example:
        >>> box = Mailbox()
        >>> box.put(Letter("a", True, ()))
        >>> [letter.run for letter in box.empty()], box.empty()
        (['a'], [])
    """

    def __init__(self) -> None:
        self.letters: list[Letter] = []

    def put(self, letter: Letter) -> None:
        """Add a letter."""
        self.letters.append(letter)

    def empty(self) -> list[Letter]:
        """Take out all letters."""
        letters, self.letters = self.letters, []
        return letters


def run_order(order: Order, contents: dict[str, Any], mailbox: Any, shared: bool | None) -> Outcome:
    """In a worker of the cluster: make one run."""
    import json

    ray = import_module("ray")
    name = json.loads(order.experiment)["id"]

    def fetch(sha256: str) -> memoryview:
        return memoryview(ray.get(contents[sha256]))

    def told(shared: bool, steps: Sequence[Told]) -> None:
        mailbox.put.remote(Letter(name, shared, tuple(steps)))

    with _interruptible():
        return carry_out(order, fetch, told, shared=shared)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ray cancel what is done inside, also where the node ignores SIGINT, which is how Ray does it.

    One that was started with `nohup` or in the background does, and so do its workers.
    """
    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
