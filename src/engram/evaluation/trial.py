"""Whether half precision is faster: a short trial, remembered for this machine and this form of network."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from engram.core.cache import cache_folder
from engram.core.errors import Damaged, InputError
from engram.core.files import checksum, read_json, write_json
from engram.core.jsons import Json
from engram.evaluation.doubt import PROBES, in_blocks
from engram.evaluation.half import half_scorer
from engram.evaluation.passes import Passes

WORTH_IT = 0.85
"""`auto` uses half precision if it takes at most this share of the time."""
TRIALS, MOST_ROWS = 5, 512
EXPECTED = 1 / 32
"""The share of samples that a trial asks again; networks that learn leave 1 to 5 % in doubt."""
FORM = 2
"""Of the file, and of how half precision is computed: what was measured with another one does not count."""
KEPT = 1000
"""Trials in the file, at most; the oldest are dropped."""
SWITCH = "ENGRAM_TRIALS"


@dataclass(frozen=True, slots=True)
class Trial:
    """How long half precision takes.

    Attributes:
        ratio: The time of half precision, with some samples asked again, divided by that of full precision;
            infinite where half precision fails.
        remembered: The day of the trial and the file it was read from; empty if it was made by this process.

    Example:
        >>> print(Trial(0.6))
        half precision takes 0.60 of the time of full precision here (tried in this process)
        >>> Trial(0.6).worth_it, Trial(0.9).worth_it
        (True, False)
    """

    ratio: float
    remembered: str = ""

    @property
    def worth_it(self) -> bool:
        """Whether half precision is to be used."""
        return self.ratio <= WORTH_IT

    def __str__(self) -> str:
        """For `-v`: how long, and how that is known."""
        how = self.remembered or "tried in this process"
        if math.isinf(self.ratio):
            return f"half precision fails here ({how})"
        return f"half precision takes {self.ratio:.2f} of the time of full precision here ({how})"


_TRIALS: dict[str, Trial] = {}
"""The trials that this process has made or read."""


def trial_of(passes: Passes) -> Trial:
    """The trial for networks and samples of this form on this machine: remembered, or else made now.

    It takes the time of asking about some thousand samples. The result is kept in `half-precision.json` of
    the user's cache, which all processes share; `ENGRAM_TRIALS=off` neither reads nor writes it. A file that
    cannot be read or written means another trial. Times are CPU time on CPUs, which other processes hardly
    affect.

    Raises:
        InputError: `ENGRAM_TRIALS` is neither `on` nor `off`.
    """
    rows = trial_rows(passes.questions.total)
    x, _ = passes.questions.pick(torch.arange(rows))
    kind = kind_of(passes, x)
    if kind not in _TRIALS:
        known = None if (place := trials_file()) is None else recall(place, kind)
        if known is None:
            known = Trial(_tried(passes, x))
            if place is not None and math.isfinite(known.ratio):
                remember(place, kind, known)
        _TRIALS[kind] = known
    return _TRIALS[kind]


def trial_rows(total: int) -> int:
    """With how many samples a trial is made: a power of two, so that few trials serve test sets of any size.

    Example:
        >>> [trial_rows(total) for total in (200, 400, 5000)]
        [128, 256, 512]
    """
    return min(MOST_ROWS, 1 << (total.bit_length() - 1))


def kind_of(passes: Passes, x: Tensor) -> str:
    """What a trial depends on: machine, device, threads, PyTorch, the form of the network and its samples."""
    kind = type(passes.network)
    shapes = [tuple(weight.shape) for weight in passes.network.parameters()]
    layers = [type(module).__qualname__ for module in passes.network.modules()]
    form = checksum(repr((kind.__module__, layers, shapes)).encode())[:16]
    device = x.device.type if x.device.type == "cpu" else torch.cuda.get_device_name(x.device)
    return (
        f"{machine()}; {device}; {torch.get_num_threads()} threads; torch {torch.__version__}; "
        f"{kind.__qualname__} {form}; {str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
        f"{'' if passes.lattice is None else ' of 8-bit numbers'}"
    )


@cache
def machine() -> str:
    """The name of this machine and of its processor, and the instructions that may be used."""
    model = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    parts = (socket.gethostname(), model, torch.backends.cpu.get_cpu_capability(), allowed)
    return ", ".join(part for part in parts if part)


def trials_file() -> Path | None:
    """Where trials are remembered; None where they are not.

    Raises:
        InputError: `ENGRAM_TRIALS` is neither `on` nor `off`.
    """
    wanted = os.environ.get(SWITCH) or "on"
    if wanted not in ("on", "off"):
        raise InputError(f"{SWITCH} must be on or off, got {wanted!r}")
    with suppress(RuntimeError):  # There is no home folder.
        return cache_folder() / "half-precision.json" if wanted == "on" else None
    return None


def recall(place: Path, kind: str) -> Trial | None:
    """A trial of the same kind from the file; None if there is none.

    Example:
        >>> recall(Path("nowhere.json"), "a kind") is None
        True
    """
    entry = _entries(place).get(kind)
    if not isinstance(entry, dict):
        return None
    ratio, day = entry.get("ratio"), entry.get("day")
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not ratio > 0:
        return None
    return Trial(float(ratio), f"remembered from {day} in {place}")


def remember(place: Path, kind: str, trial: Trial) -> None:
    """Add a trial to the file, whole or not at all; what cannot be written is not remembered.

    Where two processes write at once, one of the trials is made again some day.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "trials.json"
        >>> remember(place, "a kind", Trial(0.5))
        >>> recall(place, "a kind").ratio
        0.5
    """
    entries = _entries(place)
    entries.pop(kind, None)
    entries[kind] = {"ratio": round(trial.ratio, 4), "day": datetime.now(UTC).date().isoformat()}
    newest = dict(list(entries.items())[-KEPT:])
    with suppress(InputError):
        write_json(place, {"form": FORM, "trials": newest})


def _entries(place: Path) -> dict[str, Json]:
    """The trials in a file; none where it cannot be read or has another form."""
    try:
        content = read_json(place)
    except (InputError, Damaged):
        return {}
    if not isinstance(content, dict) or content.get("form") != FORM:
        return {}
    trials = content.get("trials")
    return dict(trials) if isinstance(trials, dict) else {}


def _tried(passes: Passes, x: Tensor) -> float:
    """The ratio of the shortest times, each of a few; infinite where half precision fails."""
    again = x[: in_blocks(PROBES + int(EXPECTED * len(x)))]
    form = half_scorer(passes.network, passes.dense, passes.lattice).form
    given, _ = passes.questions.read_as(form, slice(0, len(x)))

    def full() -> None:
        passes.scorer(x)

    def half() -> None:
        half_scorer(passes.network, passes.dense, passes.lattice).scores(given)
        passes.scorer(again)

    shortest = {"full": math.inf, "half": math.inf}
    try:
        for number in range(TRIALS + 1):
            for name, way in (("full", full), ("half", half)):
                spent = _seconds(way, passes, x.device)
                if number:  # The first of each is a warm-up.
                    shortest[name] = min(shortest[name], spent)
    except (RuntimeError, TypeError, ValueError):
        return math.inf
    return shortest["half"] / max(shortest["full"], 1e-9)


def _seconds(ask: Callable[[], None], passes: Passes, device: torch.device) -> float:
    started = _clock(device)
    with passes.answering():
        ask()
    return _clock(device) - started


def _clock(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()
