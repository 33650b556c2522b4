"""Own data and models as a person types them: `split:FILE`, `--model FILE:FACTORY`, `--save-weights`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from tests.cli.command import Engram

import engram as package
from engram.core.dataset_info import DATASETS
from engram.datasets import load
from engram.datasets.files import Reading, own_file

SHORT = ("--updates", 2, "--every", 2)
NETS = """
from torch import nn


def small(shape, n_units, *, width: int = 8):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, n_units))


def words(shape, n_units, *, vocabulary: int = 0):
    return nn.Sequential(nn.Embedding(vocabulary, 4), nn.Flatten(), nn.Linear(4 * shape[0], n_units))


def crooked(shape, n_units):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], n_units), nn.Softmax(dim=1))


def number(shape, n_units):
    return 3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data of every kind: six classes, ten samples each."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 10)
    x = draw.normal(size=(60, 5)) + 3 * np.eye(6)[y, :5]
    np.savez("table.npz", x=x, y=y)
    np.savez("parts.npz", x_train=x[::2], y_train=y[::2], x_test=x[1::2], y_test=y[1::2])
    np.savez("other.npz", x=x + 1, y=y)
    np.savez("tokens.npz", x=np.hstack([y[:, None], draw.integers(0, 30, (60, 6))]), y=y)
    np.savez("series.npz", x=draw.normal(size=(60, 7, 2)), y=y)
    np.savez("volume.npz", x=draw.normal(size=(60, 4, 5, 6)), y=y)
    np.savez("images.npz", x=draw.integers(0, 255, (60, 8, 8)).astype(np.uint8), y=y)
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": [f"k{label}" for label in y]})
    frame.write_csv("flowers.csv")
    frame.write_parquet("flowers.parquet")
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def folder_of_images(place: Path, classes: Sequence[str] = ("cat", "dog"), *, count: int = 5) -> Path:
    draw = np.random.default_rng(0)
    for name in classes:
        (place / "pets" / name).mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 255, (6, 6, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(place / "pets" / name / f"{number}.png")
    return place / "pets"


def ids(done: Any) -> list[str]:
    return [run["id"] for run in done.json["runs"]]


@pytest.mark.parametrize(
    ("scenario", "options", "tasks", "model"),
    [
        ("split:table.npz", ("--classes-per-task", "3", "--order", "5,4,3,2,1,0"), 2, "mlp"),
        ("split:parts.npz", ("--classes-per-task", "2,4"), 2, "mlp"),
        ("split:tokens.npz", (), 3, "embedding-mlp"),
        ("split:series.npz", (), 3, "gru"),
        ("split:series.npz", ("--model", "conv1d"), 3, "conv1d"),
        ("split:volume.npz", (), 3, "mlp"),
        ("split:flowers.csv", ("--label", "kind", "--order", "k5,k4,k3,k2,k1,k0"), 3, "mlp"),
        ("split:flowers.parquet", ("--label", "kind", "--features", "b"), 3, "mlp"),
        ("permuted:table.npz", ("--n-tasks", 3), 3, "mlp"),
        ("rotated:images.npz", ("--angles", "0,22.5"), 2, "mlp"),
        ("domains:table.npz,other.npz", (), 2, "mlp"),
        ("split:digits", ("--classes-per-task", "5"), 2, "mlp"),
    ],
)
def test_scenarios_from_data(
    scenario: str, options: tuple[object, ...], tasks: int, model: str, place: Path, engram: Engram
) -> None:
    done = engram("run", scenario, "finetune", *options, *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    [run] = package.load("runs")
    assert len(run.experiment.scenario.tasks) == tasks and run.experiment.model.name == model
    assert scenario.startswith("split:digits") or ids(done)[0].startswith(scenario.partition(":")[0] + "-")


def test_orders_decide_which_class_comes_when(place: Path) -> None:
    planned = package.experiment(
        "split:flowers.csv", "er", label="kind", order=("k3", "k1", "k0", "k2", "k5", "k4")
    )
    assert [task.source.classes for task in planned.scenario.tasks] == [(3, 1), (0, 2), (5, 4)]
    numbered = package.experiment("split:flowers.csv", "er", label="kind", order=(3, 1, 0, 2, 5, 4))
    assert numbered.id == planned.id


def test_ids_follow_the_content_and_not_the_place(place: Path, engram: Engram) -> None:
    command = ("run", "split:table.npz", "er", *SHORT, "--json")
    [first] = ids(engram(*command))
    (place / "elsewhere").mkdir()
    (place / "table.npz").rename(place / "elsewhere" / "table.npz")
    assert ids(engram("run", "split:elsewhere/table.npz", "er", *SHORT, "--json")) == [first]
    with np.load(place / "elsewhere" / "table.npz") as file:
        values = dict(file)
    values["x"][0, 0] += 1e-3
    np.savez(place / "table.npz", **values)
    assert ids(engram(*command)) != [first]


def test_folders_of_images_and_their_content(place: Path, engram: Engram) -> None:
    pets = folder_of_images(place)
    command = ("run", "split:pets", "er", "--classes-per-task", 1, *SHORT)
    done = engram(*command)
    assert done.returncode == 0 and "20 % of each class held out for testing, seed 0" in done.stderr
    before = own_file(pets)
    assert DATASETS[before].shape == (3, 6, 6) and DATASETS[before].class_names == ("cat", "dog")
    pixels = np.asarray(Image.open(pets / "cat" / "0.png")).copy()
    # The same size in bytes, other pixels: only the content tells.
    bmp = pets / "cat" / "0.bmp"
    (pets / "cat" / "0.png").unlink()
    Image.fromarray(pixels).save(bmp)
    first = own_file(pets)
    Image.fromarray(255 - pixels).save(bmp)
    assert own_file(pets) not in (first, before)


def test_a_held_out_part_is_said_and_is_the_same_for_every_seed(place: Path, engram: Engram) -> None:
    done = engram("run", "split:table.npz", "er", "--test-share", 0.3, "--seeds", 2, *SHORT)
    assert "table 5, " in done.stderr
    assert "42 training and 18 test samples (30 % of each class held out for testing, seed 0)" in done.stderr
    runs = package.load("runs")
    assert len({run.experiment.scenario.tasks[0].source.dataset for run in runs}) == 1
    assert "held out" not in engram("run", "split:parts.npz", "er", *SHORT).stderr


def test_nothing_gets_an_axis_or_is_normalised(place: Path) -> None:
    for name, shape in (("table", (5,)), ("series", (7, 2)), ("volume", (4, 5, 6)), ("tokens", (7,))):
        planned = package.experiment(f"split:{name}.npz", "finetune")
        assert all(task.transforms == () for task in planned.scenario.tasks)
        data = load(planned.scenario.tasks[0].source.dataset)
        assert data.train.shape == shape
        samples = next(iter(data.train.read([torch.arange(2)])))
        assert samples.dtype == (torch.int64 if name == "tokens" else torch.float32)


def test_kinds_of_input_can_be_said(place: Path) -> None:
    table = DATASETS[own_file(place / "tokens.npz", Reading(inputs="table"))]
    assert (table.inputs, table.vocabulary) == ("table", 0)
    series = package.experiment("split:images.npz", "er", inputs="series")
    assert series.model.name == "gru"


def test_lists_in_parquet_are_tokens(place: Path) -> None:
    rows = [[label, 7, 1] for label in range(4) for _ in range(5)]
    pl.DataFrame(
        {"input_ids": rows, "label": [row[0] for row in rows], "mask": [[1] * 3] * 20}
    ).write_parquet("t.parquet")
    planned = package.experiment("split:t.parquet", "er", features=("input_ids",))
    assert planned.model.name == "embedding-mlp" and planned.model.vocabulary == 8


def test_sweeps_and_protocols_take_them_too(place: Path, engram: Engram) -> None:
    (place / "sweep.toml").write_text(
        'scenario = ["split:table.npz", "split:tokens.npz"]\nmethod = "finetune"\nupdates = 2\n'
        "classes_per_task = 3\norder = [5, 4, 3, 2, 1, 0]\n"
    )
    planned = engram("sweep", "sweep.toml", "--dry-run", "--json").json
    assert len(planned["runs"]) == 2
    done = engram(
        "protocol",
        "grid",
        "split:flowers.csv",
        "finetune",
        "--label",
        "kind",
        "--grid",
        "lr=.1,.01",
        "--updates",
        2,
    )
    assert done.returncode == 0, done.stderr
    assert "3 tasks of 2 classes" in engram("explain", "split:table.npz").stdout


@pytest.mark.parametrize(
    ("scenario", "options", "complaint"),
    [
        ("split:nowhere.npz", (), "no such file: nowhere.npz"),
        ("split:digist", (), "unknown data set or file 'digist'; did you mean 'digits'"),
        ("split:", (), "names no data"),
        ("split:notes.txt", (), "cannot read"),
        ("split:fake.npz", (), "is not an npz file"),
        ("split:cut.npz", (), "is broken"),
        ("split:wrong.npz", (), "must hold x_train, y_train, x_test, y_test, or x and y; it holds a"),
        ("split:objects.npz", (), "objects or ragged arrays"),
        ("split:flowers.csv", (), "has no column 'label': it has a, b, kind"),
        ("split:flowers.csv", ("--label", "kinds"), "has no column 'kinds'"),
        ("split:gaps.csv", ("--label", "kind"), "has no label in 1 row"),
        ("split:nan.npz", (), "has no label for 2 samples"),
        ("split:text.csv", ("--label", "kind"), "holds String, not numbers"),
        ("split:ragged.parquet", (), "have different lengths"),
        ("split:infinite.npz", (), "values that are not finite"),
        ("split:untested.npz", (), "class 2 in untested.npz has no test samples"),
        ("split:unlearned.npz", (), "class 2 in unlearned.npz has no training samples"),
        ("split:single.npz", (), "class 1 has 1 sample"),
        ("split:uneven.npz", (), "60 samples and 59 labels"),
        ("split:empty", (), "has no folders"),
        ("split:hollow", (), "0 images"),
        ("split:table.npz", ("--order", "0,1,2,3,4"), "order leaves out 5"),
        ("split:table.npz", ("--order", "0,1,2,3,4,9"), "unknown class of"),
        ("split:table.npz", ("--order", "0,1,2,3,4,4"), "names the class 4 twice"),
        ("split:table.npz", ("--classes-per-task", 4), "must divide the 6 classes"),
        ("split:table.npz", ("--n-tasks", 4), "n_tasks is for permuted:DATA"),
        ("split:table.npz", ("--label", "y"), "has arrays, not columns"),
        ("split:parts.npz", ("--test-share", 0.5), "has test samples of its own"),
        ("split:table.npz", ("--inputs", "image"), "which are no images"),
        ("split:table.npz", ("--inputs", "tokens"), "tokens are whole numbers"),
        ("split-digits", ("--classes-per-task", 5), "is for scenarios composed from data"),
        ("rotated:table.npz", (), "only images can be rotated"),
        ("domains:table.npz", (), "takes several data sets"),
        ("domains:table.npz,series.npz", (), "samples of one kind and shape"),
        ("domains:table.npz,digits", (), "must have the same classes"),
        ("split:tokens.npz", ("--model", "mlp"), "model mlp needs numbers"),
        ("split:table.npz", ("--model", "gru"), "model gru needs series"),
        ("split:table.npz", ("--model", "embedding-mlp"), "needs the number of different tokens"),
        ("split:tokens.npz", ("--set", "model.vocabulary=3"), "vocabulary must be at least"),
        ("split:table.npz", ("--model", "nowhere.py:small"), "does not exist"),
        ("split:table.npz", ("--model", "nets.py:big"), "unknown factory in nets.py 'big'"),
        ("split:table.npz", ("--model", "nets.py:crooked"), "is not what computes its scores"),
        ("split:table.npz", ("--model", "nets.py:number"), "must be an nn.Module"),
        ("split:table.npz", ("--save-weights", "all"), "unknown weights to save 'all'"),
        ("split:table.npz", ("--weights", "empty"), "has no weights"),
        ("split:table.npz", ("--weights", "broken.safetensors"), "are broken"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    scenario: str, options: tuple[object, ...], complaint: str, place: Path, engram: Engram
) -> None:
    y = np.repeat(np.arange(6), 10)
    x = np.zeros((60, 5))
    (place / "notes.txt").write_text("notes")
    (place / "fake.npz").write_text("notes")
    content = bytearray((place / "table.npz").read_bytes())
    content[500] ^= 255
    (place / "cut.npz").write_bytes(content)
    (place / "broken.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    (place / "empty").mkdir()
    (place / "hollow" / "cat").mkdir(parents=True)
    np.savez("wrong.npz", a=x)
    np.savez("objects.npz", x=np.array([[1], [1, 2]], dtype=object), y=y[:2])
    np.savez("nan.npz", x=x, y=np.where(np.arange(60) < 2, np.nan, y))
    np.savez("infinite.npz", x=x + np.inf, y=y)
    np.savez("untested.npz", x_train=x, y_train=y % 3, x_test=x[:2], y_test=[0, 1])
    np.savez("unlearned.npz", x_train=x[:2], y_train=[0, 1], x_test=x, y_test=y % 3)
    np.savez("single.npz", x=x[:3], y=[0, 0, 1])
    np.savez("uneven.npz", x=x, y=y[1:])
    (place / "gaps.csv").write_text("a,kind\n1,x\n2,\n3,y\n")
    (place / "text.csv").write_text("a,kind\nblue,x\nred,y\n")
    pl.DataFrame({"x": [[1, 2], [3]], "label": [0, 1]}).write_parquet("ragged.parquet")
    done = engram("run", scenario, "finetune", *options, *SHORT, "--out", "results")
    assert done.returncode == 2, done.stdout + done.stderr
    [error] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert complaint in error and "Traceback" not in done.stderr
    assert not (place / "results").exists() or not list((place / "results").iterdir())


@pytest.mark.parametrize("method", ["dgr", "rtf", "naive-rehearsal-c"])
def test_methods_that_compute_with_inputs_refuse_tokens(method: str, place: Path, engram: Engram) -> None:
    done = engram("run", "split:tokens.npz", method, *SHORT)
    assert done.returncode == 2 and "has tokens" in done.stderr


@pytest.mark.parametrize("save", ["final", "tasks"])
def test_kept_weights_give_the_network_back(save: str, place: Path, engram: Engram) -> None:
    command = ("run", "split:table.npz", "er", "--model", "nets.py:small", "--set", "model.width=9", *SHORT)
    [plain] = ids(engram(*command, "--json", "--out", "plain"))
    [kept] = ids(engram(*command, "--json", "--save-weights", save))
    assert kept == plain, "keeping weights is not part of the identity"
    [run] = package.load("runs")
    assert run.trace.step == package.load("plain")[0].trace.step
    names = (
        ["weights.safetensors"] if save == "final" else [f"weights-task-{n}.safetensors" for n in (1, 2, 3)]
    )
    assert list(run.weights) == names
    with safe_open(place / "runs" / kept / names[-1], "pt") as file:
        assert kept in file.metadata()["engram"]
    network = package.load(place / "runs" / kept).model("nets.py:small")
    assert not network.training and network.head.out_features == 6 and network.width == 9
    # The last evaluation of the run, made again with the network that was kept.
    data = load(run.experiment.scenario.tasks[0].source.dataset)
    order = torch.arange(len(data.test))
    x = next(iter(data.test.read([order])))
    last = max(run.trace.step)
    for row in [row for row, step in enumerate(run.trace.step) if step == last]:
        mine = torch.isin(
            data.test.labels, torch.tensor(run.experiment.scenario.tasks[run.trace.task[row]].source.classes)
        )
        answers = network(x[mine]).argmax(dim=1)
        assert (answers == data.test.labels[mine]).tolist() == run.trace.right(row).tolist()
    again = engram(*command, "--weights", place / "runs" / kept, "--out", "more")
    assert again.returncode == 0 and "head from the file" in again.stderr


def test_weights_that_are_missing_or_changed_are_said(place: Path, engram: Engram) -> None:
    command = ("run", "split:table.npz", "er", *SHORT)
    assert engram(*command).returncode == 0
    late = engram(*command, "--save-weights", "final")
    assert late.returncode == 2 and "run it again with --again" in late.stderr
    with pytest.raises(package.InputError, match="kept no weights"):
        package.load("runs").model()
    assert engram(*command, "--save-weights", "final", "--again").returncode == 0
    [run] = package.load("runs")
    assert run.model().width == 400
    assert run.folder is not None
    file = run.folder / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(package.InputError, match="not those that the experiment names"):
        run.model()


def test_a_changed_model_file_is_another_experiment(place: Path, engram: Engram) -> None:
    command = ("run", "split:table.npz", "er", "--model", "nets.py:small", "--json", *SHORT)
    [first] = ids(engram(*command))
    (place / "nets.py").write_text(NETS.replace("ReLU", "Tanh"))
    assert ids(engram(*command)) != [first]


def test_methods_with_several_networks_keep_no_weights(place: Path, engram: Engram) -> None:
    done = engram("run", "split:table.npz", "icarl", *SHORT, "--save-weights", "final", "--out", "results")
    assert done.returncode == 2 and "more than the weights of one network" in done.stderr
    assert not (place / "results").exists()


# The gate on weights ----------------------------------------------------------------------------------


@pytest.fixture
def two_versions(place: Path) -> tuple[Path, Path]:
    for seed, name in ((0, "old"), (1, "new")):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6)
        )
        torch.save(net.state_dict(), f"{name}.pt")
    (place / "slices.toml").write_text('[slices]\nall = "table.npz"\nshifted = "other.npz"\n')
    return place / "old.pt", place / "new.pt"


def test_the_gate_on_weights_says_what_python_says(two_versions: tuple[Path, Path], engram: Engram) -> None:
    done = engram("gate", *two_versions, "--model", "nets.py:small", "--data", "slices.toml", "--json")
    assert done.returncode == 0 and done.json["overall"]["before"] != done.json["overall"]["after"]
    out = done.json
    gate = package.gate(*two_versions, "slices.toml", model="nets.py:small")
    assert out == json.loads(json.dumps(gate.as_json()))
    networks = []
    for file in two_versions:
        net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6)
        )
        net.load_state_dict(torch.load(file, weights_only=True))
        networks.append(net)
    slices = {}
    for name, path in (("all", "table.npz"), ("shifted", "other.npz")):
        with np.load(path) as values:
            slices[name] = (torch.from_numpy(values["x"]).float(), torch.from_numpy(values["y"]))
    assert package.gate(networks[0], networks[1], slices).as_json() == gate.as_json()


def test_weights_of_runs_need_no_model_and_know_their_classes(place: Path, engram: Engram) -> None:
    for name, updates in (("old", 20), ("new", 1)):
        done = engram(
            *("run", "split:flowers.csv", "er", "--label", "kind", "--order", "k5,k4,k3,k2,k1,k0"),
            *("--updates", updates, "--save-weights", "final", "--out", name),
        )
        assert done.returncode == 0, done.stderr
    (place / "slices.toml").write_text('label = "kind"\n[slices]\nflowers = "flowers.csv"\n')
    [old], [new] = ([path for path in Path(name).iterdir() if path.is_dir()] for name in ("old", "new"))
    done = engram("gate", old, new, "--data", "slices.toml")
    assert done.returncode in (0, 1) and "class=k5" in done.stdout
    # Units are in the order of arrival: the network knows its classes by name.
    [run] = package.load("old")
    assert run.model()(torch.zeros(1, 2)).shape == (1, 6)


@pytest.mark.parametrize(
    ("options", "slices", "complaint"),
    [
        ((), '[slices]\nall = "table.npz"', "do not say which network"),
        (("--model", "nets.py:small"), "nothing = 1", "has no [slices]"),
        (("--model", "nets.py:small"), "[slices", "is not TOML"),
        (("--model", "nets.py:small"), '[slices]\nall = "gone.npz"', "no such file"),
        (("--model", "nets.py:small"), "[slices]\nall = 3", "names no file"),
        (("--model", "nets.py:small"), '[slices]\nall = "flowers.csv"', "has no column 'label'"),
        (
            ("--model", "nets.py:small"),
            'label = "kind"\n[slices]\nall = "flowers.csv"',
            "labels of the slice all are text",
        ),
        (("--model", "nets.py:small"), '[slices]\na = "table.npz"\nb = "series.npz"', "different shapes"),
        (("--model", "nets.py:words"), '[slices]\nall = "table.npz"', "error"),
        (("--model", "mlp"), '[slices]\nall = "table.npz"', "do not fit"),
        (
            ("--model", "nets.py:small"),
            'colour = 1\n[slices]\nall = "table.npz"',
            "unknown key of slices.toml",
        ),
    ],
)
def test_bad_input_to_the_gate_on_weights(
    options: tuple[str, ...], slices: str, complaint: str, two_versions: tuple[Path, Path], engram: Engram
) -> None:
    Path("slices.toml").write_text(slices)
    done = engram("gate", *two_versions, *options, "--data", "slices.toml")
    assert done.returncode == 2 and complaint in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_weights_without_data_and_broken_weights_are_refused(
    two_versions: tuple[Path, Path], engram: Engram
) -> None:
    assert "--data FILE" in engram("gate", *two_versions).stderr
    assert "--data FILE" in engram("gate", "a.csv", "b.csv", "--model", "mlp").stderr
    Path("cut.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    done = engram(
        "gate", "cut.safetensors", two_versions[1], "--model", "nets.py:small", "--data", "slices.toml"
    )
    assert done.returncode == 2 and "are broken" in done.stderr


def test_slips_in_names_of_own_data_and_models_are_told(engram: Engram, tmp_path: Path) -> None:
    np.savez(tmp_path / "letters.npz", x=np.zeros((8, 3)), y=np.arange(8) % 2)
    unknown = engram("run", f"slit:{tmp_path / 'letters.npz'}", "er")
    assert (
        unknown.returncode == 2
        and "unknown kind of scenario 'slit:'; did you mean 'split:'" in unknown.stderr
    )
    nameless = engram("run", "split-digits", "er", "--model", "nets.py", "--out", tmp_path)
    assert nameless.returncode == 2 and "name it, nets.py:FACTORY" in nameless.stderr
