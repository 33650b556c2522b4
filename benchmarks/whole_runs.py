"""Runs that studies of traces start from: evaluated on all samples after every update, with one thread."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import Skipped
from engram.core.errors import InputError
from engram.core.jsons import Json


def whole_run(scenario: str, method: str, *, out: Path, **options: Json) -> Path:
    """The folder of such a run; one that is there is not run again.

    Raises:
        Skipped: Its data are not there.
    """
    import torch

    import engram

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = engram.run(scenario, method, out=out, **options)
    except InputError as error:
        raise Skipped(f"it needs {scenario}: {error}") from error
    finally:
        torch.set_num_threads(threads)
    assert run.folder is not None
    return run.folder
