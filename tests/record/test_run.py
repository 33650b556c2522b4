"""A run: saved and loaded as it is, seen from its first second, and read whichever version wrote it."""

import json
import math
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram.core.errors import Damaged, InputError
from engram.core.files import read_json, write_json
from engram.core.folder import ENDS, EXPERIMENT, FAILURE, PROBES, RESULT, TRACE, Reading
from engram.core.trace import Trace
from engram.engine.execute import execute
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.record.account import Account
from engram.record.card import Card, Constraint, Fact, Read
from engram.record.experiment import Experiment
from engram.record.failure import Failure, FailureKind
from engram.record.result import Seconds
from engram.record.run import Run
from engram.record.tables import Tables
from engram.results.runs import find_runs


def trace_of(*accuracies: tuple[int, int, int, float]) -> Trace:
    """Evaluations of ten samples as (step, learning, task, accuracy)."""
    trace = Trace()
    for step, learning, task, accuracy in accuracies:
        trace.add(step=step, learning=learning, task=task, right=np.arange(10) < round(10 * accuracy))
    return trace


TRACE_OF_TWO = trace_of((1, 0, 0, 0.6), (2, 0, 0, 0.9), (3, 1, 0, 0.4), (3, 1, 1, 0.5), (4, 1, 0, 0.7))
ENDS_OF_TWO = trace_of((2, 0, 0, 0.8), (4, 1, 0, 0.6), (4, 1, 1, 0.7))
READINGS: tuple[Reading, ...] = (
    (1, 0, 0, "loss", 2.5),
    (3, 1, 1, "loss", 1.25),
    (4, 1, None, "FDiv", 0.1),
)
CARD = Card(
    (Fact("test data", False, {"samples": 0}), Fact("kept bytes", 27_600, {"bytes": (0, 27_600)}, "a note")),
    (Constraint("causality", "held", {"later samples": 0}),),
    (Read("training", "train", "current", (0, 1), 64),),
    {},
)


def whole(**changes: Any) -> Run:
    """A run that has everything."""
    return replace(
        Run(
            description={
                "id": "mine-7",
                "label": "mine",
                "method": "er",
                "seed": 7,
                "settings": {"memory": 9},
            },
            finished=True,
            stored={"ACC": 0.65, "FWT": math.nan, "FORG": 0.1 + 0.2},
            by_task={"ACC": [0.9, 0.65], "FORG": [math.nan, 0.3]},
            why={"FWT": "needs the accuracies at initialisation"},
            classes=(2, 4),
            phases={0: (0,), 1: (1,)},
            updates=4,
            evaluations=4,
            seconds=Seconds(1.5, 0.25),
            account=Account(10, (0, 7), (120, 120), (0, 1), (0.5, 0.25)),
            card=CARD,
            versions={"engram": "0.1.0", "python": "3.11.2"},
            tables=Tables(TRACE_OF_TWO, ends=ENDS_OF_TWO, readings=READINGS),
        ),
        **changes,
    )


def check_same(one: Run, other: Run) -> None:
    """Every field of two runs but where they lie; a folder only describes the experiment."""
    for name in (
        *("description", "finished", "failure", "why", "classes", "phases", "updates", "evaluations"),
        *("seconds", "account", "card", "versions", "trace", "ends", "readings"),
    ):
        assert getattr(one, name) == getattr(other, name), name
    assert dict(one.stored) == pytest.approx(dict(other.stored), abs=0, rel=0, nan_ok=True)
    assert one.by_task.keys() == other.by_task.keys()
    for name, values in one.by_task.items():
        assert list(values) == pytest.approx(list(other.by_task[name]), abs=0, rel=0, nan_ok=True)


# Saved and loaded ---------------------------------------------------------------------------------


def test_a_run_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    saved = whole().save(tmp_path / "mine")
    assert saved.folder == tmp_path / "mine"
    loaded = Run.load(tmp_path / "mine")
    check_same(loaded, whole())
    assert loaded.status == saved.status == "done" and loaded.folder == saved.folder
    assert loaded.curve.accuracy.shape == (4, 2) and loaded.matrix[1].tolist() == [0.6, 0.7]
    assert math.isnan(loaded.metric("FWT")) and loaded.metric("FORG") == 0.1 + 0.2
    assert loaded.reading("loss") == {(0, 0): 2.5, (1, 1): 1.25}
    assert loaded.probes["FDiv", None].step.tolist() == [4]


def test_what_was_loaded_is_saved_elsewhere_as_it_is(tmp_path: Path) -> None:
    whole().save(tmp_path / "one")
    Run.load(tmp_path / "one").save(tmp_path / "other")
    check_same(Run.load(tmp_path / "other"), whole())
    for name in (EXPERIMENT, RESULT):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_files_are_strict_json(tmp_path: Path) -> None:
    """NaN, which JSON does not know, is null."""
    whole().save(tmp_path)
    text = (tmp_path / RESULT).read_text()
    assert "NaN" not in text
    result = json.loads(text)
    assert result["metrics"] == {"ACC": 0.65, "FWT": None, "FORG": 0.1 + 0.2}
    assert result["by_task"]["FORG"] == [None, 0.3]
    assert result["phases"] == [[0, [0]], [1, [1]]]
    assert result["seconds"] == {"train": 1.5, "evaluate": 0.25, "total": 1.75}


def test_a_run_that_has_hardly_anything_is_saved_as_well(tmp_path: Path) -> None:
    run = Run(description={"id": "x", "label": "x"}, finished=True, tables=Tables(trace_of((1, 0, 0, 0.5))))
    loaded = run.save(tmp_path / "x")
    check_same(Run.load(tmp_path / "x"), loaded)
    assert not (tmp_path / "x" / ENDS).exists() and not (tmp_path / "x" / PROBES).exists()
    assert {"python", "torch", "numpy"} <= loaded.versions.keys()
    assert (loaded.method, loaded.scenario, loaded.setting, loaded.seed) == ("", "", "", None)
    assert loaded.account is None and loaded.card is None and loaded.classes is None


def test_a_run_of_an_experiment_is_loaded_as_it_was(tmp_path: Path) -> None:
    planned = experiment("split-digits", "er", updates=3, evaluation={"subset": 20, "losses": True})
    run = execute(planned, Where(out=tmp_path))
    assert run.experiment == planned
    loaded = Run.load(tmp_path / planned.id)
    check_same(loaded, replace(run, description=json.loads(json.dumps(run.description))))
    assert (loaded.id, loaded.method, loaded.scenario, loaded.setting, loaded.seed) == (
        *(planned.id, "er", "split-digits", "class", 0),
    )
    stored = Run.find(planned, tmp_path)
    assert stored.experiment is planned and stored.trace == run.trace
    assert loaded.experiment == planned and loaded.experiment is loaded.experiment


def test_a_run_without_a_folder_asks_for_one() -> None:
    with pytest.raises(InputError, match=r"name one, as in run\.save\('runs/mine'\)"):
        whole().save()


def test_a_finished_run_takes_its_old_failure_away(tmp_path: Path) -> None:
    whole(finished=False, failure=Failure(FailureKind.CRASHED, "no luck")).save(tmp_path)
    assert Run.load(tmp_path).status == "failed"
    whole().save(tmp_path)
    assert Run.load(tmp_path).status == "done" and not (tmp_path / FAILURE).exists()


def test_tables_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    whole().save(tmp_path)
    (tmp_path / TRACE).write_bytes(b"no table")
    loaded = Run.load(tmp_path)
    with pytest.warns(UserWarning, match="metrics that are not stored are left out"):
        assert loaded.metric("ACC") == 0.65
    assert loaded.ends == ENDS_OF_TWO
    with pytest.raises(Damaged, match="its checksum is not the recorded one") as error:
        _ = loaded.trace
    assert "\n" not in str(error.value) and str(tmp_path / TRACE) in str(error.value)


# Its state ----------------------------------------------------------------------------------------


def small(**options: Any) -> Experiment:
    return experiment("split-digits", "finetune", updates=4, evaluation={"subset": 20}, **options)


def test_a_folder_says_what_it_is_from_the_first_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before data are read and networks are built."""
    seen: list[tuple[str, Run]] = []

    def nothing_yet(*_: object, **__: object) -> Generator[Step, None, Run]:
        early = Run.load(tmp_path / small().id)
        seen.append((early.status, early))
        raise InputError("the data are gone")
        yield

    monkeypatch.setattr("engram.engine.execute.run_steps", nothing_yet)
    assert Run.find(small(), tmp_path).status == "missing"
    with pytest.raises(InputError, match="the data are gone"):
        execute(small(), Where(out=tmp_path))
    ((status, early),) = seen
    assert status == "running" and early.failure is None and not early.finished
    assert early.description == json.loads(json.dumps(small().as_json()))


def test_a_run_under_way_is_seen(tmp_path: Path) -> None:
    whole().save(tmp_path / "other")

    class Look(Watcher):
        def __init__(self) -> None:
            self.states: set[str] = set()

        def updated(self, step: Step) -> None:
            self.states.add(Run.find(small(), tmp_path).status)
            [under_way] = find_runs(tmp_path).incomplete
            assert under_way.id == small().id == step.run.id
            assert repr(under_way) == "<Run finetune on split-digits (class), seed 0: running>"

    looking = Look()
    execute(small(), Where(out=tmp_path), [looking])
    assert looking.states == {"running"}
    assert Run.find(small(), tmp_path).status == "done" and not find_runs(tmp_path).incomplete


def test_an_interrupted_run_resumes_and_is_not_taken_for_a_failed_one(tmp_path: Path) -> None:
    class Stop(Watcher):
        def updated(self, step: Step) -> None:
            if step.step == 7:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(small(), Where(out=tmp_path, checkpoint_seconds=1e-9), [Stop()])
    run = Run.load(tmp_path / small().id)
    assert run.status == "unfinished"
    assert run.failure is not None and run.failure.kind is FailureKind.INTERRUPTED
    assert run.failure.reason == "interrupted: run the same command again to resume"
    assert execute(small(), Where(out=tmp_path)).finished
    assert Run.load(tmp_path / small().id).failure is None


def test_a_failed_run_keeps_what_was_measured(tmp_path: Path) -> None:
    failure = Failure(FailureKind.DIVERGED, "loss became nan at step 3", step=3, task=1)
    whole(finished=False, failure=failure).save(tmp_path)
    run = Run.load(tmp_path)
    assert run.status == "failed" and run.failure == failure
    assert run.trace == TRACE_OF_TWO and run.readings == READINGS
    assert not (tmp_path / RESULT).exists()


def test_a_run_that_was_never_begun_is_missing(tmp_path: Path) -> None:
    run = Run.find(small(), tmp_path)
    assert run.status == "missing" and run.experiment.id == small().id and len(run.trace) == 0
    (tmp_path / small().id).mkdir()
    assert Run.find(small(), tmp_path).status == "missing"
    assert Run(planned=small()).status == "missing"


def test_somebodys_own_loop_is_no_experiment() -> None:
    with pytest.raises(
        InputError, match=r"^the run mine-7 was recorded in a training loop: it has no experiment$"
    ):
        _ = whole().experiment


# Damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (EXPERIMENT, "{", "is not JSON"),
        (EXPERIMENT, "[1]", "is not a JSON object"),
        (EXPERIMENT, '{"id": "x"}', "has no 'label'"),
        (EXPERIMENT, '{"label": "x"}', "has no 'id'"),
        (EXPERIMENT, None, "experiment.json is missing"),
        (RESULT, "nothing", "is not JSON"),
        (RESULT, "[]", "is not a JSON object"),
        (RESULT, "{}", "has no metrics"),
        (RESULT, '{"metrics": {"ACC": "high"}}', "'high' is not a number"),
        (RESULT, '{"metrics": {"ACC": true}}', "True is not a number"),
        (RESULT, '{"metrics": {}, "by_task": [1]}', "cannot be read"),
        (RESULT, '{"metrics": {}, "why": [1]}', "cannot be read"),
        (RESULT, '{"metrics": {}, "classes": 3}', "cannot be read"),
        (RESULT, '{"metrics": {}, "phases": [[0]]}', "cannot be read"),
        (RESULT, '{"metrics": {}, "updates": "many"}', "cannot be read"),
        (RESULT, '{"metrics": {}, "seconds": [1]}', "cannot be read"),
        (RESULT, '{"metrics": {}, "account": {"parameters": 3}}', "cannot be read"),
        (RESULT, '{"metrics": {}, "card": {"strange": 1}}', "cannot be read"),
        (RESULT, '{"metrics": {}, "versions": 3}', "cannot be read"),
        (TRACE, None, "trace.parquet is missing"),
    ],
)
def test_a_damaged_file_is_one_line(file: str, content: str | None, words: str, tmp_path: Path) -> None:
    whole().save(tmp_path / "mine")
    if content is None:
        (tmp_path / "mine" / file).unlink()
    else:
        (tmp_path / "mine" / file).write_text(content)
    with pytest.raises(InputError, match=words) as error:
        Run.load(tmp_path / "mine")
    assert "\n" not in str(error.value) and str(tmp_path / "mine") in str(error.value)


def test_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent is not a folder"):
        Run.load(tmp_path / "absent")
    with pytest.raises(InputError, match=r"is not a run: it has no experiment\.json"):
        Run.load(tmp_path)


def test_an_unknown_metric_is_named_with_its_neighbours() -> None:
    for ask in (whole().metric, whole().after_each_task):
        with pytest.raises(InputError, match=r"unknown metric 'FOR'.*did you mean 'FORG'"):
            ask("FOR")


# What people see ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (whole(), "<Run mine, seed 7: ACC 0.6500, FORG 0.3000; 4 updates>"),
        (whole(stored={"ACC": math.nan}), "<Run mine, seed 7: no metrics; 4 updates>"),
        (
            whole(finished=False, failure=Failure(FailureKind.DIVERGED, "loss became nan at step 3")),
            "<Run mine, seed 7: diverged: loss became nan at step 3>",
        ),
        (whole(finished=False), "<Run mine, seed 7: missing>"),
        (Run(description={"id": "x", "label": "x"}), "<Run x: missing>"),
    ],
)
def test_repr_says_what_it_is_and_how_it_did(run: Run, shown: str) -> None:
    assert repr(run) == shown


def test_a_run_writes_its_page(tmp_path: Path) -> None:
    page = whole().report(tmp_path / "report.html")
    assert page == tmp_path / "report.html" and "mine" in page.read_text()


# Earlier versions ---------------------------------------------------------------------------------

OLD_EXPERIMENT = {
    "format": 1,
    "id": "split-digits-class-er-s3-0123456789ab",
    "label": "er on split-digits (class)",
    "scenario": {
        "name": "split-digits",
        "tasks": [
            {
                "source": {"dataset": "digits", "classes": [2 * task, 2 * task + 1]},
                "units": [2 * task, 2 * task + 1],
                "transforms": [{"mean": [0.0], "std": [1.0], "kind": "normalise"}],
                "name": f"digits {2 * task}/{2 * task + 1}",
            }
            for task in range(2)
        ],
        "setting": {"classes_known": True, "mask_evaluation": True, "boundaries": True, "kind": "class"},
        "phases": [[0], [1]],
        "passes": None,
    },
    "method": "er",
    "settings": {"memory": 100, "memory_batch": 32, "weight": 0.5, "policy": "class-balanced"},
    "model": {"name": "mlp", "hidden": [64, 64], "dropout_input": 0.0, "dropout_hidden": 0.0},
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.0, "reset": True},
    "batch_size": 32,
    "epochs": 10,
    "updates": 25,
    "evaluation": {"every": 1, "per_epoch": False, "subset": 1000, "tasks": "seen", "on": "test"},
    "budget_bytes": None,
    "seed": 3,
}
OLD_RESULT = {
    "id": "split-digits-class-er-s3-0123456789ab",
    "seed": 3,
    "metrics": {"ACC": 0.6, "FORG": 0.2, "min-ACC": 0.4, "FWT": None},
    "by_task": {"ACC": [0.9, 0.6], "FORG": [None, 0.2]},
    "why": {
        "FWT": "needs the accuracies at initialisation, and those of each task just before it is learned"
    },
    "classes": [2, 4],
    "phases": [[0, [0]], [1, [1]]],
    "updates": 4,
    "evaluations": 5,
    "seconds": {"train": 0.18, "evaluate": 0.13, "total": 0.31},
    "account": {
        "parameters": 8970,
        "kept_bytes": [27600, 27600],
        "flops": [1433600, 2867200],
        "kept_samples": [100, 100],
        "update_seconds": [0.0005, 0.001],
    },
    "card": {
        "constraints": [
            {
                "name": "low memory footprint",
                "verdict": "broken",
                "figure": "100 samples and 27,600 bytes kept",
                "how": "data of past tasks are not stored and not used again (004)",
            },
            {
                "name": "causality",
                "verdict": "held",
                "figure": "0 samples of later tasks",
                "how": "data of future tasks are used in no way, not for selection either (004)",
            },
        ],
        "lines": [
            {
                "name": "selection on test data",
                "question": "Did selection touch test data?",
                "answer": "none",
                "figure": "no choice is recorded for this run",
                "how": "what the evaluations of the candidates' runs read",
            },
            {
                "name": "earlier data",
                "question": "Were data of earlier tasks used again?",
                "answer": "yes",
                "figure": "100 samples kept after the last task",
                "how": "training samples handed out after their task",
            },
            {
                "name": "kept bytes",
                "question": "How many bytes were kept beyond the weights?",
                "answer": "27,600",
                "figure": "after each task: always 27,600; the network has 35,880",
                "how": "the tensors and arrays that the method holds",
            },
            {
                "name": "update time",
                "question": "How long does an update take?",
                "answer": "0.83 ms",
                "figure": "median in each task, ms: 0.5 0.83",
                "how": "a clock around every update",
            },
        ],
        "reads": [
            {"reader": "evaluation", "part": "test", "when": "current", "tasks": [0, 1], "samples": 355},
            {"reader": "training", "part": "train", "when": "current", "tasks": [0, 1], "samples": 578},
        ],
        "forbidden": {"test data of task 2": 3},
    },
    "versions": {
        "python": "3.11.2",
        "engram": "0.1.0",
        "torch": "2.13.0",
        "numpy": "2.4.6",
        "scipy": "1.17.1",
    },
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder as engram 0.1.0 left it."""
    folder = tmp_path / "runs" / str(OLD_EXPERIMENT["id"])
    write_json(folder / EXPERIMENT, OLD_EXPERIMENT)
    write_json(folder / RESULT, OLD_RESULT)
    TRACE_OF_TWO.save(folder / TRACE)
    return folder


def test_a_run_of_an_earlier_version_is_read(old: Path) -> None:
    run = Run.load(old)
    assert (run.status, run.id, run.label) == ("done", OLD_EXPERIMENT["id"], "er on split-digits (class)")
    assert (run.method, run.scenario, run.setting, run.seed) == ("er", "split-digits", "class", 3)
    assert run.metric("ACC") == 0.6 and math.isnan(run.metric("FWT"))
    assert run.after_each_task("ACC") == [0.9, 0.6] and math.isnan(run.after_each_task("FORG")[0])
    assert (run.updates, run.evaluations, run.classes) == (4, 5, (2, 4))
    assert (run.seconds.train, run.seconds.evaluate) == (0.18, 0.13)
    assert run.seconds.total == pytest.approx(0.31)
    assert run.phases == {0: (0,), 1: (1,)} and run.versions["torch"] == "2.13.0"
    assert run.account == Account(8970, (27600, 27600), (1433600, 2867200), (100, 100), (0.0005, 0.001))
    assert run.trace == TRACE_OF_TWO and run.task_name(1) == "Task 2 (digits 2/3)"


def test_a_card_of_an_earlier_version_is_read(old: Path) -> None:
    card = Run.load(old).card
    assert card is not None
    assert [card.fact(name).answer for name in ("selection on test data", "earlier data", "kept bytes")] == [
        *(None, True, 27_600),
    ]
    assert card.fact("update time").answer == pytest.approx(0.00083)
    assert card.constraint("low memory footprint").verdict == "broken"
    assert card.constraint("causality").note == "0 samples of later tasks"
    assert [read.describe() for read in card.forbidden] == ["test data of task 2"]
    assert list(card.forbidden.values()) == [3]
    assert sum(read.samples for read in card.reads) == 355 + 578


def test_a_run_of_an_earlier_version_is_found_and_shown(old: Path, tmp_path: Path) -> None:
    runs = find_runs(old.parent)
    assert len(runs) == 1 and not runs.incomplete
    assert runs.frame()["ACC"].to_list() == [0.6]
    page = runs.report(tmp_path / "report.html").read_text()
    assert "er on split-digits (class)" in page or ">er<" in page


def test_a_run_of_an_earlier_version_survives_being_saved_anew(old: Path, tmp_path: Path) -> None:
    before = Run.load(old)
    before.save(tmp_path / "anew")
    check_same(Run.load(tmp_path / "anew"), before)
    assert read_json(tmp_path / "anew" / EXPERIMENT) == OLD_EXPERIMENT


def test_a_result_with_metrics_alone_is_read(old: Path) -> None:
    """As files were before accounts and cards were kept."""
    write_json(old / RESULT, {"metrics": {"ACC": 0.5}})
    run = Run.load(old)
    assert run.status == "done" and dict(run.stored) == {"ACC": 0.5} and run.metric("ACC") == 0.5
    assert run.account is None and run.card is None and run.updates == 0 and run.seconds.total == 0
