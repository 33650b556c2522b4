"""The runs: methods on benchmarks, trained as in the paper and probed for transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engram.engine.recipe import experiment
from engram.engine.start import start_from
from engram.models.spec import ModelSpec
from engram.papers.plans import Plan, attempted, together
from engram.papers.values import AT_ENDS
from engram.protocols.forward_transfer import TUNED_LRS, MethodTransfer, forward_transfer
from engram.record.experiment import Experiment, Start, TransferSpec
from engram.scenarios import benchmark


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """The benchmark of a row of the tables.

    Attributes:
        name: The name of the benchmark here.
        held_out: The share of training samples held out for validation.
        shots: The numbers of samples per class on which probes are trained.
    """

    name: str
    held_out: float = 0.2
    shots: tuple[int, ...] = (5, 10, 20, 100)


_SUPERCLASSES = _Benchmark("cifar100-superclasses")
BENCHMARKS = {
    "Split CIFAR-10": _Benchmark("split-cifar10-003"),
    "Split CIFAR-100": _Benchmark("split-cifar100-003"),
    "CIFAR-100 Superclasses": _SUPERCLASSES,
    "CIFAR100 Superclasses": _SUPERCLASSES,
    "CLEAR10": _Benchmark("clear10", held_out=5000 / 30000),
    "CLEAR100": _Benchmark("clear100", held_out=19991 / 99963, shots=(5, 10, 20, 40)),
    "Split ImageNet": _Benchmark("split-imagenet", held_out=300000 / 1281167),
}

METHODS = {
    "FT": "finetune",
    "LP-FT": "lp-ft",
    "ER": "er",
    "AGEM": "a-gem",
    "MT": "multitask",
    "FOMAML": "fomaml",
    "IND": "independent",
    "EWC": "ewc",
    "L2": "l2",
}
RANDOM = ("FT", "ER", "AGEM", "MT", "FOMAML")
"""The methods with random initial weights; correlations may include IND as well."""
PRETRAINED = ("FT", "LP-FT", "ER", "AGEM", "MT", "FOMAML")
MULTITASK_WEIGHTS = (1.0, 0.1, 0.01)
STRENGTHS = {"EWC": 100.0, "L2": 0.01}
PRETRAINED_EPOCHS = 20
WEIGHTS_FILE = "resnet50-imagenet.pth"
"""The weights of the pretrained rows, searched for in the data folders."""


@dataclass(frozen=True, slots=True)
class Interpretation:
    """How much of the paper's set-up is followed.

    Attributes:
        network: The network.
        epochs: Passes over the data of each task (default: those of the paper).
        lr: The learning rate (default: that of the paper).
        paper_rates: Methods that keep the learning rate of the paper in any case.
        weights: The weights of the loss on previous tasks that are tried for MT.
        with_independent: Whether the correlations with random initial weights include IND.
        more: Methods in addition to those of the tables.
    """

    network: str = "resnet50"
    epochs: int | None = None
    lr: float | None = None
    paper_rates: tuple[str, ...] = ()
    weights: tuple[float, ...] = MULTITASK_WEIGHTS
    with_independent: bool = True
    more: tuple[str, ...] = ()

    def methods(self, init: str) -> tuple[str, ...]:
        """The methods that a correlation includes."""
        if init == "pretrained":
            return PRETRAINED
        return (*RANDOM, *(("IND",) if self.with_independent else ()), *self.more)

    def later(self, method: str) -> float:
        """The number of runs after the first ones, as a multiple of these.

        The weight of MT is selected first; the selected runs are then repeated without and with probes.
        """
        return 2 / len(self.weights) if method == "MT" and len(self.weights) > 1 else 0.0


FOLLOWED = Interpretation()
WITHOUT_IND = replace(FOLLOWED, with_independent=False)
RESNET18 = Interpretation(network="resnet18")
SMALL = Interpretation(
    network="cnn", epochs=5, lr=0.1, paper_rates=("EWC",), weights=(1.0,), more=("EWC", "L2")
)
"""A small convolutional network and a tenth of the passes, which one computer runs in an hour."""
SMALL_WITHOUT_IND = replace(SMALL, with_independent=False)
SMALL_BENCHMARK = "Split CIFAR-10"
SMALL_SEEDS = 5


def pretrained_start() -> Start:
    """The file of weights that the pretrained rows start from.

    If it does not exist the experiment can still be created; running it then reports the missing file.
    """
    from engram.datasets.find import search_folders

    for folder in search_folders():
        if (folder / WEIGHTS_FILE).is_file():
            return start_from(folder / WEIGHTS_FILE)
    return Start("", Path(WEIGHTS_FILE))


def _settings(row: str, method: str, memory: int | None) -> dict[str, float]:
    """The hyper-parameters of a method that differ from the recipe of the benchmark."""
    settings: dict[str, float] = {}
    if method == "MT":
        settings["memory_batch"] = benchmark(BENCHMARKS[row].name).recipe.batch_size
    if method == "FOMAML" and row == "Split ImageNet":
        settings["inner_steps"] = 1
    if method in STRENGTHS:
        settings["strength"] = STRENGTHS[method]
    if memory is not None:
        settings["memory"] = memory
    if method == "IND":
        settings["keep"] = False
    return settings


def planned(
    row: str,
    method: str,
    seed: int = 0,
    *,
    init: str = "random init",
    memory: int | None = None,
    interpretation: Interpretation = FOLLOWED,
) -> Experiment:
    """A method on a benchmark, trained as in the paper.

    Args:
        row: The name of the benchmark in the tables.
        method: The name of the method in the tables, without the part in brackets.
        seed: The seed of the run, which also determines the order of tasks.
        init: `random init` or `pretrained`.
        memory: Samples per class that are remembered (default: those of the paper).
        interpretation: How much of the set-up is followed.

    Example:
        >>> er = planned("Split CIFAR-10", "ER", seed=1)
        >>> er.model.name, er.epochs, er.batch_size, er.settings["memory"]
        ('resnet50', 50, 64, 50)
        >>> er.optimizer.schedule, er.optimizer.lr, er.scenario.held_out
        ('cosine', 0.01, 0.2)
    """
    pretrained = init == "pretrained"
    base = experiment(
        BENCHMARKS[row].name,
        METHODS[method],
        settings=_settings(row, method, memory),
        epochs=PRETRAINED_EPOCHS if pretrained else interpretation.epochs,
        lr=None if method in interpretation.paper_rates else interpretation.lr,
        evaluation=AT_ENDS,
        seed=seed,
    )
    # ImageNet weights need the stem that they were trained with.
    stem = "224" if pretrained else base.model.stem
    return replace(
        base,
        scenario=replace(base.scenario, held_out=BENCHMARKS[row].held_out),
        model=ModelSpec(interpretation.network, stem=stem),
        start=pretrained_start() if pretrained else None,
    )


@dataclass(frozen=True, slots=True)
class MethodRuns:
    """The runs of a method.

    Attributes:
        row: The name of the benchmark in the tables.
        method: The name of the method in the tables, without the part in brackets.
        init: `random init` or `pretrained`.
        interpretation: How much of the set-up is followed.
        tuned: Whether transfer is measured by fine-tuning as well.
        memory: Samples per class that are remembered (default: those of the paper).
        upstream: Whether the accuracy on ImageNet is measured.
    """

    row: str
    method: str
    init: str
    interpretation: Interpretation = FOLLOWED
    tuned: bool = False
    memory: int | None = None
    upstream: bool = False

    @property
    def later(self) -> float:
        """The number of runs after the first ones, as a multiple of these."""
        return self.interpretation.later(self.method)

    def experiment(self, seed: int) -> Experiment:
        """The run with a seed, without probes."""
        return planned(
            self.row,
            self.method,
            seed,
            init=self.init,
            memory=self.memory,
            interpretation=self.interpretation,
        )

    def plan(self, seeds: Sequence[int]) -> Plan[MethodTransfer | None]:
        """The plan of the probed runs; it returns None if they failed."""
        spec, weights = BENCHMARKS[self.row], self.interpretation.weights
        bases = [self.experiment(seed) for seed in seeds]
        searches = self.method == "MT" and len(weights) > 1
        outcome = yield from attempted(
            forward_transfer(
                {self.method: bases},
                {"weight": weights} if searches else None,
                probe=TransferSpec(shots=spec.shots, tuned_lrs=TUNED_LRS if self.tuned else ()),
                held_out=spec.held_out,
                upstream="imagenet" if self.upstream else "",
            )
        )
        return None if outcome is None else outcome.methods[self.method]


def transfers(
    wanted: Mapping[str, MethodRuns], seeds: Sequence[int]
) -> Plan[dict[str, MethodTransfer | None]]:
    """The runs of several methods, by label."""
    outcomes = yield from together([runs.plan(seeds) for runs in wanted.values()])
    return dict(zip(wanted, outcomes, strict=True))
