"""The runs: methods on benchmarks, as the paper trains them, and probed for transfer."""

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
    """What a row of the tables is called here.

    Attributes:
        name: The benchmark's name.
        held_out: The share of training samples that is for validation.
        shots: Samples of each class that a probe is given.
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
"""The methods that start from random weights; IND beside them where it is a point of a correlation."""
PRETRAINED = ("FT", "LP-FT", "ER", "AGEM", "MT", "FOMAML")
MULTITASK_WEIGHTS = (1.0, 0.1, 0.01)
STRENGTHS = {"EWC": 100.0, "L2": 0.01}
PRETRAINED_EPOCHS = 20
WEIGHTS_FILE = "resnet50-imagenet.pth"
"""The weights of the pretrained rows, looked for where data sets are."""


@dataclass(frozen=True, slots=True)
class Interpretation:
    """How much of the paper's set-up is followed.

    Attributes:
        network: The network.
        epochs: Passes over each task's data, if not the paper's.
        lr: The learning rate, if not the paper's.
        paper_rates: Methods that keep the paper's learning rate all the same.
        weights: The weights of the previous tasks' loss that are tried for MT.
        with_independent: Whether IND is a point of the correlations with random weights.
        more: Methods beside those of the tables.
    """

    network: str = "resnet50"
    epochs: int | None = None
    lr: float | None = None
    paper_rates: tuple[str, ...] = ()
    weights: tuple[float, ...] = MULTITASK_WEIGHTS
    with_independent: bool = True
    more: tuple[str, ...] = ()

    def methods(self, init: str) -> tuple[str, ...]:
        """The methods whose runs are the points of a correlation."""
        if init == "pretrained":
            return PRETRAINED
        return (*RANDOM, *(("IND",) if self.with_independent else ()), *self.more)

    def later(self, method: str) -> float:
        """How many runs follow the first ones, as a multiple of these.

        The weight of MT is chosen first, and the choice run twice more: as it is, and probed.
        """
        return 2 / len(self.weights) if method == "MT" and len(self.weights) > 1 else 0.0


FOLLOWED = Interpretation()
WITHOUT_IND = replace(FOLLOWED, with_independent=False)
RESNET18 = Interpretation(network="resnet18")
SMALL = Interpretation(
    network="cnn", epochs=5, lr=0.1, paper_rates=("EWC",), weights=(1.0,), more=("EWC", "L2")
)
"""A small convolutional network and a tenth of the passes: what one computer does in an hour."""
SMALL_WITHOUT_IND = replace(SMALL, with_independent=False)
SMALL_BENCHMARK = "Split CIFAR-10"
SMALL_SEEDS = 5


def pretrained_start() -> Start:
    """The file of weights that the pretrained rows start from.

    Where there is none the experiment can be made all the same; running it then says which file is missing.
    """
    from engram.datasets.find import search_folders

    for folder in search_folders():
        if (folder / WEIGHTS_FILE).is_file():
            return start_from(folder / WEIGHTS_FILE)
    return Start("", Path(WEIGHTS_FILE))


def _settings(row: str, method: str, memory: int | None) -> dict[str, float]:
    """The hyper-parameters of a method that are not those of the benchmark's recipe."""
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
    """A method on a benchmark, as the paper trains it.

    Args:
        row: The benchmark, as the tables call it.
        method: The method, as the tables call it, without what is in brackets.
        seed: Draws the order of tasks, too.
        init: `random init` or `pretrained`.
        memory: Samples of each class that are remembered, if not the paper's.
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
    # Weights of ImageNet need the stem that they were learned with.
    stem = "224" if pretrained else base.model.stem
    return replace(
        base,
        scenario=replace(base.scenario, held_out=BENCHMARKS[row].held_out),
        model=ModelSpec(interpretation.network, stem=stem),
        start=pretrained_start() if pretrained else None,
    )


@dataclass(frozen=True, slots=True)
class MethodRuns:
    """Which runs of a method are wanted.

    Attributes:
        row: The benchmark, as the tables call it.
        method: The method, as the tables call it, without what is in brackets.
        init: `random init` or `pretrained`.
        interpretation: How much of the set-up is followed.
        tuned: Whether transfer is measured by fine-tuning as well.
        memory: Samples of each class that are remembered, if not the paper's.
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
        """How many runs follow the first ones, as a multiple of these."""
        return self.interpretation.later(self.method)

    def experiment(self, seed: int) -> Experiment:
        """One of its runs, before it is probed."""
        return planned(
            self.row,
            self.method,
            seed,
            init=self.init,
            memory=self.memory,
            interpretation=self.interpretation,
        )

    def plan(self, seeds: Sequence[int]) -> Plan[MethodTransfer | None]:
        """Its runs, probed; None where they failed."""
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
    """The runs of several methods, by what they are called."""
    outcomes = yield from together([runs.plan(seeds) for runs in wanted.values()])
    return dict(zip(wanted, outcomes, strict=True))
