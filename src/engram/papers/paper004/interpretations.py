"""The set-up of each column of the tables, and interpretations where text and code differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod

from engram.core.jsons import Json, JsonMapping
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
"""The data sets, by their names in the tables."""

SIZES = (200, 400, 800)
TOPOLOGIES = tuple(widths for depth in (2, 3) for widths in product(SIZES, repeat=depth))
"""The 36 combinations of two or three hidden layers of three sizes."""
FIRST_RATES = (0.01, 0.001)
MEASURING_POINTS = 90
"""The approximate number of tests of a task while it is learned."""

_DROPOUT: Mapping[str, float] = {"dropout_input": 0.2, "dropout_hidden": 0.5}
_MOMENTUM = OptimizerSpec("sgd", lr=0.001, momentum=0.99)


@dataclass(frozen=True, slots=True)
class Column:
    """The set-up of a column of the tables.

    Attributes:
        method: The name of the method.
        network: The network; the sizes of its layers are searched.
        optimizer: The optimiser; its learning rate is searched.
        settings: Hyper-parameters of the method.
    """

    method: str
    network: ModelSpec
    optimizer: OptimizerSpec = _MOMENTUM
    settings: JsonMapping = field(default_factory=dict)


def _network(name: str = "mlp", /, **more: Json) -> ModelSpec:
    return ModelSpec(name, **{"init": "truncated-normal", **more})


_IMM = partial(Column, network=_network(**_DROPOUT), optimizer=OptimizerSpec("sgd", lr=0.01))
# During the second task the network being trained is tested; all balances are tested at the end.
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
        columns: The set-up of each column.
        choice: How Algorithm 1 is interpreted.
        rates_for_imm: Whether the rates of the second task are tried for IMM as well.
        per_epoch: Whether measuring points are counted per epoch, starting with its first update.
        permute: Whether the second task of DP10-10 is permuted.
        topologies: The hidden layers to search.
        points: The approximate number of tests per task, for dense and for convolutional networks.
        codes: The streams whose lowest values are used (default: all).
        ewc_subset: The number of test images, drawn once, on which EWC is tested (default: all).
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

    def fields(self, model: str) -> dict[str, Sequence[Json]]:
        """The values that are searched on the first task."""
        convolves = self.columns[model].network.name == "conv"
        return {**({} if convolves else {"hidden": self.topologies}), "lr": FIRST_RATES}

    def candidates(self, model: str) -> int:
        """The number of their combinations."""
        return prod(len(values) for values in self.fields(model).values())

    def later(self, model: str) -> float:
        """The number of later runs per candidate: the second task at each rate, and both tasks at once.

        Both ways to merge run the selected rate once more for all balances, and `mode` learns the first task
        again.
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
"""Follows the text where text and code differ."""
CODE = Interpretation(
    columns={**COLUMNS, "D-CONV": replace(COLUMNS["D-CONV"], network=_network("conv", dropout_hidden=0.2))},
    permute=False,
    ewc_subset=100,
)
"""Follows the released code where text and code differ."""
SMALL = Interpretation(
    topologies=((200, 200), (200, 200, 200)),
    points=(30, 10),
    codes=("D5-5a", "D5-5d", "D5-5f", "D9-1a", "D9-1b", "DP10-10"),
)
"""Only layers of 200, six streams, fewer measuring points: one computer runs it in hours."""
SMALL_CODE = replace(SMALL, permute=False)
TWO_STREAMS = ("D5-5a", "D9-1b")
"""The streams on which the small interpretation learns convolutional networks."""


def planned(
    model: str, code: str, dataset: str, *, interpretation: Interpretation = FOLLOWED, seed: int = 0
) -> Experiment:
    """A model on a sequential learning task, before the search.

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
