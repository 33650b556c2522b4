"""The checks that `test_avalanche.py` runs in the environment that has Avalanche."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

with warnings.catch_warnings(action="ignore"):
    benchmarks = import_module("avalanche.benchmarks")
    metrics = import_module("avalanche.evaluation.metrics")
    models = import_module("avalanche.models")
    plugins = import_module("avalanche.training.plugins")
    supervised = import_module("avalanche.training.supervised")
    utils = import_module("avalanche.benchmarks.utils")
import engram
from engram.interop.avalanche import Watch

TASKS, BATCH, UPDATES, EPOCHS = 3, 8, 5, 2


def samples(task: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two classes per task."""
    draw = torch.Generator().manual_seed(seed * TASKS + task)
    x = torch.randn(count, 6, generator=draw)
    return x, (x[:, task] > 0).long() + 2 * task


def benchmark(*, labelled: bool = False) -> Any:
    """Three experiences; `labelled` ones have a task label each."""
    streams: dict[str, list[Any]] = {"train": [], "test": []}
    for part, (name, stream) in enumerate(streams.items()):
        for task in range(TASKS):
            x, y = samples(task, BATCH * UPDATES if name == "train" else 30, part)
            attributes = [
                utils.DataAttribute(y.tolist(), "targets"),
                utils.DataAttribute([task * labelled] * len(y), "targets_task_labels", use_in_getitem=True),
            ]
            stream.append(utils.make_avalanche_dataset(TensorDataset(x, y), data_attributes=attributes))
    made = benchmarks.with_classes_timeline(benchmarks.benchmark_from_datasets(**streams))
    return benchmarks.with_task_labels(made) if labelled else made


class Headed(models.MultiTaskModule):  # type: ignore[misc, name-defined]
    """A model with one head per task label. Its masks do not work with sets of classes, as made here."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.heads = body, models.MultiHeadClassifier(12, 2 * TASKS, masking=False)

    def forward(self, x: Tensor, task_labels: Tensor) -> Tensor:
        scores: Tensor = self.heads(self.body(x), task_labels)
        return scores


def network(kind: str = "plain") -> nn.Module:
    torch.manual_seed(0)
    body = [nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2)]
    if kind == "growing":
        return nn.Sequential(*body, models.IncrementalClassifier(12, 2))
    if kind == "heads":
        return Headed(nn.Sequential(*body))
    return nn.Sequential(*body, nn.Linear(12, 2 * TASKS))


def strategy(
    model: nn.Module, *used: Any, evaluator: Any = None, momentum: float = 0.9, **options: Any
) -> Any:
    return supervised.Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        train_epochs=EPOCHS,
        eval_mb_size=30,
        plugins=list(used),
        evaluator=evaluator or plugins.EvaluationPlugin(loggers=[]),
        **options,
    )


def weights(model: nn.Module) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in model.state_dict().items()}


def train(watch: Watch | None, kind: str = "plain", *, replay: bool = False) -> nn.Module:
    made = benchmark(labelled=kind == "heads")
    model = network(kind)
    used = [plugins.ReplayPlugin(20)] if replay else []
    learner = strategy(model, *used, *([] if watch is None else [watch]))
    torch.manual_seed(1)
    for experience in made.train_stream:
        learner.train(experience)
    return model


def watching_changes_nothing() -> None:
    for kind in ("plain", "growing", "heads"):
        for replay in (False, True):
            watch = Watch(benchmark(labelled=kind == "heads").test_stream, losses=True)
            watched = weights(train(watch, kind, replay=replay))
            assert watched == weights(train(None, kind, replay=replay)), kind
            assert watch.evaluator.evaluations == watch.evaluator.step + 1
            assert replay or watch.evaluator.step == TASKS * EPOCHS * UPDATES
            assert list(dict.fromkeys(watch.evaluator.trace.learning)) == [0, 1, 2]


def accuracies_are_those_of_avalanche() -> None:
    """After every update, by Avalanche's own evaluation plugin."""
    for kind in ("plain", "growing", "heads"):
        made = benchmark(labelled=kind == "heads")
        watch = Watch(made.test_stream)
        theirs: list[dict[int, float]] = []

        class Noting(plugins.SupervisedPlugin):  # type: ignore[misc, name-defined]
            def after_training_iteration(self, learner: Any, **_: object) -> None:
                values = learner.evaluator.get_last_metrics()
                found = {
                    int(name.rsplit("Exp", 1)[1]): value
                    for name, value in values.items()
                    if name.startswith("Top1_Acc_Exp/eval_phase")
                }
                theirs.append(found)  # noqa: B023

        accuracy = plugins.EvaluationPlugin(metrics.accuracy_metrics(experience=True), loggers=[])
        model = network(kind)
        learner = strategy(model, watch, evaluator=accuracy, eval_every=1, peval_mode="iteration")
        learner.plugins.append(Noting())
        for number, experience in enumerate(made.train_stream):
            # A head exists from its experience on.
            learner.train(experience, eval_streams=[made.test_stream[: number + 1]])
        trace = watch.evaluator.trace
        ours: dict[tuple[int, int], float] = {}
        for step, task, correct, total in zip(
            trace.step, trace.task, trace.correct, trace.total, strict=True
        ):
            ours[step, task] = correct / total
        assert len(theirs) == TASKS * EPOCHS * UPDATES
        compared = 0
        for step, values in enumerate(theirs, start=1):
            for task in range(1 + (step - 1) // (EPOCHS * UPDATES)):
                assert ours[step, task] == values[task], (kind, step, task)
                compared += 1
        assert compared == EPOCHS * UPDATES * (1 + 2 + 3)


def ends_and_runs_are_recorded() -> None:
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(benchmark().test_stream, every=7, save=Path(folder) / "run")
        model = train(watch).eval()
        ends = {EPOCHS * UPDATES * (task + 1) for task in range(TASKS)}
        assert ends <= set(watch.evaluator.trace.step)
        assert watch.evaluator.stale == ()
        for task in range(TASKS):
            x, y = samples(task, 30, 1)
            assert watch.accuracies()[task] == (model(x).argmax(1) == y).double().mean().item()
        [run] = engram.load(Path(folder) / "run")
        assert run.trace == watch.evaluator.trace


def a_record_is_continued() -> None:
    """Two experiences, everything kept and restored, and the third: as without interruption."""

    def halves(*, interrupted: bool) -> tuple[Watch, dict[str, bytes]]:
        made = benchmark()
        watch, model = Watch(made.test_stream), network()
        # A strategy forgets momentum when it is made again.
        learner = strategy(model, watch, momentum=0.0)
        torch.manual_seed(1)
        for experience in made.train_stream[:2]:
            learner.train(experience)
        if interrupted:
            kept = io.BytesIO()
            torch.save([model.state_dict(), watch.state_dict(), torch.get_rng_state()], kept)
            kept.seek(0)
            state = torch.load(kept, weights_only=True)
            watch, model = Watch(made.test_stream), network()
            learner = strategy(model, watch, momentum=0.0)
            model.load_state_dict(state[0])
            watch.load_state_dict(state[1])
            torch.set_rng_state(state[2])
        learner.train(made.train_stream[2])
        return watch, weights(model)

    whole, resumed = halves(interrupted=False), halves(interrupted=True)
    assert whole[1] == resumed[1]
    assert whole[0].evaluator.trace == resumed[0].evaluator.trace


def training_stops_below_a_limit() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        watch = Watch(benchmark().test_stream, stop_below=1.0)
        train(watch)
    assert [str(line.message) for line in shown if "training is stopped: task 0" in str(line.message)]
    # The first experience is trained whole, of the others one update each.
    assert watch.evaluator.step == EPOCHS * UPDATES + 2, watch.evaluator.step


def bad_input_is_refused() -> None:
    watch = Watch([samples(task, 30, 1) for task in range(TASKS)])
    try:
        train(watch, "heads")
    except engram.InputError as error:
        assert "needs one task label per test set" in str(error)
    else:
        raise AssertionError("a model with heads was asked without task labels")


CHECKS = (
    watching_changes_nothing,
    accuracies_are_those_of_avalanche,
    ends_and_runs_are_recorded,
    a_record_is_continued,
    training_stops_below_a_limit,
    bad_input_is_refused,
)


def main() -> None:
    """Write, for each check, what went wrong; nothing if it passed."""
    outcomes = {}
    for check in CHECKS:
        try:
            check()
            outcomes[check.__name__] = ""
        except Exception:  # noqa: BLE001
            outcomes[check.__name__] = traceback.format_exc()
    Path(sys.argv[1]).write_text(json.dumps(outcomes), "utf-8")


if __name__ == "__main__":
    main()
