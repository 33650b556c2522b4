"""How the columns of the tables are learned, and how the paper is interpreted where text and code differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

from engram.core.values import OptimizerSpec
from engram.engine.recipe import experiment
from engram.models.spec import ModelSpec
from engram.protocols.causal import CausalOptions
from engram.record.experiment import EvaluationSpec, Experiment
from engram.scenarios import SLT_CODES, slt

DATASETS = {
    "CIFAR10": "cifar10",
    "Devanagari": "devanagari",
    "EMNIST": "emnist",
    "FashionMNIST": "fashion-mnist",
    "Fruits 360": "fruits-360",
    "MADBase": "madbase",
    "MNIST": "mnist",
    "NotMNIST": "notmnist",
    "SVHN": "svhn",
}
"""The data sets by the names that the tables give them."""

SIZES = (200, 400, 800)
TOPOLOGIES = tuple(widths for depth in (2, 3) for widths in product(SIZES, repeat=depth))
"""Two or three hidden layers, each of any of three sizes: 36."""
FIRST_RATES = (0.01, 0.001)
MEASURING_POINTS = 90
"""About how often a task is tested while it is learned."""

_DROPOUT: Mapping[str, float] = {"dropout_input": 0.2, "dropout_hidden": 0.5}
_MOMENTUM = OptimizerSpec("sgd", lr=0.001, momentum=0.99)


@dataclass(frozen=True, slots=True)
class Column:
    """How a column of the tables is learned.

    Attributes:
        method: The method's name.
        network: What its network is beside the sizes of its layers.
        optimizer: How weights are updated; the rate is chosen.
        settings: Hyper-parameters of the method.
    """

    method: str
    network: ModelSpec
    optimizer: OptimizerSpec = _MOMENTUM
    settings: Mapping[str, Any] = field(default_factory=dict)


def _network(name: str = "mlp", /, **more: Any) -> ModelSpec:
    return ModelSpec(name, **{"init": "truncated-normal", **more})


_IMM = partial(Column, network=_network(**_DROPOUT), optimizer=OptimizerSpec("sgd", lr=0.01))
# While the second task is learned its own network is tested, all balances at the end.
_LATEST = {"balance": 1.0}
COLUMNS = {
    "FC": Column("finetune", _network()),
    "D-FC": Column("finetune", _network(**_DROPOUT)),
    "CONV": Column("finetune", _network("conv")),
    "D-CONV": Column("finetune", _network("conv", dropout_hidden=0.5)),
    "LWTA": Column("finetune", _network("lwta")),
    "EWC": Column(
        "ewc",
        _network(init="truncated-normal-.1", **_DROPOUT),
        OptimizerSpec("adam", lr=0.001),
        {"slots": "separate", "label": "true", "fisher": "sample"},
    ),
    "wtIMM mean": _IMM("imm-mean", settings=_LATEST),
    "wtIMM mode": _IMM("imm-mode", settings={"fisher": "batch", **_LATEST}),
}


@dataclass(frozen=True, slots=True)
class Interpretation:
    """How the paper is interpreted, and how much of its search is done.

    Attributes:
        columns: How the columns are learned.
        choice: How Algorithm 1 is interpreted.
        rates_for_imm: Whether the rates of the second task are tried for IMM as well.
        per_epoch: Whether measuring points are counted anew in every epoch, starting with its first update.
        permute: Whether the second task of DP10-10 is permuted.
        topologies: Hidden layers to choose from.
        points: About how often a task is tested, for dense and for convolutional networks.
        codes: The streams whose lowest values are taken (default: all).
        ewc_subset: On how many test images, drawn once, EWC is tested (default: all).
    """

    columns: Mapping[str, Column] = field(default_factory=lambda: COLUMNS)
    choice: CausalOptions = field(default_factory=CausalOptions)
    rates_for_imm: bool = False
    per_epoch: bool = True
    permute: bool = True
    topologies: tuple[tuple[int, ...], ...] = TOPOLOGIES
    points: tuple[int, int] = (MEASURING_POINTS, MEASURING_POINTS)
    codes: tuple[str, ...] = SLT_CODES
    ewc_subset: int | None = None

    def options(self, model: str) -> CausalOptions:
        """How the rates of the second task are chosen for a model."""
        if model == "EWC":
            return replace(self.choice, tie_strength=True)
        if "IMM" in model and not self.rates_for_imm:
            return replace(self.choice, later_rates=())
        return self.choice

    def fields(self, model: str) -> dict[str, Sequence[Any]]:
        """What is chosen on the first task."""
        convolves = self.columns[model].network.name == "conv"
        return {**({} if convolves else {"hidden": self.topologies}), "lr": FIRST_RATES}

    def candidates(self, model: str) -> int:
        """How many combinations of these there are."""
        return prod(len(values) for values in self.fields(model).values())

    def later(self, model: str) -> float:
        """How many runs follow for each candidate: the second task at each rate, and both tasks at once.

        Both ways to merge take the chosen rate once more for all balances, and `mode` learns the first task
        anew.
        """
        rates = len(self.options(model).later_rates) or 1
        return (2 * rates + 5 if "IMM" in model else rates + 1) / self.candidates(model)

    def streams(self, kind: str) -> list[str]:
        """The streams of a type."""
        return [code for code in self.codes if code.startswith(kind)]


FOLLOWED = Interpretation()
TEXT = Interpretation(
    columns={
        **COLUMNS,
        "D-CONV": replace(COLUMNS["D-CONV"], network=_network("conv", dropout_input=0.5, dropout_hidden=0.5)),
        "EWC": replace(COLUMNS["EWC"], optimizer=_MOMENTUM),
        **{
            name: replace(COLUMNS[name], settings={**COLUMNS[name].settings, "weight_transfer": False})
            for name in ("wtIMM mean", "wtIMM mode")
        },
    },
    choice=CausalOptions(choose_by="union", start="best"),
    rates_for_imm=True,
    per_epoch=False,
)
"""Where text and code differ, the text."""
CODE = Interpretation(
    columns={**COLUMNS, "D-CONV": replace(COLUMNS["D-CONV"], network=_network("conv", dropout_hidden=0.2))},
    permute=False,
    ewc_subset=100,
)
"""Where text and code differ, the released code."""
SMALL = Interpretation(
    topologies=((200, 200), (200, 200, 200)),
    points=(30, 10),
    codes=("D5-5a", "D5-5d", "D5-5f", "D9-1a", "D9-1b", "DP10-10"),
)
"""Layers of 200 alone, six streams, fewer measuring points: what one computer does in hours."""
SMALL_CODE = replace(SMALL, permute=False)
TWO_STREAMS = ("D5-5a", "D9-1b")
"""The streams on which the small interpretation learns convolutional networks."""


def planned(
    model: str, code: str, dataset: str, *, interpretation: Interpretation = FOLLOWED, seed: int = 0
) -> Experiment:
    """A model on a sequential learning task, before anything is chosen.

    Args:
        model: A column of the tables, such as `D-FC`.
        code: The stream, such as `D9-1b`.
        dataset: A data set's name.
        interpretation: How the paper is interpreted.
        seed: The run's seed.

    Example:
        >>> ewc = planned("EWC", "D5-5a", "mnist")
        >>> ewc.optimizer.name, ewc.model.dropout_hidden, ewc.batch_size, ewc.epochs
        ('adam', 0.5, 100, 10)
    """
    column = interpretation.columns[model]
    base = experiment(f"slt-{code}-{dataset}", column.method, settings=column.settings, seed=seed)
    evaluation = EvaluationSpec(
        per_epoch=interpretation.per_epoch,
        before=False,
        subset=interpretation.ewc_subset if model == "EWC" else None,
        points=interpretation.points[column.network.name == "conv"],
    )
    scenario = replace(slt(code, dataset, permute=interpretation.permute), name=base.scenario.name)
    return replace(
        base, scenario=scenario, model=column.network, optimizer=column.optimizer, evaluation=evaluation
    )
