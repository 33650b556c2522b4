"""Which runs a sweep is to make: a small file in the folder of runs, so that others can ask what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engram.core.errors import InputError
from engram.core.files import checksum, read_json, write_json
from engram.core.jsons import JsonObject
from engram.core.owner import Owner
from engram.record.experiment import Experiment

_NAME = ".planned-{}.json"


@dataclass(frozen=True, slots=True)
class Planned:
    """The runs that a sweep is to make.

    Attributes:
        path: The file that says so.
        since: When it was begun or resumed, in words.
        owner: The process that did so; None where the file does not say.
        runs: For each run its id, and what people call it.
    """

    path: Path
    since: str
    owner: Owner | None
    runs: dict[str, str]


def note_planned(out: Path, experiments: Collection[Experiment]) -> None:
    """Write which runs are to be made in a folder, until `forget_planned` removes that.

    Example:
        >>> import tempfile
        >>> from engram.scenarios import split
        >>> folder = Path(tempfile.mkdtemp())
        >>> one = Experiment(split("digits", setting="class"), "er")
        >>> note_planned(folder, [one])
        >>> [planned.runs == {one.id: f"{one.label}, seed 0"} for planned in read_planned(folder)]
        [True]
        >>> forget_planned(folder, [one.id])
        >>> read_planned(folder)
        []
    """
    runs = {planned.id: f"{planned.label}, seed {planned.seed}" for planned in experiments}
    content: JsonObject = {
        "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "owner": Owner.here().as_json(),
        "runs": runs,
    }
    write_json(_place(out, runs), content)


def forget_planned(out: Path, ids: Iterable[str]) -> None:
    """Remove what `note_planned` wrote, because all of these runs have ended."""
    with suppress(OSError):
        _place(out, ids).unlink(missing_ok=True)


def read_planned(out: Path) -> list[Planned]:
    """What the sweeps of a folder are to make; files that cannot be read are left out."""
    found = []
    for path in sorted(out.glob(_NAME.format("*"))):
        with suppress(InputError, LookupError, TypeError, ValueError, AttributeError):
            value = read_json(path)
            runs = {str(name): str(label) for name, label in value["runs"].items()}
            found.append(Planned(path, str(value["since"]), Owner.of_json(value["owner"]), runs))
    return found


def _place(out: Path, ids: Iterable[str]) -> Path:
    return out / _NAME.format(checksum("\n".join(sorted(ids)).encode())[:12])
