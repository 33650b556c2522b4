"""Zooms: a stretch of a run is learned again to the same bits, from anywhere, and seen on any samples."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import engram
from engram.core.errors import InputError
from engram.core.folder import RECORD
from engram.core.trace import Trace
from engram.engine.observers import Step, Watcher
from engram.engine.zoom import Stretch, zoom
from engram.record.aside import move_aside
from engram.record.checkpoints import kept_checkpoints, kept_file
from engram.record.description import save_description
from engram.record.run import Run
from engram.record.tables import Tables
from engram.record.zoom import Zoom
from engram.results.autopsy import examine
from engram.results.integrity import check_run
from engram.results.zoom import look_closely, zoom_command
from engram.results.zoom_page import page

Bits = dict[tuple[int, int], tuple[int, bytes]]


def bits(trace: Trace, first: int, last: int) -> Bits:
    rows = zip(trace.step, trace.task, trace.learning, trace.bits, strict=True)
    return {(step, task): (learning, right) for step, task, learning, right in rows if first <= step <= last}


def small(method: str = "er", scenario: str = "split-digits", **options: Any) -> Run:
    return engram.run(scenario, method, **{"updates": 12, "seed": 3, "hidden": (16,), **options})


def facts(run: Run) -> Zoom:
    zoom = Zoom.of(run)
    assert zoom is not None
    return zoom


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was evaluated seldom and on few samples, and kept its checkpoints."""
    return small(every=7, subset=15, out=tmp_path_factory.mktemp("runs"), keep_checkpoints="tasks")


@pytest.fixture(scope="module")
def closely() -> Run:
    """The same run, evaluated at every update on the same samples."""
    return small(every=1, subset=15)


@pytest.fixture(scope="module")
def everything() -> Run:
    """The same run, evaluated at every update on all samples."""
    return small(every=1, subset=0)


def test_own_samples_are_seen_as_if_every_update_had_been_evaluated(run: Run, closely: Run) -> None:
    zoomed = engram.zoom(run, (22, 31))
    assert bits(zoomed.trace, 22, 31) == bits(closely.trace, 22, 31)
    zoom = facts(zoomed)
    assert (zoom.start, zoom.learned) == (12, 19)
    assert zoom.compared.evaluations == 2
    assert zoom.compared.checkpoints == 1
    assert zoom.compared.same is True
    assert "the same bits as in the run: 75 answers of 2 evaluations and 1 checkpoint" in zoom.verdict()


def test_all_samples_are_seen_as_if_all_had_been_evaluated(run: Run, everything: Run) -> None:
    zoomed = engram.zoom(run, (22, 31), samples="all")
    assert bits(zoomed.trace, 22, 31) == bits(everything.trace, 22, 31)
    # Also at the end of the task before, which gives tasks their order.
    assert bits(zoomed.trace, 0, 21) == bits(everything.trace, 12, 12)
    assert facts(zoomed).compared.answers == 75


@pytest.mark.parametrize("samples", ["own", "all"])
def test_a_run_without_checkpoints_is_learned_from_the_beginning(
    run: Run, closely: Run, everything: Run, samples: str
) -> None:
    zoomed = engram.zoom(replace(run, folder=None), (30, 37), samples=samples)
    whole = closely if samples == "own" else everything
    assert bits(zoomed.trace, 30, 37) == bits(whole.trace, 30, 37)
    assert facts(zoomed).start == 0
    assert list(zoomed.tasks) == [0, 1, 2, 3]
    assert zoomed.task_name(0) == "Task 1 (digits 0/1)"


def test_the_beginning_and_the_end_belong_to_the_run(run: Run, everything: Run) -> None:
    first = engram.zoom(run, (0, 3), samples="all")
    assert first.curve.step.tolist() == [0, 1, 2, 3]
    assert bits(first.trace, 0, 3) == bits(everything.trace, 0, 3)
    last = engram.zoom(run, (60, 60), samples="all")
    assert bits(last.trace, 60, 60) == bits(everything.trace, 60, 60)
    # All of it is in the checkpoints: nothing is learned.
    assert facts(last).learned == 0


def test_observers_are_told_of_what_is_learned_again(tmp_path: Path) -> None:
    """Updates before the checkpoint that a zoom starts from are no part of it."""
    told: list[Step] = []

    class Noting(Watcher):
        def updated(self, step: Step) -> None:
            told.append(step)

    whole = small(updates=4, every=4, keep_checkpoints="tasks", out=tmp_path)
    zoom(whole, Stretch(first=5, last=7), observers=[Noting()])
    assert [(step.step, step.steps, step.resumed) for step in told] == [(1, 3, 0), (2, 3, 0), (3, 3, 0)]


def test_every_n_updates(run: Run) -> None:
    class Told(Watcher):
        finished = False

        def ended(self, run: Run) -> None:
            self.finished = run.finished

    told = Told()
    zoomed = engram.zoom(run, (13, 27), every=5, observers=[told])
    assert told.finished
    # Besides both ends: the end of a task, and what is compared with the run.
    assert zoomed.curve.step.tolist() == [12, 13, 14, 15, 20, 21, 24, 25, 27]


@pytest.mark.parametrize(
    ("method", "scenario", "options"),
    [
        pytest.param("ewc", "permuted-digits", {}, marks=pytest.mark.slow),
        pytest.param("er", "rotated-digits", {"tasks": "all"}, marks=pytest.mark.slow),
        ("finetune", "split-digits", {"boundaries": False, "dropout_hidden": 0.5}),
        pytest.param("gdumb", "split-digits", {}, marks=pytest.mark.slow),
        pytest.param(
            "finetune",
            "split-digits",
            {"setting": "task", "model": "slim-resnet18", "hidden": None},
            marks=pytest.mark.slow,
        ),
        pytest.param("lwf", "split-digits", {"optimizer": "adam", "gradients": True}, marks=pytest.mark.slow),
    ],
)
def test_other_runs(method: str, scenario: str, options: dict[str, Any], tmp_path: Path) -> None:
    chosen = {"updates": 5, **options}
    sparse = small(method, scenario, every=4, subset=9, out=tmp_path, keep_checkpoints=3, **chosen)
    whole = small(method, scenario, every=1, subset=9, **chosen)
    zoomed = engram.zoom(sparse, (7, 12))
    assert bits(zoomed.trace, 7, 12) == bits(whole.trace, 7, 12)
    assert facts(zoomed).start == 6
    assert facts(zoomed).compared.same is True


def test_training_data_can_be_looked_at(run: Run) -> None:
    zoomed = engram.zoom(run, (12, 15), on="train", samples="all")
    whole = small(every=1, subset=0, on="train")
    assert bits(zoomed.trace, 12, 15) == bits(whole.trace, 12, 15)
    assert facts(zoomed).on == "train"
    assert facts(zoomed).compared.same is True


def test_test_data_that_did_not_exist(run: Run, everything: Run, tmp_path: Path) -> None:
    from engram.datasets import load

    test = load("digits").test
    pixels = next(iter(test.read([torch.arange(len(test))])))[:, 0].numpy()
    labels = test.labels.numpy()
    np.savez(tmp_path / "same.npz", x=pixels, y=labels)
    zoomed = engram.zoom(run, (22, 26), on=tmp_path / "same.npz")
    mine, whole = bits(zoomed.trace, 22, 26), bits(everything.trace, 22, 26)
    assert {key: mine[key] for key in whole} == whole
    # Tasks that are not learned yet are evaluated as well.
    assert {task for _, task in mine} == set(range(5))
    some = np.isin(labels, [2, 3, 7])
    np.savez(tmp_path / "some.npz", x=pixels[some], y=np.array(list("0123456789"))[labels[some]])
    part = engram.zoom(run, (22, 26), on=tmp_path / "some.npz", out=tmp_path / "zoom")
    assert {task for _, task in bits(part.trace, 22, 26)} == {1, 3}
    assert bits(part.trace, 22, 26)[24, 1] == whole[24, 1]
    [loaded] = engram.load(tmp_path / "zoom")
    assert loaded.task_name(1) == "Task 2 (digits 2/3)"
    assert loaded.samples is not None and set(loaded.samples.frame["task"]) == {1, 3}
    assert "some.npz" in page(look_closely(loaded, run))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"x": np.zeros((2, 9, 9), np.uint8), "y": [0, 1]}, "have the shape"),
        ({"x": np.zeros((2, 8, 8), np.float32), "y": [0, 1]}, "give samples of the same kind"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": ["zero", "one"]}, "unknown class in new.npz"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0, 12]}, "unknown class in new.npz '12'"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0]}, "2 samples and 1 label"),
        ({"pixels": np.zeros(3)}, "must hold x_train"),
    ],
)
def test_test_data_that_do_not_fit(run: Run, content: dict[str, Any], problem: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", **content)
    with pytest.raises(InputError, match=problem):
        engram.zoom(run, (22, 26), on=tmp_path / "new.npz")


def test_a_zoom_is_a_run_that_all_tools_read(run: Run, tmp_path: Path) -> None:
    saved = engram.zoom(run, (24, 36), samples="all", out=tmp_path / "zoom")
    [loaded] = engram.load(tmp_path / "zoom")
    assert loaded.trace.bits == saved.trace.bits
    assert loaded.updates == 12
    assert facts(loaded) == facts(saved)
    assert check_run(loaded).status == "done"
    assert loaded.metrics["min-ACC"] == loaded.stored["min-ACC"]
    assert "a zoom has only the updates 24 to 36" in loaded.why["ACC"]
    dip = examine(loaded)
    assert dip.gap.start == 24
    assert dip.taken_for and dip.fallen and dip.probes
    assert dip.again is None
    assert loaded.report(tmp_path / "report.html").is_file()
    found = look_closely(loaded, run)
    assert found.deepest is not None
    assert found.deepest.lowest == min(loaded.curve.accuracy[loaded.curve.step >= 24, found.deepest.task])
    assert found.deepest.run_lowest is not None and found.deepest.run_lowest_step in (28, 35, 36, 24)
    assert "Updates 24 to 36" in page(found)


def test_other_bits_are_noticed(run: Run) -> None:
    wrong = run.trace.followed_by(Trace())
    row = next(row for row, step in enumerate(wrong.step) if step == 28)
    flipped = ~wrong.right(row)
    wrong.bits[row] = np.packbits(flipped).tobytes()
    changed = replace(run, tables=Tables(wrong), versions={"torch": "1.0"})
    with pytest.warns(UserWarning, match="not the same bits as in the run: 15 of 75 answers differ"):
        zoomed = engram.zoom(changed, (22, 31))
    zoom = facts(zoomed)
    assert zoom.compared.same is False
    assert zoom.compared.first_different == 28
    assert "torch 1.0 then and" in zoom.verdict()
    assert 'class="warning"' in page(look_closely(zoomed, changed))


def test_a_checkpoint_with_other_weights_is_noticed(run: Run, tmp_path: Path) -> None:
    from engram.engine.checkpoint import read_checkpoint, write_checkpoint

    changed = small(every=7, subset=15, out=tmp_path, keep_checkpoints="tasks")
    assert changed.folder is not None
    path = changed.folder / kept_file(24)
    state = read_checkpoint(path)
    state["method"]["network"]["value"]["head.bias"] += 1e-3
    write_checkpoint(path, state, previous=False)
    with pytest.warns(UserWarning, match="1 of 1 checkpoint differ, from update 24 on"):
        engram.zoom(changed, (22, 26))


def test_a_damaged_checkpoint_is_not_used(closely: Run, tmp_path: Path) -> None:
    run = small(every=7, subset=15, out=tmp_path, keep_checkpoints="tasks")
    path = kept_checkpoints(run.folder)[24]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=r"checkpoint-step-24.pt has no checksum: it is not used"):
        zoomed = engram.zoom(run, (25, 28))
    assert facts(zoomed).start == 12
    assert bits(zoomed.trace, 25, 28) == bits(closely.trace, 25, 28)


def test_where_the_run_saw_nothing_the_evaluation_before_is_compared(tmp_path: Path) -> None:
    run = small(every=10, subset=15, out=tmp_path, keep_checkpoints=4)
    zoom = facts(engram.zoom(run, (33, 34)))
    assert (zoom.start, zoom.compared.evaluations, zoom.compared.same) == (28, 1, True)


def test_a_run_that_draws_samples_anew(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = small(every=5, subset=9, redraw=True)
    with pytest.raises(InputError, match="use --samples all"):
        engram.zoom(run, (13, 15))
    zoomed = engram.zoom(run, (13, 15), samples="all")
    assert facts(zoomed).compared.same is None
    assert "no evaluation and no checkpoint" in facts(zoomed).verdict()
    assert bits(zoomed.trace, 13, 15) == bits(small(every=1, subset=0).trace, 13, 15)


@pytest.mark.parametrize(
    ("steps", "options", "problem"),
    [
        ((9, 3), {}, "A at most B, got 9:3"),
        ((-1, 3), {}, "at least 0"),
        ((50, 61), {}, "has 60 updates: choose steps up to 60, got 50:61"),
        ((3, 9), {"every": 0}, "every must be at least 1"),
        ((3, 9), {"samples": "some"}, "unknown choice of samples 'some'"),
        ((3, 9), {"on": "nowhere.csv"}, "no such file: nowhere.csv"),
        ((3, 9), {"weights": "nowhere.pt"}, "started from no weights"),
    ],
)
def test_bad_input(run: Run, steps: tuple[int, int], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        engram.zoom(run, steps, **options)


def test_runs_that_cannot_be_learned_again(run: Run, tmp_path: Path) -> None:
    network = torch.nn.Linear(2, 2)
    watch = engram.Evaluator([(torch.eye(2), torch.tensor([0, 1]))])
    for _ in range(9):
        watch(network, learning=0)
    loop = watch.save(tmp_path / "loop")
    with pytest.raises(InputError, match="recorded in a training loop, which cannot be repeated"):
        engram.zoom(loop, (3, 4))
    with pytest.raises(InputError, match="is not finished"):
        engram.zoom(replace(run, finished=False), (3, 4))
    zoomed = engram.zoom(run, (3, 4))
    with pytest.raises(InputError, match=f"is a zoom itself: name the run that it is of, {run.id}"):
        engram.zoom(zoomed, (1, 2))
    unknown = {**run.description, "method": "of-a-plugin"}
    with pytest.raises(InputError, match="load a plugin with --plugin"):
        engram.zoom(replace(run, planned=None, description=unknown), (3, 4))
    other = [replace(task, content="0") for task in run.test_data]
    with pytest.raises(InputError, match="the data of task 1 are not those that the run"):
        engram.zoom(replace(run, test_data=tuple(other)), (3, 4))
    with pytest.raises(InputError, match="holds something else"):
        engram.zoom(run, (3, 4), out=tmp_path / "loop")


def test_a_zoom_replaces_one_that_was_killed_while_it_was_written(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "zoom"
    before = engram.zoom(run, (24, 26), out=place)
    (place / "result.json").unlink()
    (place / "trace.parquet").write_bytes(b"half")
    again = engram.zoom(run, (24, 26), out=place)
    assert Run.load(place).trace.bits == before.trace.bits == again.trace.bits
    # Killed before the first file of the new one was there.
    move_aside(place, to=".replaced", only=RECORD)
    assert engram.zoom(run, (24, 26), out=place).trace.bits == before.trace.bits
    assert Run.load(place).finished and not (place / ".replaced").exists()
    # What is hidden there is somebody's, too.
    save_description(place, run.description)
    move_aside(place, to=".replaced", only=RECORD)
    with pytest.raises(InputError, match="holds something else"):
        engram.zoom(run, (24, 26), out=place)
    assert (place / "experiment.json").exists()


def test_the_command_for_a_dip(run: Run) -> None:
    dip = examine(run)
    assert run.folder is not None
    assert dip.again == zoom_command(run, dip.gap)
    assert dip.again is not None
    assert dip.again.startswith(f"engram zoom {run.folder} --steps {dip.gap.start}:")
    assert dip.again.endswith(" --samples all")
    full = small(every=1, subset=0)
    assert zoom_command(replace(full, folder=run.folder), dip.gap) is None
    seldom = small(every=5, subset=0)
    assert "--samples" not in str(zoom_command(replace(seldom, folder=run.folder), dip.gap))


def test_a_task_that_falls_after_it_was_learned_in_the_stretch_is_named(run: Run, tmp_path: Path) -> None:
    zoomed = engram.zoom(run, (1, run.updates), out=tmp_path / "zoom")
    found = look_closely(zoomed, run)
    curve, learning = zoomed.curve, zoomed.curve.being_learned()
    falls = {}
    for task in range(curve.accuracy.shape[1]):
        values = curve.accuracy[:, task]
        after = [
            max(values[:place][~np.isnan(values[:place])], default=0.0) - values[place]
            for place in range(len(values))
            if not learning[place, task] and not np.isnan(values[place])
        ]
        falls[task] = max(after, default=0.0)
    deepest = max(falls, key=lambda task: falls[task])
    # Every task was being learned somewhere in the stretch.
    assert learning.any(axis=0).all() and falls[deepest] > 0.1
    assert found.deepest is not None and found.deepest.fall is not None
    assert found.deepest.fall.high - found.deepest.fall.low == pytest.approx(falls[deepest])
    assert f"fell from {100 * found.deepest.fall.high:.1f} %" in found.summary()[-1]
