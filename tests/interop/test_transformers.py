"""An evaluator in a callback of Hugging Face's Trainer leaves training as it is, to the bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.evaluation.evaluator import Evaluator
from engram.testing import check_isolation

pytestmark = pytest.mark.integrations
REASON = "needs Transformers and Accelerate: `make test-integrations` installs and tests them"
with warnings.catch_warnings(action="ignore"):
    transformers = pytest.importorskip("transformers", reason=REASON)
    pytest.importorskip("accelerate", reason=REASON)

WORDS, LENGTH, CLASSES, UPDATES = 50, 12, 4, 6


def bert() -> Any:
    """A small classifier of sentences with random weights."""
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=LENGTH,
            num_labels=CLASSES,
        )
    )


def counting(model: Any) -> Any:
    """The same model with a layer that counts its calls, which changes what it computes."""

    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x / self.calls

    model.dropout = nn.Sequential(model.dropout, Counting())
    return model


class Logits(nn.Module):
    """The model as an evaluator calls it: from inputs to scores."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=x).logits
        return scores


def sentences() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    count = 8 * UPDATES
    words = torch.randint(WORDS, (count, LENGTH), generator=draw)
    return words, torch.randint(CLASSES, (count,), generator=draw)


def trained(folder: Path, *, watch: bool, changing: bool) -> tuple[list[float], dict[str, bytes]]:
    """Losses and weights after a few updates by the Trainer."""
    torch.manual_seed(0)
    model = counting(bert()) if changing else bert()
    x, y = sentences()
    evaluator, adapted = Evaluator([(x[:20], y[:20])], losses=True), Logits(model)

    class Watching(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_train_begin(self, *_: object, **__: object) -> None:
            evaluator.before(adapted)

        def on_step_end(self, *_: object, **__: object) -> None:
            evaluator(adapted, learning=0)

    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=1,
            per_device_train_batch_size=8,
            learning_rate=0.01,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
        ),
        train_dataset=[{"input_ids": row, "labels": label} for row, label in zip(x, y, strict=True)],
        callbacks=[Watching()] if watch else [],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    assert evaluator.evaluations == (UPDATES + 1 if watch else 0)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("changing", [False, True], ids=["behaving", "changing itself"])
def test_a_callback_that_evaluates_changes_nothing(tmp_path: Path, changing: bool) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        watched = trained(tmp_path, watch=True, changing=changing)
    said = [str(warning.message) for warning in shown if "changes itself" in str(warning.message)]
    assert len(said) == changing and all("model.dropout.1 (Counting)" in line for line in said)
    assert len(watched[0]) == UPDATES
    assert watched == trained(tmp_path, watch=False, changing=changing)


@pytest.mark.filterwarnings("ignore")
def test_a_generating_model_with_a_cache() -> None:
    """GPT-2 returns its keys and values, and keeps none."""
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )

    class LastWord(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.GPT2LMHeadModel(config)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.model(input_ids=x, use_cache=True).logits[:, -1]
            return scores

    x, y = sentences()
    assert check_isolation(LastWord, (x[:8], y[:8])).changes == ()
