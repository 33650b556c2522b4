"""`import engram`, and what people do with it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import engram
from engram.core.errors import InputError
from engram.engine.failures import RunFailed
from engram.engine.observers import Step, Watcher
from engram.methods import METHODS
from engram.record.failure import FailureKind

SHORT: dict[str, Any] = {"updates": 4, "evaluation": {"subset": 20}}


def small(method: str = "er", *, seed: int = 0, **options: Any) -> engram.Run:
    return engram.run("split-digits", method, seed=seed, **{**SHORT, **options})


class Counting(Watcher):
    """Counts updates, and stops a run if told when."""

    def __init__(self, stop: int | None = None) -> None:
        self.updates, self.stop = 0, stop

    def updated(self, step: Step) -> None:
        self.updates += 1
        if self.updates == self.stop:
            raise KeyboardInterrupt


# run ----------------------------------------------------------------------------------------------


def test_a_run_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = small(seed=3)
    assert run.status == "done" and run.folder is None and run.updates == 20
    assert 0 <= run.metrics["min-ACC"] <= 1 and run.metrics["ACC"] == run.metric("ACC")
    assert len(run.trace) > 0 and run.card is not None and run.account is not None
    assert run.experiment == engram.experiment("split-digits", "er", seed=3, **SHORT)
    assert (run.scenario, run.setting, run.method, run.seed) == ("split-digits", "class", "er", 3)
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_a_run_in_memory_is_saved_and_loaded(tmp_path: Path) -> None:
    run = small()
    saved = run.save(tmp_path / "runs" / "mine")
    [loaded] = engram.load(tmp_path / "runs")
    assert loaded.folder == saved.folder == tmp_path / "runs" / "mine"
    assert loaded.trace == run.trace and loaded.card == run.card and loaded.account == run.account
    assert dict(loaded.metrics) == pytest.approx(dict(run.metrics), abs=0, rel=0, nan_ok=True)


def test_an_experiment_says_everything() -> None:
    planned = engram.experiment("split-digits", "er", **SHORT)
    assert engram.run(planned).trace == small().trace
    with pytest.raises(InputError, match="leave method and options out"):
        engram.run(planned, "er")
    with pytest.raises(InputError, match="leave method and options out"):
        engram.run(planned, seed=1)
    with pytest.raises(InputError, match=r"name a method, for example engram\.run\('split-digits', 'er'\)"):
        engram.run("split-digits")


def test_an_experiment_is_run_again_from_its_folder(tmp_path: Path) -> None:
    first = small("dgr", out=tmp_path / "runs")
    assert first.folder is not None
    file = first.folder / "experiment.json"
    [loaded] = engram.load(tmp_path / "runs")
    for description in (file, str(file), loaded.experiment):
        again = engram.run(description)
        assert again.experiment == first.experiment and again.id == first.id
        assert again.trace == first.trace
    with pytest.raises(InputError, match="leave method and options out"):
        engram.run(file, "er")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "does not describe an experiment: it must be the experiment.json of a run$"),
        ('{"id": "mine", "label": "mine", "tasks": ["a"]}', "does not describe an experiment"),
        ('{"scenario": {}, "method": "er"}', "mine.json: experiment.json: .*missing"),
        ("{", "mine.json"),
        (None, "mine.json"),
    ],
)
def test_files_that_describe_no_experiment(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        engram.run(file)
    assert "\n" not in str(error.value)


def test_a_run_in_a_folder_is_run_once(tmp_path: Path) -> None:
    counting = Counting()
    first = small(out=tmp_path, observers=[counting])
    again = small(out=str(tmp_path), observers=[counting])
    assert counting.updates == 20
    assert first.folder == again.folder == tmp_path / first.id
    assert first.trace == again.trace == small().trace
    assert again.experiment == first.experiment


def test_a_run_that_was_stopped_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Minutes pass between updates, so that each is followed by a checkpoint.
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr("engram.engine.checkpoint.time.monotonic", lambda: next(clock))
    with pytest.raises(KeyboardInterrupt):
        small(out=tmp_path, observers=[Counting(stop=13)])
    [incomplete] = [engram.Run.load(folder) for folder in tmp_path.iterdir()]
    assert incomplete.status == "unfinished"
    counting = Counting()
    resumed = small(out=tmp_path, observers=[counting])
    assert counting.updates == 7 and resumed.updates == 20
    assert resumed.trace == small().trace


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_that_diverges_has_what_was_measured(folder: bool, tmp_path: Path) -> None:
    out = tmp_path if folder else None
    with pytest.raises(RunFailed, match=r"became .* at step") as error:
        small("finetune", lr=1e9, out=out)
    assert isinstance(error.value, engram.InputError) and "\n" not in str(error.value)
    run = error.value.run
    assert run.failure is not None and run.failure.kind is FailureKind.DIVERGED and run.status == "failed"
    assert len(run.trace) > 0 and repr(run).startswith(
        "<Run finetune on split-digits (class), seed 0: diverged"
    )
    if folder:
        assert engram.Run.load(tmp_path / run.id).failure == run.failure
    else:
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def crashing() -> str:
    """A method with a mistake in it."""
    name = "test-front-door-crash"
    if name not in METHODS:

        @engram.method(name)
        class Crash(engram.Learner):
            """Has a mistake in it."""

            def after_step(self, batch: engram.Batch) -> None:
                """Look something up that is not there."""
                raise LookupError("my own mistake")

    return name


@pytest.mark.parametrize("folder", [False, True])
def test_a_method_that_crashes_raises_its_own_exception(folder: bool, crashing: str, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="my own mistake") as error:
        small(crashing, out=tmp_path if folder else None)
    assert not isinstance(error.value, InputError)
    assert error.traceback[-1].name == "after_step", "the traceback leads to the mistake"
    if folder:
        [run] = [engram.Run.load(place) for place in tmp_path.iterdir()]
        assert run.failure is not None and run.failure.kind is FailureKind.CRASHED
        assert "my own mistake" in run.failure.details


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("split-digit", "er"), {}, "did you mean 'split-digits'"),
        (("split-digits", "err"), {}, "unknown method 'err'"),
        (("split-digits", "er"), {"lr": -1.0}, "lr"),
        (("split-digits", "er"), {"settings": {"memori": 3}}, "memori"),
        (("split-kmnist", "er"), {"data": "nowhere"}, "nowhere is not a folder"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, str], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words) as error:
        engram.run(*arguments, out=tmp_path / "runs", **options)
    assert "\n" not in str(error.value) and not list((tmp_path / "runs").glob("*"))


# sweep and load -----------------------------------------------------------------------------------

TABLE: dict[str, Any] = {
    "scenario": "split-digits",
    "method": ["er", "finetune"],
    "seeds": 2,
    "updates": 4,
    "subset": 20,
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[engram.Runs, Path]:
    out = tmp_path_factory.mktemp("swept")
    return engram.sweep(TABLE, out=out, jobs=1), out


def test_a_sweep_gives_runs(swept: tuple[engram.Runs, Path]) -> None:
    runs, out = swept
    assert isinstance(runs, engram.Runs) and len(runs) == 4 and not runs.incomplete
    assert [(run.method, run.seed) for run in runs] == [
        ("er", 0),
        ("er", 1),
        ("finetune", 0),
        ("finetune", 1),
    ]
    assert {run.folder for run in runs} == set(out.iterdir())
    assert repr(runs) == "<Runs: 4 finished: er × 2, finetune × 2>"
    assert isinstance(runs[0], engram.Run) and isinstance(runs[1:], engram.Runs) and len(runs[1:]) == 3


def test_a_sweep_from_a_file_reads_what_is_there(swept: tuple[engram.Runs, Path], tmp_path: Path) -> None:
    runs, out = swept
    file = tmp_path / "sweep.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in TABLE.items()))
    counting = Counting()
    for place in (file, str(file)):
        again = engram.sweep(place, out=out, jobs=1, observers=[counting])
        assert [run.id for run in again] == [run.id for run in runs]
    assert counting.updates == 0


@pytest.mark.slow
def test_several_jobs_give_the_same_runs(swept: tuple[engram.Runs, Path], tmp_path: Path) -> None:
    counting = Counting()
    runs = engram.sweep(TABLE, out=tmp_path, jobs=2, observers=[counting])
    assert [run.trace for run in runs] == [run.trace for run in swept[0]]
    assert counting.updates > 0


def test_what_failed_in_a_sweep_is_kept_apart(tmp_path: Path) -> None:
    runs = engram.sweep({**TABLE, "method": "finetune", "lr": [0.1, 1e9], "seeds": 1}, out=tmp_path, jobs=1)
    assert len(runs) == 1 and runs[0].metrics["ACC"] > 0
    [failed] = runs.incomplete
    assert failed.failure is not None and failed.failure.kind is FailureKind.DIVERGED
    assert repr(runs) == "<Runs: 1 finished, 1 not finished>"
    with pytest.warns(UserWarning, match=f"left out: {failed.folder}: it failed: the loss became"):
        [also] = engram.load(tmp_path).incomplete
    assert also.failure == failed.failure


def test_load_gives_the_same_type(swept: tuple[engram.Runs, Path]) -> None:
    runs, out = swept
    loaded = engram.load(out)
    assert isinstance(loaded, engram.Runs)
    assert sorted(run.id for run in loaded) == sorted(run.id for run in runs)
    folders = sorted(out.iterdir())
    assert [run.folder for run in engram.load(folders[:2])] == folders[:2]
    assert [run.folder for run in engram.load(str(folders[0]))] == folders[:1]
    with pytest.raises(InputError, match="is not a folder"):
        engram.load(out / "nowhere")


# What runs tell -----------------------------------------------------------------------------------


def test_a_frame_has_settings_and_metrics_as_columns(swept: tuple[engram.Runs, Path]) -> None:
    runs, _ = swept
    frame = runs.frame()
    assert isinstance(frame, pl.DataFrame) and frame.height == 4
    assert frame.columns[:6] == ["id", "label", "scenario", "setting", "method", "seed"]
    assert {
        *("optimizer.name", "optimizer.lr", "settings.memory", "model.name", "model.hidden", "batch_size"),
        *("updates", "evaluations", "train_seconds", "evaluate_seconds", "folder"),
        *("ACC", "FORG", "min-ACC", "WC-ACC", "evaluation.subset"),
    } <= set(frame.columns)
    assert frame["ACC"].to_list() == [run.metrics["ACC"] for run in runs]
    assert frame["method"].to_list() == ["er", "er", "finetune", "finetune"]
    assert frame["seed"].to_list() == [0, 1, 0, 1] and frame["seed"].dtype == pl.Int64
    # Fine-tuning has no memory, and a metric that is undefined is null, not NaN.
    assert frame["settings.memory"].null_count() == 2
    assert not any(frame[name].is_nan().any() for name in frame.columns if frame[name].dtype == pl.Float64)
    assert frame["updates"].to_list() == [20] * 4


def test_a_frame_of_runs_in_memory() -> None:
    frame = engram.Runs([small(), small("finetune")]).frame()
    assert frame["folder"].to_list() == [None, None] and frame["method"].to_list() == ["er", "finetune"]


def test_runs_compare(swept: tuple[engram.Runs, Path]) -> None:
    runs, out = swept
    comparison = runs.compare("ACC")
    assert (comparison.scenario, comparison.setting, comparison.seeds) == ("split-digits", "class", (0, 1))
    assert set(comparison.methods) == {"er", "finetune"} and list(comparison.rankings) == ["ACC"]
    for other in (engram.compare(runs, "ACC"), engram.compare(out, "ACC"), engram.compare(str(out), "ACC")):
        assert other.rankings["ACC"].as_json() == comparison.rankings["ACC"].as_json()
    assert set(runs.compare().rankings) == {"ACC", "FORG", "min-ACC", "WC-ACC"}
    assert runs.compare("ACC", test="t").rankings["ACC"].pairs[0].p != comparison.rankings["ACC"].pairs[0].p


def test_runs_that_were_never_saved_compare(swept: tuple[engram.Runs, Path]) -> None:
    runs = [small(name, seed=seed) for name in ("er", "finetune") for seed in (0, 1)]
    assert all(run.folder is None for run in runs)
    comparison = engram.compare(runs, "ACC", "FORG")
    saved = swept[0].compare("ACC", "FORG")
    assert comparison.seeds == (0, 1) and set(comparison.methods) == set(saved.methods)
    for name in ("ACC", "FORG"):
        assert comparison.rankings[name].as_json() == saved.rankings[name].as_json()
    # The same run twice is one run, saved or not; another one with its seed is too many.
    assert engram.compare([*runs, runs[0]], "ACC").seeds == (0, 1)
    with pytest.raises(InputError, match=f"two runs of er have the seed 0: {runs[0].id} and {runs[0].id}"):
        engram.compare([*runs, small()], "ACC")


def test_reports(swept: tuple[engram.Runs, Path], tmp_path: Path) -> None:
    runs, out = swept
    pages = [
        runs.report(tmp_path / "one.html"),
        engram.report(runs, tmp_path / "two.html"),
        engram.report(out, str(tmp_path / "three.html")),
        runs[0].report(tmp_path / "four.html"),
        small().report(tmp_path / "five.html"),
    ]
    assert [page.name for page in pages] == ["one.html", "two.html", "three.html", "four.html", "five.html"]
    for page in pages:
        text = page.read_text()
        assert text.lstrip().lower().startswith("<!doctype html") and "split-digits" in text
    assert "finetune" in pages[0].read_text() and "finetune" not in pages[3].read_text()


# The package --------------------------------------------------------------------------------------

PUBLIC = {
    *("run", "sweep", "load", "compare", "report", "experiment", "method", "model"),
    *("Run", "Runs", "Evaluator", "Trace", "Scenario", "Experiment", "Learner", "Method", "Batch"),
    *("TaskInfo", "Terms", "Pretrained", "InputError"),
}


def test_dir_lists_the_public_names() -> None:
    assert set(dir(engram)) >= PUBLIC and set(engram.__all__) == set(dir(engram))
    for name in dir(engram):
        assert getattr(engram, name) is not None
    assert not {name for name in dir(engram) if name.startswith("_")} - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'engram' has no attribute 'runn'"):
        _ = engram.runn


def test_import_is_light_and_modules_do_not_take_the_place_of_functions() -> None:
    program = (
        "import sys, engram\n"
        "heavy = {'torch', 'polars', 'scipy', 'plotly', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import engram.api, engram.engine.loop, engram.record.run\n"
        "import engram.results.compare, engram.results.report\n"
        "for name in ('run', 'sweep', 'load', 'compare', 'report', 'experiment', 'method', 'model'):\n"
        "    assert callable(getattr(engram, name)), name\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
