import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.results.simulated import write_own_loop, write_run

from engram.core.errors import InputError
from engram.core.files import write_json
from engram.core.trace import Trace
from engram.record.run import Run
from engram.record.tables import Tables
from engram.results.figures import probe_figures
from engram.results.runs import find_runs, group_runs
from engram.results.store import compact


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = Run.load(write_run(tmp_path, "er", seed=3, tasks=2, updates=10))
    assert (run.id, run.label, run.seed, run.scenario) == ("er-3", "er", 3, "split-digits")
    assert run.curve.accuracy.shape == (20, 2)
    assert set(run.probes) == {("stability-gradient", None), ("plasticity-gradient", None)}
    assert run.metrics["ACC"] == pytest.approx(run.matrix[1].mean())
    assert run.task_name(1) == "Task 2 (2, 3)"


def test_a_run_of_somebodys_own_loop_needs_only_id_and_label(tmp_path: Path) -> None:
    run = Run.load(write_own_loop(tmp_path))
    assert run.task_name(0) == "Task 1"
    assert run.scenario == ""
    assert run.probes == {}
    assert len(run.ends) == 0
    assert run.matrix.shape == (2, 2)


def test_full_test_sets_at_task_ends_make_the_matrix(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "er", seed=0, tasks=2, updates=10)
    ends = Trace()
    for learning in (0, 1):
        for task in range(learning + 1):
            step = 10 * (learning + 1)
            ends.add(step=step, learning=learning, task=task, right=np.zeros(500, dtype=np.bool_))
    ends.save(folder / "ends.parquet")
    assert Run.load(folder).matrix[1].tolist() == [0.0, 0.0]
    assert Run.load(folder).curve.matrix()[1].min() > 0


@pytest.mark.parametrize("source", ["experiment", "result"])
def test_tasks_learned_together_are_named_together(tmp_path: Path, source: str) -> None:
    folder = write_run(tmp_path, "er", seed=0, tasks=3, updates=5)
    trace = Run.load(folder).trace
    trace.learning = [max(0, learning - 1) for learning in trace.learning]
    trace.save(folder / "trace.parquet")
    file = folder / f"{source}.json"
    content = json.loads(file.read_text())
    if source == "experiment":
        content["scenario"]["phases"] = [[0, 1], [2]]
    else:
        content["phases"] = [[0, [0, 1]], [1, [2]]]
    write_json(file, content)
    run = Run.load(folder)
    assert [run.phase_name(0), run.phase_name(1)] == ["Tasks 1 + 2", "Task 3 (4, 5)"]


def test_probes_may_speak_of_one_task(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trace = Trace()
    trace.add(step=1, learning=0, task=0, right=np.array([True]))
    readings = [(1, 0, 0, "loss", 0.5), (2, 0, 0, "loss", 0.25), (2, 0, None, "plasticity-gradient", 1.5)]
    tables = Tables(trace, readings=readings)
    Run(description={"id": "x", "label": "x"}, finished=True, tables=tables).save(folder)
    probes = Run.load(folder).probes
    assert probes["loss", 0].value.tolist() == [0.5, 0.25]
    assert probes["plasticity-gradient", None].step.tolist() == [2]
    figures = probe_figures(group_runs([Run.load(folder)])[0])
    assert [series["name"] for series in figures["loss"]["series"]] == ["Task 1"]


def test_runs_are_found_once_in_folders_and_by_name(runs_folder: Path) -> None:
    runs = find_runs([runs_folder, runs_folder / "er-0"])
    assert len(runs) == 9
    assert runs[0].id == "er-0"


def test_a_run_and_its_copies_are_one_run(tmp_path: Path) -> None:
    folder, store = tmp_path / "runs", tmp_path / "store"
    for seed in range(2):
        write_run(folder, "er", seed=seed, tasks=2, updates=5)
    compact(find_runs(folder), store)
    shutil.copytree(folder / "er-0", folder / "er-0-copy")
    with pytest.warns(
        UserWarning, match=r"left out: \S+er-0-copy: .* copy of \S+er-0; so are 2 more"
    ) as said:
        runs = find_runs([folder, store])
    assert [run.folder for run in runs] == [folder / "er-0", folder / "er-1"] and len(said) == 1
    assert [len(group.runs) for group in runs.groups()] == [2]


def test_a_run_that_was_repeated_elsewhere_is_another(tmp_path: Path) -> None:
    first, again = (write_run(tmp_path / name, "er", seed=0, tasks=2, updates=5) for name in "ab")
    result = json.loads((again / "result.json").read_text())
    write_json(again / "result.json", {**result, "seconds": {"train": 1.25, "evaluate": 0.5, "total": 1.75}})
    assert [run.folder for run in find_runs([tmp_path / "a", tmp_path / "b"])] == [first, again]


def test_unfinished_runs_are_left_out_of_a_folder_but_refused_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    begun = write_run(tmp_path, "er", seed=1, tasks=2, updates=5)
    (begun / "result.json").unlink()
    runs = find_runs([tmp_path])
    assert [run.id for run in runs] == ["er-0"]
    assert [(run.folder, run.status) for run in runs.incomplete] == [(begun, "unfinished")]
    with pytest.raises(InputError, match=r"er-1 cannot be used: it is not finished.*run the same command"):
        find_runs([begun])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("experiment.json", "{", "is not JSON"),
        ("experiment.json", "[1]", "is not a JSON object"),
        ("experiment.json", '{"id": "x"}', "has no 'label'"),
        ("result.json", "nothing", "is not JSON"),
        ("trace.parquet", None, "trace.parquet is missing"),
    ],
)
def test_broken_runs_are_one_clear_line(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    if content is None:
        (run / file).unlink()
    else:
        (run / file).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        find_runs([tmp_path])
    assert "\n" not in str(caught.value)
    assert str(run) in str(caught.value)
    with pytest.raises(InputError, match=message) as alone:
        find_runs([run])
    assert str(alone.value).endswith("; run it again with --again, or delete its folder")
    assert str(alone.value).count("run it again") == 1, "it says what to do once"


def test_broken_tables_are_one_clear_line(tmp_path: Path) -> None:
    run = write_run(tmp_path, "er", seed=0, tasks=2, updates=5)
    (run / "probes.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match="cannot read the probes"):
        _ = Run.load(run).probes
    trace = Run.load(run).trace
    trace.step = [1] * len(trace)
    trace.save(run / "trace.parquet")
    with pytest.raises(InputError, match=f"{run} cannot be read"):
        _ = Run.load(run).curve


def test_nothing_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished run found in"):
        find_runs([tmp_path])
    with pytest.raises(InputError, match="absent is not a folder"):
        find_runs([tmp_path / "absent"])
    with pytest.raises(InputError, match="is not a run"):
        Run.load(tmp_path)


def test_runs_that_differ_only_in_the_seed_are_one_group(runs_folder: Path) -> None:
    groups = group_runs(reversed(find_runs([runs_folder])))
    assert {group.label: [run.seed for run in group.runs] for group in groups} == {
        "finetune": [0, 1, 2],
        "ewc": [0, 1, 2],
        "er": [0, 1, 2],
    }


def test_groups_of_the_same_label_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    for memory in (20, 200):
        write_run(tmp_path / str(memory), "er", seed=0, tasks=2, updates=5, settings={"memory": memory})
    groups = group_runs(find_runs([tmp_path / "20", tmp_path / "200"]))
    assert [group.label for group in groups] == ["er (memory=20)", "er (memory=200)"]
