"""`engram run`, `demo` and `verify` as a person types them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.cli.command import Engram

from engram.core.errors import InputError
from engram.models import MODELS

ENGRAM = [sys.executable, "-m", "engram"]
SHORT = ["--updates", "6", "--subset", "20"]


def test_json_is_one_object_with_the_promised_keys(tmp_path: Path, engram: Engram) -> None:
    done = engram("run", "split-digits", "er", *SHORT, "--seeds", 2, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert [run["seed"] for run in output["runs"]] == [0, 1]
    first = output["runs"][0]
    promised = {"id", "seed", "folder", "metrics", "updates", "evaluations", "seconds", "account"}
    # On a busy machine evaluations may take so long that evaluators are used.
    assert first.keys() - {"parallel"} == promised | {"extremes"}
    assert first["updates"] == 30 and first["evaluations"] == 31
    assert first["seconds"].keys() == {"train", "evaluate", "total"}
    assert output["summary"]["ACC"].keys() == {"mean", "sd", "ddof", "ci95", "interval", "n"}
    assert output["summary"]["ACC"]["n"] == 2
    folder = Path(first["folder"])
    assert {p.name for p in folder.iterdir()} == {
        "experiment.json",
        "trace.parquet",
        "samples.parquet",
        "result.json",
    }
    account = json.loads((folder / "result.json").read_text())["account"]
    assert account["kept_bytes"][0] > 0 and account["flops"][1] > account["flops"][0]


def test_a_run_that_exists_is_not_run_again(tmp_path: Path, engram: Engram) -> None:
    command = ["run", "split-digits", "finetune", *SHORT, "--out", tmp_path, "--json"]
    first = json.loads(engram(*command).stdout)
    place = Path(first["runs"][0]["folder"]) / "result.json"
    stamp = place.stat().st_mtime_ns
    assert json.loads(engram(*command).stdout) == first
    assert place.stat().st_mtime_ns == stamp
    assert engram(*command, "--again").returncode == 0
    assert place.stat().st_mtime_ns != stamp


@pytest.mark.parametrize("option", ["--updates", "--epochs"])
def test_the_length_of_a_stream_that_is_seen_once_is_refused(option: str, engram: Engram) -> None:
    done = engram("run", "split-tiny-imagenet", "finetune", option, 2)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        f"shows every sample once, so {option[2:]}=2 would be ignored: leave {option[2:]} out" in done.stderr
    )


def test_people_get_settings_a_table_and_a_report(tmp_path: Path, engram: Engram) -> None:
    done = engram("run", "split-digits", "ewc", *SHORT, "--set", "strength=7", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "strength=7" in done.stderr and "batches of 32" in done.stderr
    assert "ACC" in done.stdout and "95 % interval" in done.stdout
    page = Path(done.stdout.rsplit("report: ", 1)[1].strip())
    assert page.is_file() and "<html" in page.read_text()


def test_probes_are_recorded(tmp_path: Path, engram: Engram) -> None:
    import polars as pl

    done = engram(
        "run", "split-digits", "gem", *SHORT, "--gradients", "--losses", "--out", tmp_path, "--json"
    )
    folder = Path(json.loads(done.stdout)["runs"][0]["folder"])
    probes = pl.read_parquet(folder / "probes.parquet")
    parts = {f"{part}-{what}" for part in ("plasticity", "stability") for what in ("gradient", "loss")}
    assert set(probes["name"]) == {"loss", *parts}
    stability = probes.filter(pl.col("name") == "stability-gradient")
    assert stability.filter(pl.col("learning") == 0)["value"].sum() == 0
    assert stability.filter(pl.col("learning") > 0)["value"].max() > 0  # type: ignore[operator]


PLUGIN = """
from dataclasses import dataclass
from typing import Annotated
from pydantic import Field
import engram

@engram.method("mine")
@dataclass(kw_only=True, eq=False)
class Mine(engram.Learner):
    "Fine-tuning with a knob."
    knob: Annotated[int, Field(gt=0, description="turns")] = 3
"""


def test_the_block_of_winners_is_an_option(tmp_path: Path, engram: Engram) -> None:
    done = engram(
        "run", "split-digits", "finetune", *SHORT, "--model", "lwta", "--block", 4, "--out", tmp_path
    )
    assert done.returncode == 0 and "lwta hidden=64,64 block=4" in done.stderr
    (written,) = tmp_path.glob("*/experiment.json")
    assert json.loads(written.read_text())["model"]["block"] == 4


def test_a_method_of_ones_own(tmp_path: Path, engram: Engram) -> None:
    script = tmp_path / "mine.py"
    script.write_text(PLUGIN)
    command = ["run", "split-digits", "mine", *SHORT, "--out", tmp_path / "runs", "--plugin", script]
    assert engram(*command, "--json").returncode == 0
    wrong = engram(*command, "--set", "knob=0")
    assert wrong.returncode == 2 and "knob must be greater than 0, got '0'" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["split-digit", "er"], "did you mean 'split-digits'"),
        (["split-digits", "ewcc"], "did you mean 'ewc'"),
        (["split-digits", "er", "--setting", "clas"], "did you mean 'class'"),
        (["split-digits", "er", "--set", "memori=3"], "its fields are memory, memory_batch, weight, policy"),
        (["split-digits", "er", "--set", "memory=-3"], "memory must be greater than 0, got '-3'"),
        (["split-digits", "er", "--set", "memory"], "FIELD=VALUE"),
        (["split-digits", "er", "--set", "memory=5", "--set", "memory=6"], "memory twice, to 5 and 6"),
        (
            ["split-digits", "ewc", "--set", "strength=-1"],
            "strength must be greater than or equal to 0, got '-1'",
        ),
        (["split-digits", "lwf", "--set", "temperature=0"], "temperature must be greater than 0, got '0'"),
        (["split-digits", "er", "--lr", "-1"], "lr must be above 0, got -1"),
        (["split-digits", "er", "--lr", "x"], "valid number"),
        (
            ["split-digits", "er", "--hidden", "4,a"],
            "hidden must be whole numbers with commas, such as 400,400, got '4,a'",
        ),
        (
            ["split-digits", "er", "--hidden", "4,x"],
            "hidden must be whole numbers with commas, such as 400,400, got '4,x'",
        ),
        (["split-digits", "er", "--hidden", "-4"], "hidden must be at least 1, got '-4'"),
        (["split-digits", "er", "--block", "4"], "model mlp has no option block: it belongs to lwta"),
        (["split-digits", "er", "--model", "lwta", "--block", "1"], "block must be at least 2, got 1"),
        (["split-digits", "er", "--optimizer", "adamw", "--momentum", ".9"], "belongs to sgd and rmsprop"),
        (["split-digits", "dgr", "--set", "low=5", "--set", "high=1"], "low=5.0 and high=1.0"),
        (["split-digits", "rtf", "--set", "low=1", "--set", "high=1"], "low=1.0 and high=1.0"),
        (["split-digits", "er", "--model", "mpl"], "did you mean 'mlp'"),
        (["split-digits", "er", "--optimizer", "adamm"], "did you mean 'adam'"),
        (["split-digits", "er", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["split-digits", "er", "--every", "0"], "every must be at least 1, got 0"),
        (["split-digits", "er", "--subset", "-1"], "subset must be at least 1, got -1"),
        (["split-digits", "er", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (
            ["split-digits", "er", "--epochs", "1", "--updates", "3"],
            "--updates cannot be used together",
        ),
        (["split-digits", "er", "--weight-decay", "nan"], "weight_decay must be at least 0, got nan"),
        (["split-digits", "ewc", "--set", "strength=inf"], "strength must be a finite number, got 'inf'"),
        (["split-digits", "er", "--threads", "0"], "threads must be at least 1, got 0"),
        (["split-digits", "er", "--device", "tpu"], "on this machine, got 'tpu'"),
        (["split-digits", "er", "--classes", "many"], "classes must be known or unknown, got 'many'"),
        (["split-digits", "er", "--plugin", "nowhere.py"], "nowhere.py does not exist"),
        (["split-digits", "independent", "--setting", "class"], "needs task identity"),
        (["split-kmnist", "er", "--data", "nowhere"], "nowhere"),
        (["split-digits", "er", "--data", "nowhere"], "the data folder nowhere is not a folder"),
        (["split-digits"], "missing argument 'METHOD'; see `engram run --help`"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, tmp_path: Path, engram: Engram) -> None:
    done = engram("run", *arguments, "--out", tmp_path / "runs")
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and words in last
    assert not list((tmp_path / "runs").glob("*"))


def test_diverging_run(tmp_path: Path, engram: Engram) -> None:
    done = engram("run", "split-digits", "finetune", *SHORT, "--lr", "1e9", "--out", tmp_path)
    assert done.returncode == 2 and "try a learning rate smaller" in done.stderr.splitlines()[-1]
    assert len(list(tmp_path.glob("*/trace.parquet"))) == 1


def test_a_network_that_does_not_fit_into_memory_is_one_line(tmp_path: Path, engram: Engram) -> None:
    done = engram("run", "split-digits", "er", "--hidden", "3000000,3000000", "--out", tmp_path / "runs")
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: out of memory") and "Traceback" not in done.stderr
    (failure,) = (tmp_path / "runs").glob("*/failure.json")
    assert json.loads(failure.read_text())["kind"] == "out of memory"
    assert {file.name for file in failure.parent.iterdir()} == {"experiment.json", "failure.json"}


def test_a_place_that_cannot_be_written(tmp_path: Path, engram: Engram) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder should be")
    done = engram("run", "split-digits", "finetune", *SHORT, "--out", taken)
    assert done.returncode == 2 and "cannot write" in done.stderr.splitlines()[-1]
    done = engram("run", "split-digits", "finetune", *SHORT, "--out", tmp_path / ("x" * 300))
    assert done.returncode == 2 and "File name too long" in done.stderr.splitlines()[-1]


def test_again_keeps_what_is_there_until_something_better_is(tmp_path: Path, engram: Engram) -> None:
    command = ("run", "split-digits", "finetune", "--updates", "2", "--every", "1000", "--out", tmp_path)
    assert engram(*command).returncode == 0
    (result,) = tmp_path.glob("*/result.json")
    first = result.stat().st_mtime_ns
    with patch("engram.engine.execute.run_steps", side_effect=InputError("the data are gone")):
        assert engram(*command, "--again").returncode == 2
    assert result.stat().st_mtime_ns == first
    assert engram(*command, "--again").returncode == 0
    assert result.stat().st_mtime_ns > first
    assert [folder.name for folder in tmp_path.iterdir() if folder.is_dir()] == [result.parent.name]
    # Killed in the middle, such a command leaves the old run aside; the next one finds it.
    second = result.stat().st_mtime_ns
    result.parent.replace(tmp_path / f".{result.parent.name}.before")
    result.parent.mkdir()
    with patch("engram.engine.execute.run_steps", side_effect=InputError("the data are gone")):
        assert engram(*command).returncode == 0
        assert engram(*command, "--again").returncode == 2
    assert result.stat().st_mtime_ns == second


def test_evaluations_within_epochs_do_not_miss_the_ends_of_tasks(tmp_path: Path, engram: Engram) -> None:
    command = (
        "run",
        "split-digits",
        "finetune",
        "--epochs",
        "2",
        "--every",
        "1000",
        "--subset",
        "0",
        "--json",
    )
    output = [
        engram(*command, *more, "--out", tmp_path).json["runs"][0]["metrics"]
        for more in ([], ["--per-epoch"])
    ]
    assert output[0]["ACC"] == output[1]["ACC"] and output[0]["FORG"] == output[1]["FORG"]


@pytest.mark.slow
def test_interrupt_keeps_finished_runs(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*ENGRAM, "run", "split-digits", "er", "--seeds", "50", "--subset", "20", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for _ in range(1200):
        if list(tmp_path.glob("*/result.json")):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    last = errors.strip().splitlines()[-1]
    assert last.startswith("error: interrupted") and "run the same command again to resume" in last
    assert list(tmp_path.glob("*/result.json"))
    assert "Traceback" not in errors


@pytest.mark.slow
def test_verify_isolation(engram: Engram) -> None:
    done = engram("verify", "isolation", "finetune", "--json")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["holds"] and all(len(check["watched"]) == 64 for check in output["checks"])
    assert engram("verify", "isolation", "nothing").returncode == 2


RUNNING = """
import engram
import torch
from torch import nn

class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = torch.zeros(())

    def forward(self, x):
        self.total = 0.9 * self.total + x.detach().mean()
        return x / (1 + self.total.abs())

@engram.model("test-running", head="3")
def running(shape, n_units):
    "Divides by a running mean, also in evaluation."
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), Running(), nn.Linear(20, n_units))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default::engram.evaluation.guard.SelfChange")
def test_verify_isolation_of_an_own_network(tmp_path: Path, engram: Engram) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(RUNNING)
    try:
        done = engram("verify", "isolation", "er", "--plugin", plugin, "--model", "test-running", "--json")
    finally:
        MODELS.remove("test-running")
    assert done.returncode == 0, done.stderr
    assert [(check["model"], check["holds"]) for check in done.json["checks"]] == [("test-running", True)]
    assert "features.2 (Running) changes itself in evaluation (total)" in done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("default::engram.evaluation.guard.SelfChange")
def test_verify_isolation_of_a_network_in_a_file(tmp_path: Path, engram: Engram) -> None:
    script = tmp_path / "nets.py"
    script.write_text(RUNNING.replace('@engram.model("test-running", head="3")\n', ""))
    done = engram("verify", "isolation", "er", "--model", f"{script}:running", "--json")
    assert done.returncode == 0, done.stderr
    assert [check["holds"] for check in done.json["checks"]] == [True]
    assert "(Running) changes itself in evaluation (total)" in done.stderr


def test_verify_isolation_refuses_unknown_names(engram: Engram) -> None:
    for options, message in (
        (["--model", "resnt"], "unknown model 'resnt'"),
        (["--model", "missing.py:net"], "the model missing.py does not exist"),
        (["--scenario", "split-digit"], "unknown scenario 'split-digit'"),
        (["--plugin", "missing.py"], "missing.py"),
    ):
        done = engram("verify", "isolation", "finetune", *options)
        assert done.returncode == 2 and message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_help_and_import_are_light() -> None:
    program = (
        "import sys, engram, engram.cli\n"
        "heavy = {'torch', 'sklearn', 'plotly', 'scipy', 'polars', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
