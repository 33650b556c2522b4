"""An evaluator in a Lightning callback leaves training as it is, to the bit."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from engram.evaluation.evaluator import Evaluator

pytestmark = pytest.mark.integrations
with warnings.catch_warnings(action="ignore"):
    lightning = pytest.importorskip(
        "lightning.pytorch", reason="needs Lightning: `make test-integrations` installs and tests it"
    )

UPDATES = 6


def network(changing: bool) -> nn.Module:
    """A small network with dropout and batch norm; one that changes itself has a counter."""

    class Scaled(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            if changing:
                self.calls += 1
            return x / (1 + self.calls)

    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3), Scaled()
    )


def trained(*, watch: bool, changing: bool) -> tuple[list[str], dict[str, bytes]]:
    """Losses and weights after a few updates by a Lightning trainer."""

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = network(changing)
            self.losses: list[str] = []

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.network(x)
            return scores

        def training_step(self, batch: tuple[Tensor, Tensor], _number: int) -> Tensor:
            loss = functional.cross_entropy(self(batch[0]), batch[1])
            self.losses.append(float(loss.detach()).hex())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    class Watching(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_start(self, _trainer: object, module: Any) -> None:
            evaluator.before(module)

        def on_train_batch_end(self, _trainer: object, module: Any, *_: object) -> None:
            evaluator(module, learning=0)

    torch.manual_seed(0)
    module = Module()
    samples = torch.Generator().manual_seed(1)
    x, y = torch.randn(8 * UPDATES, 6, generator=samples), torch.randint(3, (8 * UPDATES,), generator=samples)
    evaluator = Evaluator([(x[:20], y[:20])], losses=True)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Watching()] if watch else [],
    )
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    trainer.fit(module, loader)
    assert evaluator.evaluations == (UPDATES + 1 if watch else 0)
    weights = {name: tensor.detach().numpy().tobytes() for name, tensor in module.state_dict().items()}
    return module.losses, weights


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("changing", [False, True], ids=["behaving", "changing itself"])
def test_a_callback_that_evaluates_changes_nothing(changing: bool) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        watched = trained(watch=True, changing=changing)
    said = [str(warning.message) for warning in shown if "changes itself" in str(warning.message)]
    assert len(said) == changing and all(line.startswith("network.5 (Scaled) ") for line in said)
    assert len(watched[0]) == UPDATES
    assert watched == trained(watch=False, changing=changing)
