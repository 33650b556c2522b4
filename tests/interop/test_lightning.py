"""The evaluator in Lightning's loop leaves training as it is, to the bit, and resumes with it."""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import engram

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
REASON = "needs Lightning: `make test-integrations` installs and tests it"
with warnings.catch_warnings(action="ignore"):
    pytest.importorskip("lightning.pytorch", reason=REASON)
    pytest.importorskip("pytorch_lightning", reason=REASON)
    interop = pytest.importorskip("engram.interop.lightning", reason=REASON)

LIBRARIES = ["lightning.pytorch", "pytorch_lightning"]
UPDATES, BATCH = 6, 8


@pytest.fixture(params=LIBRARIES)
def lightning(request: pytest.FixtureRequest) -> Any:
    for name in (*LIBRARIES, "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return import_module(request.param)


class Scaled(nn.Module):
    """One that changes itself divides by the number of its calls."""

    def __init__(self, changing: bool) -> None:
        super().__init__()
        self.changing, self.calls = changing, 1

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.changing
        return x / self.calls


def module(library: Any, *, changing: bool = False, dropout: float = 0.3, manual: int = 0) -> Any:
    """A small network with dropout and batch norm; with `manual`, one that steps every so many batches."""

    class Module(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not manual
            self.network = nn.Sequential(
                *(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout)),
                *(nn.Linear(8, 3), Scaled(changing)),
            )
            self.losses: list[str] = []
            self.dtypes: set[torch.dtype] = set()

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.network(x)
            self.dtypes.add(scores.dtype)
            return scores

        def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
            loss = functional.cross_entropy(self(batch[0]), batch[1])
            self.losses.append(float(loss.detach()).hex())
            if manual:
                self.manual_backward(loss)
                if (number + 1) % manual == 0:
                    self.optimizers().step()
                    self.optimizers().zero_grad()
            return loss

        def validation_step(self, batch: tuple[Tensor, Tensor], _number: int) -> None:
            self(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    return Module()


def samples(task: int, count: int = BATCH * UPDATES) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(task)
    x = torch.randn(count, 6, generator=draw)
    return x, (x[:, task] > 0).long() + task


def loader(task: int, *, shuffle: bool = True) -> Any:
    return DataLoader(TensorDataset(*samples(task)), batch_size=BATCH, shuffle=shuffle)


def trainer(library: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    return library.Trainer(
        **{
            "max_epochs": 1,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
            "callbacks": list(callbacks),
            **options,
        }
    )


def watching(**options: Any) -> Any:
    return interop.Watch([samples(0, 40), samples(1, 40)], **options)


def weights(model: Any) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in model.state_dict().items()}


def two_tasks(library: Any, folder: Path, watch: Any, *, changing: bool = False) -> Any:
    """Two tasks, with a Trainer each."""
    model = module(library, changing=changing)
    for task in (0, 1):
        callbacks = []
        if watch is not None:
            watch.task = task
            callbacks.append(watch)
        trainer(library, folder, *callbacks).fit(model, loader(task), loader(task, shuffle=False))
    return model


@pytest.mark.parametrize("changing", [False, True], ids=["behaving", "changing itself"])
def test_watching_two_tasks_changes_nothing(lightning: Any, changing: bool, tmp_path: Path) -> None:
    watch = watching(losses=True, save=tmp_path / "run")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        watched = two_tasks(lightning, tmp_path, watch, changing=changing)
    said = [str(warning.message) for warning in shown if "changes itself" in str(warning.message)]
    assert len(said) == changing and all(line.startswith("network.5 (Scaled) ") for line in said)
    plain = two_tasks(lightning, tmp_path, None, changing=changing)
    assert watched.losses == plain.losses and len(plain.losses) == 2 * UPDATES
    assert weights(watched) == weights(plain)
    # One evaluation before training, none in the sanity check, one per update.
    assert watch.evaluator.trace.step[: UPDATES + 1] == list(range(UPDATES + 1))
    assert watch.evaluator.evaluations == 2 * UPDATES + 1
    [run] = engram.load(tmp_path / "run")
    assert run.trace == watch.evaluator.trace
    assert run.metrics["ACC"] == watch.metrics()["ACC"]


def test_the_recorded_accuracy_is_that_of_the_network(lightning: Any, tmp_path: Path) -> None:
    watch = watching()
    model = two_tasks(lightning, tmp_path, watch).eval()
    for task in (0, 1):
        x, y = samples(task, 40)
        assert watch.accuracies()[task] == (model.network(x).argmax(1) == y).double().mean().item()


@pytest.mark.parametrize(
    ("options", "manual"), [({"accumulate_grad_batches": 2}, 0), ({}, 2)], ids=["accumulated", "manual"]
)
def test_optimiser_steps_are_counted(
    lightning: Any, options: dict[str, Any], manual: int, tmp_path: Path
) -> None:
    watch = watching()
    model = module(lightning, manual=manual)
    trainer(lightning, tmp_path, watch, **options).fit(model, loader(0))
    assert len(model.losses) == UPDATES
    assert watch.evaluator.step == UPDATES // 2
    assert watch.evaluator.trace.step == list(range(UPDATES // 2 + 1))


def test_the_last_update_is_evaluated(lightning: Any, tmp_path: Path) -> None:
    watch = watching(every=4)
    two_tasks(lightning, tmp_path, watch)
    assert sorted(set(watch.evaluator.trace.step)) == [0, 4, 6, 8, 12]
    assert watch.evaluator.stale == ()


def test_a_schedule_of_tasks_in_one_fit(lightning: Any, tmp_path: Path) -> None:
    watch = watching(every=4, task=lambda step: step // UPDATES)
    trainer(lightning, tmp_path, watch, max_epochs=2).fit(module(lightning), loader(0))
    trace = watch.evaluator.trace
    assert list(dict.fromkeys(zip(trace.step, trace.learning, strict=True))) == [
        (0, 0), (4, 0), (6, 0), (8, 1), (12, 1)
    ]  # fmt: skip


def test_answers_have_the_precision_of_the_trainer(lightning: Any, tmp_path: Path) -> None:
    watch, models = watching(), []
    for callbacks in ([watch], []):
        model = module(lightning)
        trainer(lightning, tmp_path, *callbacks, precision="bf16-mixed").fit(model, loader(0))
        models.append(model)
    assert models[0].dtypes == {torch.bfloat16}
    assert weights(models[0]) == weights(models[1])
    assert watch.evaluator.evaluations == UPDATES + 1


def test_a_checkpoint_continues_the_record(lightning: Any, tmp_path: Path) -> None:
    def fit(watch: Any, **options: Any) -> Any:
        model = module(lightning, dropout=0.0)
        saving = lightning.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
        resume = options.pop("resume", None)
        one = trainer(lightning, tmp_path, watch, saving, enable_checkpointing=True, **options)
        one.fit(model, loader(0, shuffle=False), ckpt_path=resume)
        return model

    whole, resumed = watching(every=4), watching(every=4)
    model = fit(whole, max_epochs=3)
    again = fit(resumed, max_epochs=3, resume=tmp_path / "epoch=0.ckpt")
    assert len(again.losses) == 2 * UPDATES
    assert weights(again) == weights(model)
    assert resumed.evaluator.trace == whole.evaluator.trace
    assert resumed.evaluator.step == whole.evaluator.step == 3 * UPDATES
    assert resumed.metrics() == pytest.approx(whole.metrics(), nan_ok=True, abs=0)


def test_other_test_data_are_refused(lightning: Any, tmp_path: Path) -> None:
    watch = watching()
    trainer(lightning, tmp_path, watch).fit(module(lightning), loader(0))
    other = interop.Watch([samples(1, 40), samples(0, 40)])
    with pytest.raises(engram.InputError, match="the test data of task 0 are not those"):
        other.load_state_dict(watch.state_dict())


def test_a_trainer_that_trains_nothing_is_noticed(lightning: Any, tmp_path: Path) -> None:
    watch, model = watching(), module(lightning)
    one = trainer(lightning, tmp_path, watch)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        one.fit(model, loader(0))
    assert not [warning for warning in shown if "trained nothing" in str(warning.message)]
    watch.task = 1
    with pytest.warns(UserWarning, match="trainer.fit trained nothing: this Trainer has done 1 epochs and 6"):
        one.fit(model, loader(1))
    assert watch.evaluator.step == UPDATES


def test_training_stops_below_a_limit(lightning: Any, tmp_path: Path) -> None:
    watch, model = watching(stop_below=1.0), module(lightning)
    trainer(lightning, tmp_path, watch).fit(model, loader(0))
    assert watch.stopped == ""
    watch.task = 1
    with pytest.warns(UserWarning, match=r"training is stopped: task 0 fell to .* of 0\.\d+, below 1"):
        trainer(lightning, tmp_path, watch, max_epochs=5).fit(model, loader(1))
    assert watch.evaluator.step == UPDATES + 1
    assert watch.stopped.endswith(f"at update {UPDATES + 1}")


def test_bad_input_is_one_line() -> None:
    with pytest.raises(engram.InputError, match=r"stop_below must be an accuracy .* got 50"):
        watching(stop_below=50)
    with pytest.raises(engram.InputError, match="per_epoch needs a loop of your own"):
        watching(per_epoch=True)
    with pytest.raises(engram.InputError, match="give every to the Evaluator"):
        interop.Watch(engram.Evaluator([samples(0, 4)]), every=2)
