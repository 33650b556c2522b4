"""Pretrained starts as a person types them: `--weights`, a model of one's own, upstream accuracy."""

from pathlib import Path

import pytest
import torch
from tests.cli.command import Engram

from engram.engine.loop import run_steps
from engram.engine.recipe import experiment
from engram.models import ModelSpec, build

SHORT = ["--setting", "task", "--updates", "4", "--subset", "20"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that knows all digits."""
    seldom = {"every": 1000}
    *_, last = run_steps(
        experiment("split-digits", "offline", setting="class", updates=30, evaluation=seldom)
    )
    assert last.method is not None
    place = tmp_path_factory.mktemp("weights") / "digits.pt"
    torch.save(last.method.predictor().state_dict(), place)
    return place


def test_a_run_says_what_it_starts_from(weights: Path, tmp_path: Path, engram: Engram) -> None:
    command = ["run", "split-digits", "lp-ft", *SHORT, "--out", tmp_path / "runs"]
    done = engram(*command, "--weights", weights)
    assert done.returncode == 0, done.stderr
    assert "start  digits.pt (sha256 " in done.stderr and "head from the file" in done.stderr
    [with_weights] = [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert engram(*command, "--json").json["runs"][0]["id"] != with_weights
    assert engram(*command, "--weights", weights, "--json").json["runs"][0]["id"] == with_weights


def test_a_head_of_other_size_is_said(weights: Path, tmp_path: Path, engram: Engram) -> None:
    done = engram(
        *("run", "split-digits", "finetune", "--setting", "domain", "--updates", 2),
        *("--weights", weights, "--out", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    assert "head left fresh: 10 units in the file, 2 here" in done.stderr


def test_bad_weights_are_one_line_and_leave_nothing(tmp_path: Path, engram: Engram) -> None:
    out = tmp_path / "runs"
    files = {name: tmp_path / f"{name}.pt" for name in ("empty", "module", "shapes", "cut", "nowhere")}
    files["empty"].touch()
    torch.save(torch.nn.Linear(2, 2), files["module"])
    other = build(ModelSpec(hidden=(5,)), shape=(1, 8, 8), n_units=10, seed=0)
    torch.save(other.state_dict(), files["shapes"])
    files["cut"].write_bytes(files["shapes"].read_bytes()[:900])
    words = {
        "empty": "are empty",
        "module": "save a state dict: torch.save(model.state_dict(), FILE)",
        "shapes": "do not fit: features.1.weight is 5×64 in the file",
        "cut": "are broken",
        "nowhere": "cannot read the weights",
    }
    for name, file in files.items():
        for verb in (("run",), ("protocol", "grid")):
            done = engram(*verb, "split-digits", "finetune", *SHORT, "--weights", file, "--out", out)
            assert done.returncode == 2, done.stderr
            assert len(done.stderr.strip().splitlines()) == 1 and words[name] in done.stderr
    assert not out.exists()


PLUGIN = """
import math
from torch import nn
import engram

@engram.model("mine", head="last")
def mine(shape, n_units):
    "A network of one's own."
    made = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 12), nn.Tanh())
    made.add_module("last", nn.Linear(12, 1000))
    return made
"""


def test_a_model_of_ones_own_with_weights_of_its_own(tmp_path: Path, engram: Engram) -> None:
    script = tmp_path / "mine.py"
    script.write_text(PLUGIN)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 12), torch.nn.Tanh())
    module.add_module("last", torch.nn.Linear(12, 1000))
    torch.save(module.state_dict(), tmp_path / "mine.pt")
    done = engram(
        *("run", "split-digits", "er", *SHORT, "--model", "mine", "--plugin", script),
        *("--weights", tmp_path / "mine.pt", "--out", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    assert "head left fresh: 1000 units in the file, 10 here" in done.stderr
    script.write_text("nothing = 1\n")
    wrong = engram("run", "split-digits", "er", "--plugin", script)
    assert wrong.returncode == 2 and "registers nothing: write a decorator" in wrong.stderr


def test_upstream_accuracy_of_a_protocol(weights: Path, tmp_path: Path, engram: Engram) -> None:
    command = ["protocol", "forward-transfer", "split-digits", "finetune,lp-ft", "--setting", "task"]
    short = ["--updates", 10, "--shots", "2", "--out", tmp_path / "runs"]
    output = engram(*command, *short, "--weights", weights, "--upstream", "digits", "--json").json
    for method in output["methods"].values():
        at_start, *after = method["runs"][0]["upstream"]
        assert at_start == method["upstream start"] > 0.8
        assert len(after) == 5 and after[-1] == method["upstream"]
    people = engram(*command, *short, "--weights", weights, "--upstream", "digits")
    assert "lp-ft upstream start: 0." in people.stdout and "lp-ft upstream: 0." in people.stdout
    nowhere = engram(*command, *short, "--weights", weights, "--upstream", "imagenet", "--data", tmp_path)
    assert nowhere.returncode == 0, nowhere.stderr
    assert "upstream accuracy is left out: " in nowhere.stderr and "imagenet" in nowhere.stderr
    random = engram(*command, *short, "--upstream", "digits")
    assert random.returncode == 0 and "its weights are random" in random.stderr


def test_other_protocols_start_from_weights(weights: Path, tmp_path: Path, engram: Engram) -> None:
    out = ["--weights", weights, "--out", tmp_path / "runs", "--json"]
    hidden = ",".join(map(str, experiment("split-digits", "er").model.hidden))
    causal = engram(
        *("protocol", "causal", "slt-D5-5a-digits", "finetune", "--epochs", 1, "--hidden", hidden),
        *("--later-lr", "first", *out),
    )
    assert causal.json["best"] > 0.8
    grid = engram("protocol", "grid", "split-digits", "er", "--updates", 3, "--grid", "lr=.1,.01", *out)
    assert len(grid.json["candidates"]) == 2
