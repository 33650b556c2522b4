"""How a scenario is trained: optimiser, batch size, passes, network, and what is set for single methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engram.core.errors import unknown_name
from engram.core.schema import OptionValue
from engram.core.values import OptimizerSpec
from engram.scenarios.values import SettingName

Value = int | float | str

_USUAL_RATES = {"sgd": 0.01, "adam": 0.001, "adamw": 0.001, "adagrad": 0.01, "rmsprop": 0.001}


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a recipe sets for one method.

    Attributes:
        fields: Hyper-parameters of the method.
        by_setting: Those that differ between the settings.
        optimizer: The optimiser, where the method has its own.
        network: Fields of the benchmark's network that differ for the method.
        batch_size: New samples in an update, where the method has its own number.
        epochs: Passes over the data, where the method has its own number.
        augment: Whether images are augmented, where that differs for the method.
    """

    fields: Mapping[str, Value] = field(default_factory=dict)
    by_setting: Mapping[SettingName, Mapping[str, Value]] = field(default_factory=dict)
    optimizer: OptimizerSpec | None = None
    network: Mapping[str, float | str] = field(default_factory=dict)
    batch_size: int | None = None
    epochs: int | None = None
    augment: bool | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a scenario is trained by default.

    `Recipe()` is one pass over each task with plain gradient descent at a rate of 0.01, batches of 32, and a
    perceptron with two hidden layers of 400 units.

    Attributes:
        optimizers: The optimisers that the paper uses, the usual one first.
        batch_size: New samples in an update.
        epochs: Passes over each task's data; about as many as `updates` make, where those are given.
        updates: Updates of each task, where the paper counts these.
        model: Name of the network.
        model_options: Its options, and its initialisation (`init`).
        augment: Whether images are cropped and mirrored at random whenever they are learned.
        subset: How many test samples of each task an evaluation looks at.
        methods: What is set for a method, by its name.
    """

    optimizers: tuple[OptimizerSpec, ...] = (OptimizerSpec(),)
    batch_size: int = 32
    epochs: int = 1
    updates: int | None = None
    model: str = "mlp"
    model_options: Mapping[str, OptionValue] = field(default_factory=dict)
    augment: bool = False
    subset: int = 1000
    methods: Mapping[str, Tuning] = field(default_factory=dict)

    def optimizer(self, method: str, name: str | None = None) -> OptimizerSpec:
        """How `method` updates its weights.

        With a `name` it is the paper's optimiser of that name; one that the paper does not use has a usual
        learning rate, and its state is kept between tasks where the paper's is.

        Example:
            >>> from engram.scenarios import benchmark
            >>> recipe = benchmark("split-mnist-002").recipe
            >>> recipe.optimizer("ewc").name, recipe.optimizer("gem").name
            ('adam', 'sgd')
            >>> recipe.optimizer("ewc", "adagrad").lr
            0.01
        """
        tuned = self._tuning(method).optimizer
        choices = self.optimizers if tuned is None else (tuned, *self.optimizers)
        if name is None:
            return choices[0]
        if name not in _USUAL_RATES:
            raise unknown_name("optimizer", name, _USUAL_RATES)
        other = OptimizerSpec(name, lr=_USUAL_RATES[name], reset=choices[0].reset)
        return next((spec for spec in choices if spec.name == name), other)

    def batch(self, method: str) -> int:
        """How many new samples an update of `method` has.

        Example:
            >>> from engram.scenarios import benchmark
            >>> recipe = benchmark("split-mnist-002").recipe
            >>> recipe.batch("finetune"), recipe.batch("naive-rehearsal")
            (128, 64)
        """
        tuned = self._tuning(method).batch_size
        return self.batch_size if tuned is None else tuned

    def network(self, method: str) -> dict[str, float | str]:
        """The fields of the benchmark's network that differ for `method`.

        Example:
            >>> from engram.scenarios import benchmark
            >>> benchmark("slt-D5-5a-mnist").recipe.network("ewc")["init"]
            'truncated-normal-.1'
        """
        return dict(self._tuning(method).network)

    def passes(self, method: str) -> int:
        """How many passes `method` makes over the data.

        Example:
            >>> from engram.scenarios import benchmark
            >>> recipe = benchmark("split-digits").recipe
            >>> recipe.passes("finetune"), recipe.passes("offline")
            (10, 50)
        """
        tuned = self._tuning(method).epochs
        return self.epochs if tuned is None else tuned

    def augments(self, method: str) -> bool:
        """Whether images are augmented when `method` learns them.

        Example:
            >>> from engram.scenarios import benchmark
            >>> recipe = benchmark("split-cifar100").recipe
            >>> recipe.augments("er"), recipe.augments("finetune")
            (True, False)
        """
        tuned = self._tuning(method).augment
        return self.augment if tuned is None else tuned

    def fields(self, method: str, setting: SettingName) -> dict[str, Value]:
        """The hyper-parameters that are set for `method` in a setting; none for a method that has no tuning.

        Example:
            >>> from engram.scenarios import benchmark
            >>> benchmark("split-mnist-002").recipe.fields("ewc", "domain")["strength"]
            100
        """
        tuning = self._tuning(method)
        return {**tuning.fields, **tuning.by_setting.get(setting, {})}

    def _tuning(self, method: str) -> Tuning:
        return self.methods.get(method, Tuning())
