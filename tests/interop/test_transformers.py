"""The evaluator in the loop of Hugging Face's Trainer leaves training as it is, and resumes with it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import engram
from engram.testing import check_isolation

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
REASON = "needs Transformers and Accelerate: `make test-integrations` installs and tests them"
with warnings.catch_warnings(action="ignore"):
    transformers = pytest.importorskip("transformers", reason=REASON)
    pytest.importorskip("accelerate", reason=REASON)
    interop = pytest.importorskip("engram.interop.transformers", reason=REASON)

WORDS, LENGTH, CLASSES, UPDATES, BATCH = 50, 12, 4, 6, 8


class Counting(nn.Module):
    """A layer that counts its calls, which changes what it computes."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x / self.calls


def bert(*, changing: bool = False) -> Any:
    """A small classifier of sentences with random weights."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
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
    if changing:
        model.dropout = nn.Sequential(model.dropout, Counting())
    return model


def gpt() -> Any:
    """A small causal language model with random weights."""
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            **{"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 16, "n_layer": 2, "n_head": 2},
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def sentences(task: int, count: int = BATCH * UPDATES) -> list[dict[str, Tensor]]:
    """Sentences with padding; a task has its own words and two classes."""
    draw = torch.Generator().manual_seed(task)
    words = torch.randint(1 + 24 * task, 25 + 24 * task, (count, LENGTH), generator=draw)
    lengths = torch.randint(4, LENGTH + 1, (count, 1), generator=draw)
    mask = (torch.arange(LENGTH) < lengths).long()
    labels = 2 * task + (words[:, 0] % 2)
    return [
        {"input_ids": row, "attention_mask": seen, "labels": label}
        for row, seen, label in zip(words * mask, mask, labels, strict=True)
    ]


def texts(task: int, count: int = BATCH * UPDATES) -> list[dict[str, Tensor]]:
    """Words that follow each other with a step of their task."""
    draw = torch.Generator().manual_seed(task)
    first = torch.randint(WORDS, (count, 1), generator=draw)
    words = (first + torch.arange(LENGTH) * (task + 2)) % WORDS
    return [{"input_ids": row, "labels": row} for row in words]


def last_word(outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Whether the last word is predicted."""
    predicted: Tensor = outputs.logits[:, -2].argmax(-1) == batch["labels"][:, -1]
    return predicted


def trainer(model: Any, data: list[dict[str, Tensor]], folder: Path, *callbacks: Any, **options: Any) -> Any:
    settings = {
        "output_dir": str(folder),
        "num_train_epochs": 1,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.01,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 0,
    }
    made = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(**{**settings, **options}),
        train_dataset=data,
        callbacks=list(callbacks),
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


def two_tasks(
    folder: Path, watch: Any, *, kind: str = "bert", changing: bool = False, **options: Any
) -> tuple[list[float], dict[str, bytes]]:
    """Losses and weights after two tasks, with a Trainer each."""
    model, losses = gpt() if kind == "gpt" else bert(changing=changing), []
    for task in (0, 1):
        callbacks = []
        if watch is not None:
            watch.task = task
            callbacks.append(watch)
        data = texts(task) if kind == "gpt" else sentences(task)
        made = trainer(model, data, folder / str(task), *callbacks, **options)
        made.train()
        losses += [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    return losses, weights(model)


def weights(model: Any) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in model.state_dict().items()}


def watching(kind: str = "bert", **options: Any) -> Any:
    if kind == "gpt":
        return interop.Watch({"twos": texts(0, 40), "threes": texts(1, 40)}, right=last_word, **options)
    return interop.Watch({"low": sentences(0, 40), "high": sentences(1, 40)}, **options)


@pytest.mark.parametrize(
    ("kind", "changing"),
    [("bert", False), ("bert", True), ("gpt", False)],
    ids=["classifier", "changing itself", "language model"],
)
def test_watching_two_tasks_changes_nothing(tmp_path: Path, kind: str, changing: bool) -> None:
    watch = watching(kind, save=tmp_path / "runs" / "mine")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        watched = two_tasks(tmp_path, watch, kind=kind, changing=changing)
    said = [str(warning.message) for warning in shown if "changes itself" in str(warning.message)]
    assert len(said) == changing and all("dropout.1 (Counting)" in line for line in said)
    assert len(watched[0]) == 2 * UPDATES
    assert watched == two_tasks(tmp_path, None, kind=kind, changing=changing)
    assert watch.evaluator.evaluations == 2 * UPDATES + 1
    assert list(dict.fromkeys(watch.evaluator.trace.step)) == list(range(2 * UPDATES + 1))
    [run] = engram.load(tmp_path / "runs" / "mine")
    assert run.trace == watch.evaluator.trace
    assert run.task_names == (["twos", "threes"] if kind == "gpt" else ["low", "high"])


@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_the_recorded_accuracies_are_those_of_the_model(tmp_path: Path, kind: str) -> None:
    watch = watching(kind)
    model = gpt() if kind == "gpt" else bert()
    data = texts if kind == "gpt" else sentences
    trainer(model, data(0), tmp_path, watch, num_train_epochs=4).train()
    batch = transformers.default_data_collator(data(0, 40))
    with torch.no_grad():
        outputs = model.eval()(**batch)
    right = last_word(outputs, batch) if kind == "gpt" else outputs.logits.argmax(-1) == batch["labels"]
    accuracy = right.double().mean().item()
    assert watch.accuracies() == {"twos" if kind == "gpt" else "low": accuracy}
    assert 0 < accuracy < 1


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        ({"gradient_accumulation_steps": 2}, UPDATES // 2),
        ({"bf16": True}, UPDATES),
        ({"max_grad_norm": 0.1, "optim": "sgd"}, UPDATES),
    ],
    ids=["accumulated", "mixed precision", "clipped"],
)
def test_settings_of_the_trainer(tmp_path: Path, options: dict[str, Any], updates: int) -> None:
    watch = watching()
    watched = two_tasks(tmp_path, watch, **options)
    assert watch.evaluator.step == 2 * updates
    assert watch.evaluator.evaluations == 2 * updates + 1
    assert watched == two_tasks(tmp_path, None, **options)


def test_the_last_update_is_evaluated(tmp_path: Path) -> None:
    watch = watching(every=4, full_ends=True, subset=10)
    two_tasks(tmp_path, watch)
    assert sorted(set(watch.evaluator.trace.step)) == [0, 4, 6, 8, 12]
    assert sorted(set(watch.evaluator.ends.step)) == [6, 12]
    assert watch.evaluator.stale == ()


def test_a_schedule_of_tasks_in_one_call(tmp_path: Path) -> None:
    watch = watching(every=4, task=lambda step: step // UPDATES, subset=10, full_ends=True)
    trainer(bert(), sentences(0), tmp_path, watch, num_train_epochs=2).train()
    trace = watch.evaluator.trace
    evaluations = list(dict.fromkeys(zip(trace.step, trace.learning, strict=True)))
    assert evaluations == [(0, 0), (4, 0), (6, 0), (8, 1), (12, 1)]
    assert list(dict.fromkeys(watch.evaluator.ends.step)) == [6, 12]


@pytest.mark.parametrize("moved", [False, True], ids=["in place", "moved"])
def test_a_checkpoint_continues_the_record(tmp_path: Path, moved: bool) -> None:
    """Training that was interrupted in the second task ends as if it had not been."""

    def learn(folder: Path, *, resume: Path | None = None) -> tuple[Any, dict[str, bytes]]:
        watch, model = watching(every=4), bert()
        for task in (0, 1):
            watch.task = task
            saving = {"save_strategy": "steps", "save_steps": 3}
            made = trainer(model, sentences(task), folder / str(task), watch, num_train_epochs=2, **saving)
            if resume is None:
                made.train()
            elif task:
                made.train(resume_from_checkpoint=str(resume))
        return watch, weights(model)

    whole, expected = learn(tmp_path / "whole")
    checkpoint = tmp_path / "whole" / "1" / "checkpoint-9"
    if moved:
        checkpoint = checkpoint.rename(tmp_path / "elsewhere")
    resumed, found = learn(tmp_path / "resumed", resume=checkpoint)
    assert found == expected
    assert resumed.evaluator.trace == whole.evaluator.trace
    assert resumed.evaluator.step == whole.evaluator.step == 4 * UPDATES
    assert resumed.metrics() == pytest.approx(whole.metrics(), nan_ok=True, abs=0)
    recorded = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]["Watch"]
    assert recorded["args"] == {"test_sets": None}


def test_several_watches_find_their_own_record(tmp_path: Path) -> None:
    def watches() -> list[Any]:
        return [watching(every=2), interop.Watch([sentences(1, 30)])]

    saving = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 3}
    whole, again = watches(), watches()
    trainer(bert(), sentences(0), tmp_path, *whole, **saving).train()
    resumed = trainer(bert(), sentences(0), tmp_path, *again, **saving)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    for one, other in zip(whole, again, strict=True):
        assert one.evaluator.trace == other.evaluator.trace


def test_a_checkpoint_without_a_record(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer(bert(), sentences(0), tmp_path, **saving).train()
    watch = watching()
    with pytest.warns(UserWarning, match="the checkpoint was made without this Watch"):
        trainer(bert(), sentences(0), tmp_path, watch, **saving).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )
    assert watch.evaluator.step == UPDATES - 2


def test_other_test_data_are_refused(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer(bert(), sentences(0), tmp_path, watching(), **saving).train()
    other = interop.Watch({"low": sentences(1, 40), "high": sentences(0, 40)})
    with pytest.raises(engram.InputError, match="the test data of task"):
        trainer(bert(), sentences(0), tmp_path, other, **saving).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )


def test_callbacks_are_not_made_again(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer(bert(), sentences(0), tmp_path, watching(), **saving).train()
    options = {**saving, "restore_callback_states_from_checkpoint": True}
    with pytest.raises(engram.InputError, match="a Watch restores itself when training resumes"):
        trainer(bert(), sentences(0), tmp_path, watching(), **options).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer(bert(), sentences(0), tmp_path, watching(), **saving).train()
    place = tmp_path / "checkpoint-2" / "trainer_state.json"
    state = json.loads(place.read_text())
    state["stateful_callbacks"]["Watch"]["attributes"]["evaluator"] = "bm90aGluZw=="
    place.write_text(json.dumps(state))
    with pytest.raises(engram.InputError, match="the record of the evaluations in the checkpoint cannot"):
        trainer(bert(), sentences(0), tmp_path, watching(), **saving).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )


def test_training_stops_below_a_limit(tmp_path: Path) -> None:
    watch = watching(stop_below=1.0)
    with pytest.warns(UserWarning, match=r"training is stopped: task low fell to an accuracy of"):
        two_tasks(tmp_path, watch)
    assert watch.evaluator.step == UPDATES + 1


def test_a_generating_model_with_a_cache() -> None:
    """GPT-2 returns its keys and values, and keeps none."""

    class LastWord(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = gpt()

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.model(input_ids=x, use_cache=True).logits[:, -1]
            return scores

    x = torch.stack([text["input_ids"] for text in texts(0, 8)])
    assert check_isolation(LastWord, (x, x[:, -1])).changes == ()
