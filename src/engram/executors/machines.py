"""Which machines make the runs of a sweep: one value, from the command line or from Python."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from engram.core.errors import InputError, unknown_name

EXECUTORS = ("processes", "serial", "ray", "slurm")

_OF_RAY = ("address", "gpus_per_run")
_OF_SLURM = ("partition", "minutes", "runs_per_job")
_OF_CLUSTERS = ("cpus_per_run",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Where the runs of a sweep are made, and what each of them gets.

    Attributes:
        on: `processes` of this machine, one after the other in this one (`serial`), a `ray` cluster, or
            `slurm`.
        address: The address of a Ray cluster; `auto` for the one that this machine belongs to; None for
            `RAY_ADDRESS`, or else a new one on this machine.
        cpus_per_run: The cores that a run gets on a cluster (default: one). It computes with one thread, so
            that its bits are the same everywhere; the others are for reading data.
        gpus_per_run: The GPUs that a run gets on a Ray cluster, in fractions if several runs share one.
        partition: The Slurm partition (default: the cluster's default).
        minutes: The time limit of a Slurm job (default: 60). At its end the job is queued again.
        runs_per_job: How many runs a Slurm job makes one after the other (default: as many as are expected to
            take ten minutes).

    Example:
        >>> Machines(on="ray", cpus_per_run=2).on
        'ray'
        >>> Machines(on="serial", partition="gpu")
        Traceback (most recent call last):
        engram.core.errors.InputError: partition is for --on slurm, got --on serial
    """

    on: str = "processes"
    address: str | None = None
    cpus_per_run: float | None = None
    gpus_per_run: float | None = None
    partition: str | None = None
    minutes: int | None = None
    runs_per_job: int | None = None

    def __post_init__(self) -> None:
        if self.on not in EXECUTORS:
            raise unknown_name("executor", self.on, EXECUTORS)
        for names, meant in ((_OF_RAY, ("ray",)), (_OF_SLURM, ("slurm",)), (_OF_CLUSTERS, ("ray", "slurm"))):
            for name in names:
                if getattr(self, name) is not None and self.on not in meant:
                    option = name.replace("_", "-")
                    raise InputError(f"{option} is for --on {' or '.join(meant)}, got --on {self.on}")
        if self.cpus_per_run is not None and not self.cpus_per_run > 0:
            raise InputError(f"cpus-per-run must be above 0, got {self.cpus_per_run:g}")
        if self.gpus_per_run is not None and not self.gpus_per_run >= 0:
            raise InputError(f"gpus-per-run must be at least 0, got {self.gpus_per_run:g}")
        for name in ("minutes", "runs_per_job"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise InputError(f"{name.replace('_', '-')} must be at least 1, got {number}")

    @property
    def local(self) -> bool:
        """Whether these are processes of this machine."""
        return self.on in ("processes", "serial")

    def check_jobs(self, jobs: int | None) -> None:
        """Check that these machines make so many runs at a time.

        Raises:
            InputError: They make one after the other.
        """
        if self.on == "serial" and jobs is not None and jobs > 1:
            raise InputError(
                f"--on serial makes one run after the other, got jobs {jobs}: leave one of the two out"
            )

    def check_installed(self) -> None:
        """Check that the library that these machines need is installed.

        Raises:
            InputError: It is not.
        """
        library = {"ray": "ray", "slurm": "submitit"}.get(self.on)
        if library is not None and find_spec(library) is None:
            install = f"pip install 'engram-eval[{self.on}]'"
            raise InputError(f"--on {self.on} needs {library}, which is not installed: {install}")
