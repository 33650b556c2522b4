"""Benchmarks by name: a scenario and the set-up that its paper trains it with.

A recipe holds what the paper or its code says. What they leave open stays at the default of the method, the
network or the optimiser; where a number is ours, a comment says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from engram.core.dataset_info import DATASETS
from engram.core.errors import unknown_name
from engram.core.registry import Registry
from engram.core.values import OptimizerSpec
from engram.scenarios.algebra import online, shuffled
from engram.scenarios.build import domains, permuted, queue, rotated, slt, split, superclasses
from engram.scenarios.preparation import UNIT_RANGE, usual_normalisation
from engram.scenarios.settings import setting_of
from engram.scenarios.values import (
    ClassSetting,
    DomainSetting,
    Normalise,
    Pad,
    Resize,
    Scenario,
    Setting,
    SettingName,
    TaskSetting,
)

Value = int | float | str

_USUAL_RATES = {"sgd": 0.01, "adam": 0.001, "adamw": 0.001, "adagrad": 0.01, "rmsprop": 0.001}


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a paper sets for one method.

    Attributes:
        fields: Hyper-parameters of the method.
        by_setting: Those that differ between the settings.
        optimizer: The optimiser, where the method has one of its own.
        network: Fields of the benchmark's network that the method has otherwise.
        batch_size: New samples in an update, where the method has a number of its own.
        epochs: Passes over the data, where the method has a number of its own.
        augment: Whether images are changed at random, where the method has that otherwise.
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
    """How a benchmark is trained unless somebody says otherwise.

    Attributes:
        optimizers: The optimisers that the paper uses, the usual one first.
        batch_size: New samples in an update.
        epochs: Passes over each task's data; about as many as `updates` make, where those are given.
        updates: Updates of each task, where the paper counts these.
        model: Name of the network.
        hidden: Its hidden widths, if it has any to choose.
        stem: Its stem, if it has one to choose.
        init: Its initialisation.
        augment: Whether images are cropped and mirrored at random whenever they are learned.
        subset: How many test samples of each task an evaluation looks at.
        methods: What is set for a method, by its name.
    """

    optimizers: tuple[OptimizerSpec, ...]
    batch_size: int
    epochs: int
    updates: int | None = None
    model: str = "mlp"
    hidden: tuple[int, ...] = (400, 400)
    stem: Literal["32", "224"] = "32"
    init: Literal["default", "truncated-normal"] = "default"
    augment: bool = False
    subset: int = 1000
    methods: Mapping[str, Tuning] = field(default_factory=dict)

    def optimizer(self, method: str, name: str | None = None) -> OptimizerSpec:
        """How `method` updates its weights.

        With a `name` it is the paper's optimiser of that name; one that the paper does not use has a usual
        learning rate, and its state is kept between tasks where the paper's is.

        Example:
            >>> recipe = benchmark("split-mnist-002").recipe
            >>> recipe.optimizer("ewc").name, recipe.optimizer("gem").name
            ('adam', 'sgd')
            >>> recipe.optimizer("ewc", "adagrad").lr
            0.01
        """
        own = self.methods[method].optimizer if method in self.methods else None
        choices = self.optimizers if own is None else (own, *self.optimizers)
        if name is None:
            return choices[0]
        if name not in _USUAL_RATES:
            raise unknown_name("optimizer", name, _USUAL_RATES)
        other = OptimizerSpec(name, lr=_USUAL_RATES[name], reset=choices[0].reset)
        return next((spec for spec in choices if spec.name == name), other)

    def batch(self, method: str) -> int:
        """How many new samples an update of `method` has.

        Example:
            >>> recipe = benchmark("split-mnist-002").recipe
            >>> recipe.batch("finetune"), recipe.batch("naive-rehearsal")
            (128, 64)
        """
        own = self.methods[method].batch_size if method in self.methods else None
        return self.batch_size if own is None else own

    def network(self, method: str) -> dict[str, float | str]:
        """The fields of the benchmark's network that `method` has otherwise.

        Example:
            >>> benchmark("slt-D5-5a-mnist").recipe.network("ewc")["init"]
            'truncated-normal-.1'
        """
        return dict(self.methods.get(method, Tuning()).network)

    def passes(self, method: str) -> int:
        """How many passes `method` makes over the data.

        Example:
            >>> recipe = benchmark("split-digits").recipe
            >>> recipe.passes("finetune"), recipe.passes("offline")
            (10, 50)
        """
        own = self.methods[method].epochs if method in self.methods else None
        return self.epochs if own is None else own

    def augments(self, method: str) -> bool:
        """Whether images are changed at random whenever `method` learns them.

        Example:
            >>> recipe = benchmark("split-cifar100").recipe
            >>> recipe.augments("er"), recipe.augments("finetune")
            (True, False)
        """
        own = self.methods[method].augment if method in self.methods else None
        return self.augment if own is None else own

    def fields(self, method: str, setting: SettingName) -> dict[str, Value]:
        """The hyper-parameters that are set for `method` in a setting; none for a method that has no tuning.

        Example:
            >>> benchmark("split-mnist-002").recipe.fields("ewc", "domain")["strength"]
            100
        """
        tuning = self.methods.get(method, Tuning())
        return {**tuning.fields, **tuning.by_setting.get(setting, {})}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A scenario that people can name, and how it is trained.

    Attributes:
        name: What people type.
        description: One line.
        paper: Where it comes from.
        settings: The settings it may be had in, with the options of its paper; the first is the default.
        make: From a setting and a seed to the scenario.
        recipe: How it is trained.
    """

    name: str
    description: str
    paper: str
    settings: tuple[Setting, ...]
    make: Callable[[Setting, int], Scenario]
    recipe: Recipe

    @property
    def setting_names(self) -> tuple[SettingName, ...]:
        """The names of its settings, the default first."""
        return tuple(setting.kind for setting in self.settings)

    def scenario(self, setting: Setting | SettingName | None = None, *, seed: int = 0) -> Scenario:
        """The scenario in a setting.

        Args:
            setting: One of `setting_names`, which has the options of the benchmark's paper, or a setting
                with options of one's own; the default unless given.
            seed: Draws what differs from run to run: class orders, permutations. Many benchmarks have
                nothing to draw.

        Example:
            >>> benchmark("split-mnist").scenario("task").n_units
            10
            >>> benchmark("mini-domainnet").scenario("class")
            Traceback (most recent call last):
            engram.core.errors.InputError: mini-domainnet makes no sense in the class setting: ...
        """
        if setting is None:
            chosen = self.settings[0]
        else:
            chosen = setting_of(setting, what=self.name, allowed=self.setting_names)
            if isinstance(setting, str):
                chosen = next(own for own in self.settings if own.kind == chosen.kind)
        return replace(self.make(chosen, seed), name=self.name)


def benchmark(name: str) -> Benchmark:
    """The benchmark with this name.

    `slt-CODE-DATASET` stands for any sequential learning task (`engram.scenarios.slt`) on any data set.

    Example:
        >>> benchmark("slt-D5-5a-mnist").description
        'Sequential learning task D5-5a on MNIST'
        >>> benchmark("slt-D5-5a-mnits")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown data set 'mnits'; did you mean 'mnist', ...
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    if name.startswith("slt-"):
        # Codes have one hyphen, names of data sets any number.
        parts = name.removeprefix("slt-").split("-", 2)
        return _slt_benchmark("-".join(parts[:2]), "-".join(parts[2:]))
    raise unknown_name("scenario", name, [*BENCHMARKS, SLT_PATTERN])


# Generators ---------------------------------------------------------------------------------------

# Plain gradient descent does not teach an autoencoder much in so few updates; 002's rows have Adam at .001.
_WITH_ADAM = Tuning(optimizer=OptimizerSpec("adam", lr=0.001))
_GENERATIVE = {"dgr": _WITH_ADAM, "rtf": _WITH_ADAM}

# Settings and papers ------------------------------------------------------------------------------

_TASK = TaskSetting()
_DOMAIN = DomainSetting()
_CLASS = ClassSetting()
_CLASS_KNOWN = ClassSetting(classes_known=True)

_DE_LANGE = "000 De Lange et al."
_MICHEL = "001 Michel et al."
_HSU = "002 Hsu et al."
_CHEN = "003 Chen et al."
_PFUELB = "004 Pfülb & Gepperth"
_AFTER_DE_LANGE = "after 000 De Lange et al."
_OURS = "engram"


# De Lange et al. ----------------------------------------------------------------------------------

_LWF = Tuning({"temperature": 2.0, "weight": 1.0})
_EWC_000 = {"slots": "average", "label": "true", "fisher": "batch"}


def _sgd(lr: float) -> OptimizerSpec:
    return OptimizerSpec("sgd", lr=lr, momentum=0.9)


def _er(lr: float, *, memory: int, batch: int, weight: float) -> Tuning:
    return Tuning(
        {"memory": memory, "memory_batch": batch, "weight": weight, "policy": "class-balanced"},
        optimizer=_sgd(lr),
    )


def _gem(lr: float, *, memory: int) -> Tuning:
    return Tuning({"memory": memory, "margin": 0.5, "policy": "first"}, optimizer=_sgd(lr))


_MLP_000 = Recipe(
    optimizers=(_sgd(0.01),),
    batch_size=256,
    epochs=10,
    methods={
        "er": _er(0.01, memory=2000, batch=256, weight=0.3),
        "gem": _gem(0.01, memory=400),
        "lwf": _LWF,
        "ewc": Tuning(_EWC_000),
        **_GENERATIVE,
    },
)
_RESNET_000 = replace(
    _MLP_000,
    model="slim-resnet18",
    methods={
        "er": _er(0.1, memory=1000, batch=256, weight=0.7),
        "gem": _gem(0.001, memory=200),
        "lwf": _LWF,
        "ewc": Tuning(_EWC_000),
        **_GENERATIVE,
    },
)
_MINI_IMAGENET = replace(
    _RESNET_000,
    batch_size=128,
    methods={
        **_RESNET_000.methods,
        "er": _er(0.1, memory=10000, batch=128, weight=0.5),
        "gem": _gem(0.001, memory=500),
    },
)
_MINI_DOMAINNET = replace(
    _RESNET_000,
    batch_size=128,
    # 300 updates are 0.9 to 3.2 passes over a domain.
    epochs=2,
    updates=300,
    methods={
        **_RESNET_000.methods,
        "er": _er(0.1, memory=1000, batch=128, weight=0.3),
        "gem": _gem(0.001, memory=250),
        "ewc": Tuning({**_EWC_000, "strength": 1.0}),
    },
)


# Michel et al. ------------------------------------------------------------------------------------

_ONLINE_001 = Recipe(
    optimizers=(OptimizerSpec("sgd", lr=0.01, momentum=0.9, weight_decay=1e-4, reset=False),),
    batch_size=10,
    epochs=1,
    model="resnet18",
    methods={
        "er": Tuning(
            {"memory": 2000, "memory_batch": 64, "weight": "mean", "policy": "reservoir"}, augment=True
        ),
        # Its fit does so itself.
        "gdumb": Tuning({"augment": True}),
        **_GENERATIVE,
    },
)


# Hsu et al. ---------------------------------------------------------------------------------------

_PADDED = (Pad(2), Normalise(mean=(0.1000,), std=(0.2752,)))


def _kept(name: str, lr: float) -> OptimizerSpec:
    return OptimizerSpec(name, lr=lr, reset=False)


def _strengths(task: float, domain: float, class_: float) -> dict[SettingName, Mapping[str, Value]]:
    return {"task": {"strength": task}, "domain": {"strength": domain}, "class": {"strength": class_}}


def _batch_fisher_in_domain(
    strengths: dict[SettingName, Mapping[str, Value]],
) -> dict[SettingName, Mapping[str, Value]]:
    """The permuted runs in the domain setting alone take the Fisher information of whole mini-batches."""
    return {**strengths, "domain": {**strengths["domain"], "fisher": "batch-scaled"}}


# The rows of LwF, DGR and RtF come from the code of van de Ven & Tolias (2018).
_LWF_002 = Tuning(
    {
        "temperature": 2.0,
        "weight": "share",
        "squared": True,
        "form": "cross-entropy",
        "mean_over_units": True,
        "softmax": "padded",
    }
)
_EWC_002 = {"slots": "separate", "label": "predicted", "fisher": "sample"}

_SPLIT_002 = Recipe(
    optimizers=(_kept("adam", 0.001), _kept("sgd", 0.01), _kept("adagrad", 0.01)),
    batch_size=128,
    epochs=4,
    methods={
        "l2": Tuning(by_setting=_strengths(0.01, 0.5, 100)),
        "ewc": Tuning(_EWC_002, _strengths(100, 100, 600)),
        "online-ewc": Tuning(by_setting=_strengths(400, 700, 100)),
        "si": Tuning(by_setting=_strengths(300, 3000, 600)),
        "mas": Tuning(by_setting=_strengths(1, 10000, 1)),
        # 64 new and 64 remembered samples in each mini-batch of 128.
        "naive-rehearsal": Tuning({"memory": 1100}, batch_size=64),
        "naive-rehearsal-c": Tuning({"memory": 4400}, batch_size=64),
        # 1,100 images in all, a fifth for each task; rehearsal has the same budget, and half of each update.
        "gem": Tuning({"memory": 220, "margin": 0.5, "policy": "random"}, optimizer=_kept("sgd", 0.01)),
        "er": Tuning({"memory": 1100, "memory_batch": 128, "weight": 0.5}),
        "lwf": _LWF_002,
    },
)
_PERMUTED_002 = Recipe(
    # The paper's rates; its script for the task setting has sgd at .01.
    optimizers=(_kept("adam", 0.0001), _kept("sgd", 0.001), _kept("adagrad", 0.001)),
    batch_size=128,
    epochs=10,
    hidden=(1000, 1000),
    methods={
        "l2": Tuning(by_setting=_strengths(0.001, 0.02, 0)),
        "ewc": Tuning(_EWC_002, _batch_fisher_in_domain(_strengths(500, 150, 10))),
        "online-ewc": Tuning(by_setting=_batch_fisher_in_domain(_strengths(500, 250, 50))),
        "si": Tuning(by_setting=_strengths(1, 10, 0.3)),
        "mas": Tuning(by_setting=_strengths(0.01, 0.1, 0.003)),
        "naive-rehearsal": Tuning({"memory": 4000}, batch_size=64),
        "naive-rehearsal-c": Tuning({"memory": 16000}, batch_size=64),
        "gem": Tuning({"memory": 400, "margin": 0.5, "policy": "random"}, optimizer=_kept("sgd", 0.1)),
        "er": Tuning({"memory": 4000, "memory_batch": 128, "weight": 0.5}),
        "lwf": _LWF_002,
    },
)
_QUEUE_002 = Recipe(
    optimizers=(_kept("adam", 0.001), _kept("adagrad", 0.001)), batch_size=128, epochs=10, hidden=(256, 256)
)


# Chen et al. --------------------------------------------------------------------------------------


def _chen(
    *, batch_size: int, epochs: int, per_class: int, stem: Literal["32", "224"] = "32", inner_steps: int = 2
) -> Recipe:
    rate = OptimizerSpec("sgd", lr=0.01, schedule="cosine")
    replay = Tuning({"memory": per_class, "memory_batch": batch_size, "weight": "sum", "policy": "per-class"})
    return Recipe(
        optimizers=(rate,),
        batch_size=batch_size,
        epochs=epochs,
        model="resnet50",
        stem=stem,
        augment=True,
        methods={
            "er": replay,
            "a-gem": Tuning({"memory": per_class, "memory_batch": batch_size}),
            "multitask": Tuning({"memory_batch": batch_size}),
            "fomaml": Tuning({"inner_steps": inner_steps}),
            "lp-ft": Tuning(optimizer=replace(rate, lr=0.001)),
            **_GENERATIVE,
        },
    )


def _years(dataset: str) -> tuple[str, ...]:
    return tuple(f"{dataset}-{year}" for year in range(2005, 2015))


# Pfülb & Gepperth ---------------------------------------------------------------------------------

SLT_PATTERN = "slt-CODE-DATASET"
"""How sequential learning tasks are named: `slt-D5-5a-mnist`."""

# The networks of EWC and IMM drop units while they are trained.
_DROPOUT_004 = {"dropout_input": 0.2, "dropout_hidden": 0.5}
# IMM goes without momentum, and has the rate of the first task, here the larger, in the second as well.
_IMM_004 = Tuning(optimizer=OptimizerSpec("sgd", lr=0.01), network=_DROPOUT_004)

# The study searches 36 topologies and two rates for the first task, three for the second. This is the middle
# of the topologies, and the one rate that is among those of both tasks.
_SLT = Recipe(
    optimizers=(OptimizerSpec("sgd", lr=0.001, momentum=0.99),),
    batch_size=100,
    epochs=10,
    init="truncated-normal",
    methods={
        # Their penalty is 1 / (2 · rate) times the sum; "strength" is the whole factor.
        "ewc": Tuning(
            {"strength": 500, "slots": "separate", "label": "true", "fisher": "sample"},
            optimizer=OptimizerSpec("adam", lr=0.001),
            network={**_DROPOUT_004, "init": "truncated-normal-.1"},
        ),
        "imm-mean": _IMM_004,
        "imm-mode": replace(_IMM_004, fields={"fisher": "batch"}),
        **_GENERATIVE,
    },
)


def _slt_benchmark(code: str, dataset: str) -> Benchmark:
    known = slt(code, dataset)
    return Benchmark(
        known.name,
        f"Sequential learning task {code} on {DATASETS[dataset].title}",
        _PFUELB,
        (known.setting,),
        lambda setting, seed: replace(known, setting=setting),
        _SLT,
    )


# Digits: small enough for a demonstration, all numbers ours -----------------------------------------

_DIGITS = Recipe(
    optimizers=(OptimizerSpec("sgd", lr=0.05, momentum=0.8),),
    batch_size=32,
    epochs=10,
    hidden=(64, 64),
    methods={
        "l2": Tuning({"strength": 0.1}),
        "ewc": Tuning({"strength": 30.0}),
        "online-ewc": Tuning({"strength": 30.0}),
        "si": Tuning({"strength": 1.0, "clip": True}),
        "mas": Tuning({"strength": 0.1}),
        "er": Tuning({"memory": 100, "memory_batch": 32, "weight": 0.5, "policy": "class-balanced"}),
        "naive-rehearsal": Tuning({"memory": 100}),
        "naive-rehearsal-c": Tuning({"memory": 400}),
        "gdumb": Tuning({"memory": 100}),
        "er-ace": Tuning({"memory": 100}),
        "der++": Tuning({"memory": 100}),
        "icarl": Tuning({"memory": 100}),
        **_GENERATIVE,
        "fomaml": Tuning({"memory": 10}, optimizer=OptimizerSpec("sgd", lr=0.01)),
        "gem": Tuning({"memory": 20, "margin": 0.5}),
        "a-gem": Tuning({"memory": 10, "memory_batch": 32}),
        "lwf": _LWF,
        # An upper bound: as often as it takes until more passes gain nothing.
        "offline": Tuning(epochs=50),
    },
)

# The catalogue ------------------------------------------------------------------------------------

_CATALOGUE = (
    Benchmark(
        "split-digits",
        "The ten digits that scikit-learn ships, two at a time: needs no download",
        _OURS,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("digits", setting=setting),
        _DIGITS,
    ),
    Benchmark(
        "permuted-digits",
        "The shipped digits in five tasks, the pixels of each permuted",
        _OURS,
        (_DOMAIN, _TASK, _CLASS_KNOWN),
        lambda setting, seed: permuted("digits", 5, setting=setting, seed=seed),
        _DIGITS,
    ),
    Benchmark(
        "rotated-digits",
        "The shipped digits in five tasks, turned by 0, 36, … 144 degrees",
        _OURS,
        (_DOMAIN, _TASK, _CLASS_KNOWN),
        lambda setting, seed: rotated("digits", range(0, 180, 36), setting=setting),
        _DIGITS,
    ),
    Benchmark(
        "split-mnist",
        "MNIST, two digits at a time, all ten competing from the start",
        _DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("mnist", setting=setting),
        _MLP_000,
    ),
    Benchmark(
        "permuted-mnist",
        "MNIST in five tasks, the pixels of each permuted",
        _DE_LANGE,
        (_DOMAIN, _TASK, _CLASS_KNOWN),
        lambda setting, seed: permuted("mnist", 5, setting=setting, seed=seed),
        _MLP_000,
    ),
    Benchmark(
        "rotated-mnist",
        "MNIST in twenty tasks, turned by 0, 9, … 171 degrees",
        _DE_LANGE,
        (_DOMAIN, _TASK, _CLASS_KNOWN),
        lambda setting, seed: rotated("mnist", range(0, 180, 9), setting=setting),
        _MLP_000,
    ),
    Benchmark(
        "split-cifar10",
        "CIFAR-10, two classes at a time",
        _DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("cifar10", setting=setting),
        _RESNET_000,
    ),
    Benchmark(
        "split-mini-imagenet",
        "Mini-ImageNet, five classes at a time",
        _DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("mini-imagenet", 5, setting=setting),
        _MINI_IMAGENET,
    ),
    Benchmark(
        "mini-domainnet",
        "126 classes as clipart, painting, photograph and sketch",
        _DE_LANGE,
        (_DOMAIN, _TASK),
        lambda setting, seed: domains(
            tuple(f"mini-domainnet-{domain}" for domain in ("clipart", "painting", "real", "sketch")),
            setting=setting,
        ),
        _MINI_DOMAINNET,
    ),
    Benchmark(
        "digits-domains",
        "Digits of MNIST, then SVHN, then USPS, all 32×32 in three channels",
        _DE_LANGE,
        (_DOMAIN, _TASK),
        lambda setting, seed: domains(("mnist", "svhn", "usps"), setting=setting, size=32),
        _MLP_000,
    ),
    Benchmark(
        "split-fashion-mnist",
        "Fashion-MNIST, two classes at a time",
        _AFTER_DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("fashion-mnist", setting=setting),
        _MLP_000,
    ),
    Benchmark(
        "split-kmnist",
        "Kuzushiji-MNIST, two characters at a time",
        _AFTER_DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("kmnist", setting=setting),
        _MLP_000,
    ),
    Benchmark(
        "split-emnist-letters",
        "EMNIST letters, two at a time, thirteen tasks",
        _AFTER_DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("emnist-letters", setting=setting),
        _MLP_000,
    ),
    Benchmark(
        "split-svhn",
        "Street View House Numbers, two digits at a time",
        _AFTER_DE_LANGE,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: split("svhn", setting=setting),
        _RESNET_000,
    ),
    Benchmark(
        "split-cifar100",
        "CIFAR-100, ten classes at a time in a drawn order, every image seen once",
        _MICHEL,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: online(
            split("cifar100", 10, setting=setting, seed=seed, transforms=(UNIT_RANGE,))
        ),
        _ONLINE_001,
    ),
    Benchmark(
        "split-tiny-imagenet",
        "Tiny ImageNet, two classes at a time in a drawn order, every image seen once",
        _MICHEL,
        (_CLASS_KNOWN, _TASK, _DOMAIN),
        lambda setting, seed: online(
            split("tiny-imagenet", 2, setting=setting, seed=seed, transforms=(UNIT_RANGE,))
        ),
        _ONLINE_001,
    ),
    Benchmark(
        "split-mnist-002",
        "MNIST padded to 32×32, two digits at a time, only those seen competing",
        _HSU,
        (_CLASS, _TASK, _DOMAIN),
        lambda setting, seed: split("mnist", setting=setting, transforms=_PADDED),
        _SPLIT_002,
    ),
    Benchmark(
        "permuted-mnist-002",
        "MNIST padded to 32×32 in ten tasks, as it is and then permuted",
        _HSU,
        (_DOMAIN, _TASK, _CLASS),
        lambda setting, seed: permuted(
            "mnist", 10, setting=setting, seed=seed, identity_first=True, transforms=_PADDED
        ),
        _PERMUTED_002,
    ),
    Benchmark(
        "queue-002",
        "78 two-class tasks of five data sets, all 28×28 and grey",
        _HSU,
        (_TASK, _DOMAIN, _CLASS),
        lambda setting, seed: queue(setting=setting),
        _QUEUE_002,
    ),
    Benchmark(
        "split-cifar10-003",
        "CIFAR-10, two classes a task, tasks in a drawn order",
        _CHEN,
        (_TASK, _DOMAIN, _CLASS),
        lambda setting, seed: shuffled(split("cifar10", setting=setting), seed),
        _chen(batch_size=64, epochs=50, per_class=50),
    ),
    Benchmark(
        "split-cifar100-003",
        "CIFAR-100, five classes a task, tasks in a drawn order",
        _CHEN,
        (_TASK, _DOMAIN, _CLASS),
        lambda setting, seed: shuffled(split("cifar100", 5, setting=setting), seed),
        _chen(batch_size=64, epochs=50, per_class=20),
    ),
    Benchmark(
        "cifar100-superclasses",
        "CIFAR-100, one fine class of each superclass a task, tasks in a drawn order",
        _CHEN,
        (_TASK, _DOMAIN, _CLASS),
        lambda setting, seed: shuffled(superclasses(setting=setting), seed),
        _chen(batch_size=64, epochs=50, per_class=5),
    ),
    Benchmark(
        "clear10",
        "Ten classes as photographed in the years 2005 to 2014",
        _CHEN,
        (_DOMAIN, _TASK),
        lambda setting, seed: domains(
            _years("clear10"),
            setting=setting,
            transforms=(Resize(224), usual_normalisation("clear10")),
        ),
        _chen(batch_size=128, epochs=100, per_class=10, stem="224"),
    ),
    Benchmark(
        "clear100",
        "A hundred classes as photographed in the years 2005 to 2014",
        _CHEN,
        (_DOMAIN, _TASK),
        lambda setting, seed: domains(
            _years("clear100"),
            setting=setting,
            transforms=(Resize(224), usual_normalisation("clear100")),
        ),
        _chen(batch_size=128, epochs=100, per_class=5, stem="224"),
    ),
    Benchmark(
        "split-imagenet",
        "ImageNet at 64×64, ten classes a task, tasks in a drawn order",
        _CHEN,
        (_TASK, _DOMAIN, _CLASS),
        lambda setting, seed: shuffled(
            split("imagenet", 10, setting=setting, transforms=(Resize(64), usual_normalisation("imagenet"))),
            seed,
        ),
        _chen(batch_size=256, epochs=100, per_class=10, inner_steps=1),
    ),
)

BENCHMARKS: Registry[Benchmark] = Registry("scenario", {entry.name: entry for entry in _CATALOGUE})
"""All benchmarks but the sequential learning tasks, which `benchmark` makes from their names."""
