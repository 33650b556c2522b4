"""A run whose files were changed is noticed, or says what it said before."""

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engram.core.errors import Damaged
from engram.core.files import checksum, read_json, write_json
from engram.core.folder import ENDS, EXPERIMENT, FAILURE, PROBES, RESULT, TRACE, Reading
from engram.core.trace import Trace
from engram.metrics.summary import summarise
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.incomplete import why_incomplete
from engram.record.result import Seconds
from engram.record.run import Run
from engram.record.seal import check_seal, digest_of, sealed
from engram.record.tables import Tables
from engram.record.weights import FINAL
from engram.results.integrity import check_run, check_runs
from engram.results.runs import find_runs, without_damaged
from engram.scenarios import split


def trace_of(seed: int, *, steps: int, samples: int) -> Trace:
    trace, draw = Trace(), np.random.default_rng(seed)
    for step in range(1, steps + 1):
        learning = 2 * (step - 1) // steps
        for task in range(learning + 1):
            trace.add(step=step, learning=learning, task=task, right=draw.random(samples) < 0.7)
    return trace


def made(folder: Path) -> Run:
    """A finished run with all tables, whose metrics are those of its trace."""
    trace, ends = trace_of(0, steps=20, samples=37), trace_of(1, steps=2, samples=50)
    measured = summarise(trace, ends=ends, classes_seen=[2, 4], phases=[(0,), (1,)])
    readings: list[Reading] = [(step, 0, None, "loss", 1 / step) for step in range(1, 20)]
    return Run(
        description={"id": folder.name, "label": "mine", "method": "er", "seed": 7},
        finished=True,
        stored=measured.final,
        by_task=measured.by_task,
        why=measured.why,
        classes=(2, 4),
        phases={0: (0,), 1: (1,)},
        updates=20,
        seconds=Seconds(1.5, 0.25),
        tables=Tables(trace, ends=ends, readings=readings),
    ).save(folder)


def failed(folder: Path, *, empty: bool = False) -> Run:
    """A run that ended early, with what was measured until then."""
    run = made(folder)
    (folder / RESULT).unlink()
    failure = Failure(FailureKind.DIVERGED, "the loss became nan at step 20", step=20, task=1)
    tables = Tables() if empty else run.tables
    return replace(run, finished=False, failure=failure, stored={}, tables=tables).save()


def everything(folder: Path) -> str:
    """All that a run says, as text."""
    run = Run.load(folder)
    known = sorted(run.result().items()), run.failure
    return repr(
        (run.description, known, dict(run.versions), vars_of(run.trace), vars_of(run.ends), run.readings)
    )


def vars_of(trace: Trace) -> tuple[object, ...]:
    return trace.step, trace.learning, trace.task, trace.correct, trace.total, trace.bits


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((made, name) for name in (EXPERIMENT, RESULT, TRACE, ENDS, PROBES)),
        *((failed, name) for name in (EXPERIMENT, FAILURE, TRACE, ENDS, PROBES)),
    ],
)
def test_a_flipped_bit_is_noticed_or_changes_nothing(
    make: Callable[[Path], Run], name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    make(folder)
    whole, content = everything(folder), (folder / name).read_bytes()
    draw, noticed = random.Random(0), 0
    places = draw.sample(range(len(content)), min(120, len(content)))
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        (folder / name).write_bytes(changed)
        try:
            assert everything(folder) == whole, place
        except Damaged as error:
            noticed += 1
            assert name in str(error) and "\n" not in str(error)
    # White space in JSON means nothing; every bit of a table does.
    assert noticed == len(places) if name.endswith(".parquet") else noticed > 0.8 * len(places)


def test_a_failed_run_of_an_earlier_version_is_read_as_before(tmp_path: Path) -> None:
    failed(tmp_path)
    whole = everything(tmp_path)
    written = read_json(tmp_path / FAILURE)
    earlier = {name: value for name, value in written.items() if name not in ("digest", "checksums")}
    write_json(tmp_path / FAILURE, earlier)
    assert everything(tmp_path) == whole


def test_a_failed_run_without_tables_has_a_digest(tmp_path: Path) -> None:
    failed(tmp_path, empty=True)
    assert Run.load(tmp_path).failure is not None
    written = read_json(tmp_path / FAILURE)
    write_json(tmp_path / FAILURE, {**written, "step": 8})
    with pytest.raises(Damaged, match=r"failure\.json is damaged"):
        Run.load(tmp_path)


@pytest.mark.parametrize("name", [RESULT, TRACE, ENDS, PROBES])
def test_a_file_that_is_cut_short_or_gone_is_noticed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    made(folder)
    content = (folder / name).read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 2):
        (folder / name).write_bytes(content[:length])
        with pytest.raises(Damaged, match=name):
            everything(folder)
    if name != RESULT:
        (folder / name).unlink()
        with pytest.raises(ValueError, match=name):
            everything(folder)


def test_a_table_of_another_run_is_noticed(tmp_path: Path) -> None:
    made(tmp_path / "one")
    replace(made(tmp_path / "other"), tables=Tables(trace_of(5, steps=20, samples=37))).save()
    (tmp_path / "one" / TRACE).write_bytes((tmp_path / "other" / TRACE).read_bytes())
    with pytest.raises(Damaged, match=r"checksum is not the recorded one; run it again with --again, or"):
        _ = Run.load(tmp_path / "one").curve
    with pytest.raises(Damaged, match=r"one/trace\.parquet is damaged: its checksum is not the recorded one"):
        _ = Run.load(tmp_path / "one").trace


def test_a_table_that_an_earlier_attempt_left_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    tables = Tables(trace_of(0, steps=20, samples=37))
    saved = replace(made(folder), tables=tables).save()
    assert (folder / PROBES).is_file() and saved.readings == ()
    assert Run.load(folder).readings == () and len(Run.load(folder).ends) == 0


# What earlier versions wrote -------------------------------------------------------------------------


def without_checksums(folder: Path) -> None:
    result = read_json(folder / RESULT)
    write_json(folder / RESULT, {k: v for k, v in result.items() if k not in ("digest", "checksums")})


def test_a_run_without_checksums_is_read_as_before(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    made(folder)
    whole = everything(folder)
    without_checksums(folder)
    assert everything(folder) == whole
    assert check_run(Run.load(folder)).status == "done"
    Run.load(folder).save()
    assert "digest" in read_json(folder / RESULT) and everything(folder) == whole


def test_half_of_a_seal_is_not_an_earlier_version(tmp_path: Path) -> None:
    made(tmp_path)
    result = read_json(tmp_path / RESULT)
    write_json(tmp_path / RESULT, {k: v for k, v in result.items() if k != "digest"})
    with pytest.raises(Damaged, match="its digest is not that of its content"):
        Run.load(tmp_path)
    write_json(tmp_path / RESULT, {k: v for k, v in result.items() if k != "checksums"})
    with pytest.raises(Damaged, match="its digest is not that of its content"):
        Run.load(tmp_path)


def test_a_seal_is_about_content_not_about_layout(tmp_path: Path) -> None:
    value = {"metrics": {"ACC": 0.1 + 0.2, "FWT": None}, "checksums": {}, "words": "größer"}
    written = json.loads(json.dumps(sealed(value), indent=7, sort_keys=True))
    check_seal(written, tmp_path)
    assert digest_of(value) != digest_of({**value, "words": "grosser"})


@pytest.mark.parametrize(
    ("column", "value"),
    [("correct", 3), ("total", 99), ("total", 4), ("bits", b"\xff\xff"), ("bits", b"\x00")],
)
def test_a_trace_that_contradicts_itself_is_noticed(column: str, value: object, tmp_path: Path) -> None:
    """Also where nobody recorded a checksum."""
    trace = Trace()
    for step in range(3):
        trace.add(step=step, learning=0, task=0, right=np.arange(12) < 5)
    trace.save(tmp_path / TRACE)
    assert Trace.load(tmp_path / TRACE) == trace
    getattr(trace, column)[1] = value
    trace.save(tmp_path / TRACE)
    with pytest.raises(Damaged, match="in row 1, the number of correct samples is not that of its bits"):
        Trace.load(tmp_path / TRACE)


def test_a_trace_without_bits_has_nothing_to_contradict(tmp_path: Path) -> None:
    trace = Trace([1, 2], [0, 0], [0, 0], [5, 6], [10, 10], [b"", b""])
    trace.save(tmp_path / TRACE)
    assert Trace.load(tmp_path / TRACE) == trace


# All of it -------------------------------------------------------------------------------------------


def test_metrics_that_are_not_those_of_the_trace_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    run = made(folder)
    assert check_run(Run.load(folder)).problems == ()
    # A seal holds off accidents, not intentions: this is a consistent record of wrong numbers.
    replace(run, stored={**run.stored, "ACC": run.stored["ACC"] + 0.01}).save()
    checked = check_run(Run.load(folder))
    assert checked.status == "damaged"
    [problem] = checked.problems
    assert problem.startswith("ACC is stored as 0.") and "but the trace gives 0." in problem


def test_all_runs_of_a_folder_are_checked(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        made(tmp_path / name)
    (tmp_path / "b" / ENDS).write_bytes(b"PAR1")
    (tmp_path / "c" / RESULT).write_text("null")
    (tmp_path / "d" / RESULT).unlink()
    checked = {run.folder.name: run for run in check_runs([tmp_path])}
    assert {name: run.status for name, run in checked.items()} == {
        **{"a": "done", "b": "damaged", "c": "damaged", "d": "unfinished"}
    }
    assert "ends.parquet" in checked["b"].problems[0] and "result.json" in checked["c"].problems[0]


def test_the_weights_that_a_run_kept_are_checked(tmp_path: Path) -> None:
    run = made(tmp_path / "mine")
    weights = {name: checksum(name.encode()) for name in ("weights-task-1.safetensors", FINAL)}
    for name in weights:
        (tmp_path / "mine" / name).write_bytes(name.encode())
    replace(run, weights=weights).save()
    assert check_run(Run.load(tmp_path / "mine")).problems == ()
    (tmp_path / "mine" / FINAL).write_bytes(b"other")
    (tmp_path / "mine" / "weights-task-1.safetensors").unlink()
    checked = check_run(Run.load(tmp_path / "mine"))
    assert checked.status == "damaged"
    gone, changed = checked.problems
    assert gone.endswith("weights-task-1.safetensors are missing")
    assert changed.endswith(f"{FINAL} are damaged: their hash is not the recorded one")


def test_damaged_runs_are_named_not_missed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made(tmp_path / name)
    (tmp_path / "b" / RESULT).write_text("null")
    runs = find_runs(tmp_path)
    [damaged] = runs.incomplete
    assert [run.id for run in runs] == ["a"] and damaged.id == "b" and damaged.status == "damaged"
    with pytest.raises(Damaged, match=r"b/result\.json is not a JSON object"):
        Run.load(tmp_path / "b")
    assert not math.isnan(runs[0].metrics["ACC"])


@pytest.mark.parametrize("make", [made, failed])
def test_a_folder_that_has_the_name_of_another_run_is_noticed(
    make: Callable[[Path], Run], tmp_path: Path
) -> None:
    names = [f"digits-er-s{seed}-0123456789ab" for seed in (0, 1)]
    make(tmp_path / names[1])
    shutil.copytree(tmp_path / names[1], tmp_path / names[0])
    with pytest.raises(Damaged, match=rf"s0-\w+/experiment\.json is that of another run, {names[1]}"):
        Run.load(tmp_path / names[0])
    assert [run.status == "damaged" for run in check_runs([tmp_path])] == [True, False]
    # Folders that people name are theirs.
    shutil.copytree(tmp_path / names[1], tmp_path / "mine")
    assert Run.load(tmp_path / "mine").id == names[1]


def test_the_result_of_another_run_is_not_that_of_an_experiment(tmp_path: Path) -> None:
    planned = Experiment(split("digits", setting="class"), "er")
    other = made(tmp_path / replace(planned, seed=1).id)
    shutil.copytree(tmp_path / other.id, tmp_path / planned.id)
    run = Run.find(planned, tmp_path)
    assert run.status == "damaged"
    assert f"result.json is that of another run, {other.id}" in why_incomplete(run)


def test_runs_with_damaged_tables_are_left_out(tmp_path: Path) -> None:
    for name in "abcd":
        made(tmp_path / name)
    (tmp_path / "b" / TRACE).unlink()
    (tmp_path / "c" / ENDS).write_bytes(b"")
    (tmp_path / "d" / ENDS).unlink()
    runs = without_damaged(find_runs(tmp_path))
    assert [run.id for run in runs] == ["a"]
    assert [(run.id, run.status) for run in runs.incomplete] == [(name, "damaged") for name in "bcd"]
    assert "ends.parquet" in why_incomplete(runs.incomplete[1])
    assert "ends.parquet is missing" in why_incomplete(runs.incomplete[2])
