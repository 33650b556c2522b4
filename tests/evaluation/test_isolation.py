"""Whatever a module does in evaluation, training is the same with and without it, to the bit."""

import itertools
import random
import re
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.guard import Guard, untouched
from engram.evaluation.kshot import features_of
from engram.evaluation.records import same_bits
from engram.evaluation.samples import TensorSet
from engram.evaluation.snapshot import Snapshot

UPDATES = 5
Make = Callable[[], nn.Module]


class Layer(nn.Module):
    """A layer that does something more in its forward pass, which changes what it computes next."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x) * self.scale()
        return scores

    def scale(self) -> float | Tensor:
        return 1.0


class ReassignedBuffer(Layer):
    n: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def scale(self) -> Tensor:
        self.n = self.n + 1
        return 1 / self.n


class WrittenBuffer(ReassignedBuffer):
    def scale(self) -> Tensor:
        self.n += 1
        return 1 / self.n.clone()


class Counter(Layer):
    n = 0

    def scale(self) -> float:
        self.n += 1
        return 1 / self.n


class ClassCounter(Layer):
    calls: ClassVar[int] = 0
    seen: ClassVar[list[int]] = []

    def scale(self) -> float:
        type(self).calls += 1
        self.seen.append(1)
        return 1 / (type(self).calls + len(self.seen))


class TensorAttribute(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(3)

    def scale(self) -> Tensor:
        self.mean = 0.5 * self.mean + 1
        return self.mean


class WrittenTensor(TensorAttribute):
    def scale(self) -> Tensor:
        self.mean.mul_(0.5).add_(1)
        return self.mean.clone()


class LargeTensor(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(50_000)

    def scale(self) -> float:
        self.table.add_(1)
        return 1 / float(self.table[0])


class Nested(Layer):
    """State in containers and objects in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = SimpleNamespace(counts={"n": 0}, queue=deque([1.0], maxlen=9), members={1})
        self.pair = ([torch.zeros(3)], {"inner": [self.kept]})
        self.other = SimpleNamespace(array=np.zeros(3), raw=bytearray(1), ordered=OrderedDict(n=1))

    def scale(self) -> float:
        tensor, kept, other = self.pair[0][0], self.kept, self.other
        tensor += 1
        kept.counts["n"] += 1
        kept.queue.append(0.5)
        kept.members.add(len(kept.members))
        other.array += 1
        other.raw[0] += 1
        other.ordered[len(other.ordered)] = 1
        other.new = True
        total = float(tensor[0]) + kept.counts["n"] + len(kept.queue) + len(kept.members)
        return 1 / float(total + other.array[0] + other.raw[0] + len(other.ordered))


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class ObjectWithSlots(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.state = Slotted()

    def scale(self) -> float:
        self.state.n += 1
        return 1 / self.state.n


class OwnGenerators(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.torch_generator = torch.Generator().manual_seed(1)
        self.numpy_generator = np.random.default_rng(1)
        self.random_state = np.random.RandomState(1)
        self.plain = [random.Random(1)]

    def scale(self) -> float:
        drawn = float(torch.rand((), generator=self.torch_generator)) + self.numpy_generator.random()
        return drawn + self.random_state.rand() + self.plain[0].random()


class WrittenParameter(Layer):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.linear.weight.mul_(0.9)
        return super().forward(x)


class WrittenData(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight.data.mul_(0.9)
        return super().forward(x)


class AverageAsParameter(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.ones(3), requires_grad=False)

    def scale(self) -> Tensor:
        self.mean.data = 0.9 * self.mean.data + 0.1 * self.linear.bias.data
        return self.mean


class Embedded(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        make = nn.Embedding if kind == "one" else nn.EmbeddingBag
        self.table = make(4, 5, max_norm=0.5)
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        words = x.abs().argsort(1)
        rows = self.table(words[:, 0] if isinstance(self.table, nn.Embedding) else words[:, :2])
        scores: Tensor = self.linear(rows)
        return scores


class OverriddenTrain(Layer):
    """Keeps its batch norm frozen, merges weights for evaluation, and counts its changes of mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.merged, self.switched = False, 0

    def train(self, mode: bool = True) -> "OverriddenTrain":
        super().train(mode)
        self.norm.eval()
        self.switched += 1
        if not mode and not self.merged:
            self.linear.weight.data += 0.1
            self.merged = True
        return self

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


class TrainThatDoesNotPropagate(Layer):
    """Its batch norm stays in training mode, also in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def train(self, mode: bool = True) -> "TrainThatDoesNotPropagate":
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


class Lazy(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))


class CachedTensor(Layer):
    """Its first forward pass caches a tensor that later ones use."""

    cache: Tensor | None = None

    def scale(self) -> Tensor:
        if self.cache is None:
            self.cache = torch.ones(3) * 0.7
        return self.cache


class CachedWeights(Layer):
    """Its first forward pass caches a tensor that depends on weights."""

    def __init__(self) -> None:
        super().__init__()
        self.caches: list[Tensor] = []

    def scale(self) -> Tensor:
        if not self.caches:
            self.caches.append(self.linear.bias.detach() * 0.7)
        return self.caches[0]


class GrowingList(Layer):
    """Keeps all keys and values, as attention does while it generates."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.keys.append(x.detach())
        return super().forward(x) / len(self.keys)


class KeptOutputs(Layer):
    """Keeps its last outputs, with their graph."""

    def forward(self, x: Tensor) -> Tensor:
        last = getattr(self, "last", None)
        self.last = super().forward(x)
        return self.last if last is None else self.last + last.detach().mean()


class Flipped(Layer):
    """Freezes a weight and collects gradients in its forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.linear.weight.requires_grad_(False)
            with torch.enable_grad():
                super().forward(x.detach()).sum().backward()
        return super().forward(x)


class HiddenModule(Layer):
    """Holds a module that is not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [Counter()]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.hidden[0].forward(x)


class RegistersHooks(Layer):
    def forward(self, x: Tensor) -> Tensor:
        self.linear.register_forward_hook(lambda _module, _inputs, outputs: 0.9 * outputs)
        return super().forward(x)


class OwnDropout(Layer):
    """Drops values also in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(super().forward(x), 0.5, training=True)


def hooked(before: bool) -> nn.Module:
    """A module with a hook whose effect shows in it."""
    layer = Layer()

    def count(module: nn.Linear, *_: object) -> None:
        calls = getattr(module, "calls", 0) + 1
        vars(module)["calls"] = calls
        module.weight.data.mul_(1 - 0.1 / calls)

    if before:
        layer.linear.register_forward_pre_hook(count)
    else:
        layer.linear.register_forward_hook(count)
    return layer


def shared() -> nn.Module:
    layer = Counter()
    return nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"one": layer, "two": layer})["one"], nn.Identity())


def frozen_part() -> nn.Module:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Counter())
    network[1].eval()
    return network


def old_spectral_norm() -> nn.Module:
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 3))


CHANGING: dict[str, tuple[Make, str]] = {
    "reassigned buffer": (ReassignedBuffer, "ReassignedBuffer .*n"),
    "written buffer": (WrittenBuffer, "WrittenBuffer .*n"),
    "counter": (Counter, "Counter .*n"),
    "counter in the class": (ClassCounter, "ClassCounter .*calls, seen"),
    "tensor attribute": (TensorAttribute, "TensorAttribute .*mean"),
    "written tensor attribute": (WrittenTensor, "WrittenTensor .*mean"),
    "large tensor attribute": (LargeTensor, "LargeTensor .*table"),
    "containers and objects": (Nested, "Nested .*kept, pair, other"),
    "object with slots": (ObjectWithSlots, "ObjectWithSlots .*state"),
    "own generators": (OwnGenerators, "torch_generator, numpy_generator, random_state, plain"),
    "hook": (lambda: hooked(before=False), r"linear \(Linear\) .*weight"),
    "hook before": (lambda: hooked(before=True), r"linear \(Linear\) .*weight"),
    "written parameter": (WrittenParameter, r"linear \(Linear\) .*weight"),
    "written parameter data": (WrittenData, r"linear \(Linear\) .*weight"),
    "average as a parameter": (AverageAsParameter, "AverageAsParameter .*mean"),
    "embedding with max_norm": (lambda: Embedded("one"), r"table \(Embedding\) .*weight"),
    "embedding bag with max_norm": (lambda: Embedded("bag"), r"table \(EmbeddingBag\) .*weight"),
    "overridden train": (OverriddenTrain, "OverriddenTrain .*merged, switched"),
    "train that does not propagate": (TrainThatDoesNotPropagate, r"norm \(BatchNorm1d\) .*running_mean"),
    "lazy modules": (Lazy, r"0 \(LazyLinear\) .*weight"),
    "cached tensor": (CachedTensor, "CachedTensor .*cache"),
    "cached weights": (CachedWeights, "CachedWeights .*caches"),
    "growing list": (GrowingList, "GrowingList .*keys"),
    "kept outputs": (KeptOutputs, "KeptOutputs .*last"),
    "frozen weights and gradients": (Flipped, r"linear \(Linear\) .*weight"),
    "module that is not registered": (HiddenModule, r"hidden \(Counter\) .*n"),
    "registers hooks": (RegistersHooks, r"linear \(Linear\) .*_forward_hooks"),
    "shared module": (shared, r"1 \(Counter\) .*n"),
    "frozen part": (frozen_part, r"2 \(Counter\) .*n"),
    "old spectral norm": (old_spectral_norm, r"0 \(Linear\) .*weight"),
}


class Quiet(Layer):
    """A user's own module that behaves."""


def parametrized(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(norm(nn.Linear(4, 4)), nn.Linear(4, 3))


BEHAVING: dict[str, Make] = {
    "own module": Quiet,
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
    "batch norm without statistics": lambda: nn.Sequential(
        nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)
    ),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.5), nn.Linear(9, 3)),
    "dropout in evaluation": OwnDropout,
    "spectral norm": lambda: parametrized(nn.utils.parametrizations.spectral_norm),
    "weight norm": lambda: parametrized(nn.utils.parametrizations.weight_norm),
    "orthogonal": lambda: parametrized(nn.utils.parametrizations.orthogonal),
    "recurrent": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.GRU(2, 3, batch_first=True), Last()),
}


class Last(nn.Module):
    def forward(self, outputs: tuple[Tensor, Tensor]) -> Tensor:
        return outputs[0][:, -1]


def everything(network: nn.Module) -> dict[str, object]:
    """All that can be read from a network, in a form that can be compared."""
    facts: dict[str, object] = {}
    for path, module in network.named_modules():
        facts[f"{path} mode"] = module.training
        facts[f"{path} class"] = type(module).__name__
        for name, value in vars(module).items():
            # Hooks and compiled functions are numbered over the whole process.
            number = name == "_torchdynamo_wrapper_id"
            facts[f"{path}.{name}"] = len(value) if "hooks" in name else None if number else plain(value)
        facts[f"{path} class data"] = plain(vars(type(module)).get("calls"))
    for name, parameter in network.named_parameters():
        facts[f"{name} trained"] = parameter.requires_grad
    return facts


def plain(value: object) -> object:
    if isinstance(value, Tensor):
        if nn.parameter.is_lazy(value):
            return "lazy"
        return value.detach().numpy().tobytes(), value.requires_grad, value.is_inference()
    if isinstance(value, dict):
        return [(str(key), plain(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque | set):
        return [plain(item) for item in value]
    if isinstance(value, SimpleNamespace):
        return plain(vars(value))
    if isinstance(value, torch.Generator):
        return plain(value.get_state())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, random.Random):
        return value.getstate()
    return value if isinstance(value, int | float | str | bytearray | bool | None) else type(value).__name__


def learned(make: Make, *, watch: bool, updates: int = UPDATES) -> tuple[list[str], dict[str, object]]:
    """The losses of a few updates and all of the network afterwards, with or without evaluations."""
    ClassCounter.calls = 0
    ClassCounter.seen.clear()
    torch.manual_seed(0)
    network = make()
    samples = torch.Generator().manual_seed(5)
    x, y = torch.randn(12, 4, generator=samples), torch.randint(3, (12,), generator=samples)
    test = torch.randn(9, 4, generator=samples), torch.randint(3, (9,), generator=samples)
    evaluator = Evaluator([test], subset=7, losses=True)
    if watch:
        evaluator.before(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for update in range(updates):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()).hex())
        if watch:
            evaluator(network, learning=0, last=update == updates - 1)
    losses.append(float(torch.rand(())).hex())
    return losses, everything(network)


@pytest.mark.parametrize("name", CHANGING)
def test_a_module_that_changes_itself_is_restored_and_named(name: str) -> None:
    make, message = CHANGING[name]
    with pytest.warns(UserWarning, match=message) as shown:
        watched = learned(make, watch=True)
    assert watched == learned(make, watch=False)
    told = [str(warning.message) for warning in shown]
    assert len(told) == 1 and "\n" not in told[0] and "training is not affected" in told[0]


@pytest.mark.parametrize("name", BEHAVING)
def test_a_module_that_behaves_is_not_named(name: str) -> None:
    """A warning would be an error here."""
    assert learned(BEHAVING[name], watch=True) == learned(BEHAVING[name], watch=False)


def test_the_comparison_can_fail() -> None:
    """Evaluated without a guard, most of these modules are trained differently."""

    class Careless(Evaluator):
        def _evaluate(self, model: object, *_: object, **__: object) -> None:
            assert isinstance(model, nn.Module)
            model.eval()
            with torch.no_grad():
                model(torch.ones(3, 4))
            model.train()

    different = 0
    for make, _ in CHANGING.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "Evaluator", Careless)
            different += learned(make, watch=True) != learned(make, watch=False)
    assert different >= 25


def evaluate(network: nn.Module, times: int) -> None:
    evaluator = Evaluator([(torch.ones(5, 4), torch.zeros(5))])
    for _ in range(times):
        evaluator(network, learning=0)


class Late(Layer):
    """Changes something only from its third evaluation on; it is told so from outside."""

    def __init__(self, change: Callable[["Late"], object], size: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.ones(size), requires_grad=False)
        self.array, self.numbers = np.zeros(size), [0.0] * size
        started: list[bool] = []

        def change_if_started() -> None:
            if started:
                change(self)

        def start() -> None:
            started.append(True)

        # Functions are not looked into, so what they hold is outside of the network.
        self.change: Callable[[], None] = change_if_started
        self.start: Callable[[], None] = start

    def forward(self, x: Tensor) -> Tensor:
        self.change()
        return super().forward(x)


def add_one(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return tensor.add_(1)


LATE: dict[str, Callable[[Late], object]] = {
    "written": lambda layer: add_one(layer.mean),
    "written data": lambda layer: layer.mean.data.add_(1),
    "replaced data": lambda layer: setattr(layer.mean, "data", layer.mean.data + 1),
    "array": lambda layer: np.add(layer.array, 1, out=layer.array),
    "list": lambda layer: layer.numbers.append(1.0),
    "entry of a list": lambda layer: layer.numbers.__setitem__(0, 1.0),
    "flag": lambda layer: layer.mean.requires_grad_(True),
    "new attribute": lambda layer: setattr(layer, "new", 1),
}


@pytest.mark.parametrize("name", LATE)
def test_changes_that_begin_later_are_restored_where_little_was_changed(name: str) -> None:
    layer = Late(LATE[name], size=5)
    evaluator = Evaluator([(torch.ones(5, 4), torch.zeros(5))])
    for _ in range(5):
        evaluator(layer, learning=0)
    layer.start()
    before = everything(layer)
    with pytest.warns(UserWarning, match="Late changes itself in evaluation"):
        for _ in range(5):
            evaluator(layer, learning=0)
    assert everything(layer) == before


@pytest.mark.parametrize("name", LATE)
def test_changes_that_begin_later_in_large_values_are_restored_or_refused(name: str) -> None:
    layer = Late(LATE[name], size=50_000)
    evaluator = Evaluator([(torch.ones(5, 4), torch.zeros(5))])
    for _ in range(5):
        evaluator(layer, learning=0)
    layer.start()
    before = everything(layer)
    if name in ("replaced data", "flag", "new attribute"):
        with pytest.warns(UserWarning, match="Late changes itself in evaluation"):
            for _ in range(5):
                evaluator(layer, learning=0)
        assert everything(layer) == before
        return
    part = {"array": "array", "list": "numbers", "entry of a list": "numbers"}.get(name, "mean")
    with pytest.raises(InputError, match=f"Late .*{part} ") as error:
        for _ in range(5):
            evaluator(layer, learning=0)
    assert "\n" not in str(error.value) and "self.training" in str(error.value)


def test_what_cannot_be_restored_is_refused_with_the_name_of_the_module() -> None:
    class Drawing(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = itertools.count()
            self.factors = (1 / n for n in itertools.count(1))

    class Counting(Drawing):
        def scale(self) -> float:
            return next(self.numbers)

    class Generating(Drawing):
        def scale(self) -> float:
            return next(self.factors)

    for kind, part in ((Counting, "numbers"), (Generating, "factors")):
        network = nn.Sequential(OrderedDict(first=nn.Linear(4, 4), second=kind()))
        message = rf"second \({kind.__name__}\) changes itself in evaluation, and its {part} cannot be"
        with pytest.raises(InputError, match=message) as error:
            evaluate(network, 1)
        assert "\n" not in str(error.value)


def test_what_a_hook_counts_elsewhere_is_left_alone() -> None:
    """A user's own record of what was evaluated is not part of the network."""
    seen: list[int] = []
    network = nn.Sequential(nn.Linear(4, 3))
    network[0].register_forward_hook(lambda *_: seen.append(1))
    evaluate(network, 3)
    assert len(seen) == 3


def test_modes_are_restored_for_every_module() -> None:
    network = frozen_part()
    with pytest.warns(UserWarning, match="Counter"):
        evaluate(network, 5)
    assert [module.training for module in network.children()] == [True, False, True]
    plain_network = nn.Sequential(nn.Linear(4, 4), nn.Dropout().eval(), nn.Linear(4, 3))
    evaluate(plain_network, 5)
    assert [module.training for module in plain_network] == [True, False, True]


def test_the_network_is_restored_after_an_error() -> None:
    class Failing(Counter):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise KeyError("no")

    network = Failing()
    with pytest.raises(KeyError):
        evaluate(network, 1)
    assert network.n == 0 and network.training


def test_a_graph_that_is_not_backpropagated_yet_stays_valid() -> None:
    network, x = WrittenParameter(), torch.ones(2, 4, requires_grad=True)
    scores = functional.linear(x, network.linear.weight)
    with pytest.warns(UserWarning, match="weight"):
        evaluate(network, 2)
    scores.sum().backward()
    bounded = nn.Embedding(3, 4, max_norm=100.0)
    product = bounded.weight.square().sum()
    with untouched(bounded):
        bounded(torch.tensor([0, 1]))
    product.backward()


@pytest.mark.parametrize("name", ["counter", "own generators", "embedding with max_norm", "lazy modules"])
def test_networks_made_by_a_function_and_routed_networks(name: str) -> None:
    make, message = CHANGING[name]

    class Routed(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.by_task = {0: network}

        def route(self, task: int) -> nn.Module:
            return self.by_task[task]

    torch.manual_seed(0)
    network = make()
    before = everything(network)
    evaluator = Evaluator([(torch.ones(5, 4), torch.zeros(5))])
    with pytest.warns(UserWarning, match=message.partition(" ")[2]):
        for _ in range(5):
            evaluator(lambda: Routed(network), learning=0)
    assert everything(network) == before


def test_every_class_is_looked_at_when_it_is_first_met() -> None:
    """Also where an evaluator has seen many evaluations of other networks."""
    evaluator = Evaluator([(torch.ones(5, 4), torch.zeros(5))])
    for _ in range(5):
        evaluator(Quiet(), learning=0)
    network = LargeTensor()
    with pytest.warns(UserWarning, match="LargeTensor"):
        evaluator(network, learning=0)
    assert not network.table.any()


def test_compiled_modules() -> None:
    compiled: list[tuple[int, ...]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        compiled.append(tuple(inputs[0].shape))
        return graph.forward

    def whole() -> nn.Module:
        torch.compiler.reset()
        compiled.clear()
        return torch.compile(Layer(), backend=backend)  # type: ignore[return-value]

    def in_place() -> nn.Module:
        torch.compiler.reset()
        compiled.clear()
        network = Layer()
        network.compile(backend=backend)
        return network

    for make in (whole, in_place):
        watched = learned(make, watch=True)
        seen = list(compiled)
        assert watched == learned(make, watch=False)
        # A second batch size would make PyTorch compile for any size, which may compute other bits.
        assert seen == compiled and len(seen) == 1


def test_a_compiled_module_that_changes_itself() -> None:
    def make() -> nn.Module:
        torch.compiler.reset()
        return torch.compile(WrittenBuffer(), backend="eager")  # type: ignore[return-value]

    with pytest.warns(UserWarning, match=r"_orig_mod \(WrittenBuffer\) .*n"):
        watched = learned(make, watch=True)
    assert watched == learned(make, watch=False)


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("n", torch.zeros(()))
        self.n: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        scores: Tensor = self.linear(x) / self.n
        return scores


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules() -> None:
    scripted = torch.jit.script(Scripted())
    scripted.linear.eval()
    for network in (scripted, nn.Sequential(scripted)):
        with pytest.warns(UserWarning, match=r"RecursiveScriptModule.* changes itself in evaluation \(n\)"):
            evaluate(network, 5)
        assert float(scripted.n) == 0 and scripted.training and not scripted.linear.training


def test_probes_of_features_leave_a_network_as_it_is() -> None:
    class Featured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = Counter()

    network = Featured()
    features_of(network, TensorSet(torch.ones(5, 4), torch.zeros(5)))
    assert network.features.n == 0 and network.features.training


def test_inputs_that_a_network_overwrites_are_read_again() -> None:
    class Overwriting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(-1)

    test = torch.eye(3), torch.tensor([0, 1, 1])
    evaluator = Evaluator([test])
    for _ in range(4):
        evaluator(Overwriting(), learning=0)
    assert len(set(evaluator.trace.correct)) == 1 and torch.equal(test[0], torch.eye(3))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, torch.nan]),
        torch.tensor([1.0 + 1j]),
        torch.tensor([1.0 + 1j], dtype=torch.complex128),
        torch.tensor([1, 2], dtype=torch.int8),
        torch.tensor([True]),
        torch.tensor(3.0, dtype=torch.bfloat16),
        torch.randn(3, 4).t(),
        torch.empty(0),
    ],
    ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}",
)
def test_bits_are_compared_for_all_types(tensor: Tensor) -> None:
    other = tensor.clone()
    assert same_bits(tensor, other)
    if tensor.numel():
        other[(0,) * tensor.dim()] = 0 if tensor.dtype is torch.bool else 7
        assert not same_bits(tensor, other)
    assert not same_bits(tensor, torch.zeros(tensor.shape, dtype=torch.float16))


def test_odd_tensors_can_be_looked_at() -> None:
    layer = Layer()
    layer.sparse = torch.eye(3).to_sparse()
    layer.meta = torch.empty(3, device="meta")
    layer.expanded = torch.ones(1).expand(3)
    with torch.inference_mode():
        layer.inferred = torch.ones(3)
    names = np.array(["a", None], dtype=object)
    vars(layer).update(read_only=np.broadcast_to(np.ones(1), (3,)), names=names)
    for _ in range(3):
        with untouched(layer):
            layer(torch.ones(2, 4))
    before = Snapshot(layer)
    names[0] = "b"
    assert [change.part for change in before.restore()] == ["names"]
    assert names[0] == "a"


def test_modules_of_libraries_cost_little() -> None:
    """Where no code of the user's is run, only modes are restored between complete looks."""
    network, guard = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), Guard()
    looks = 0
    with pytest.MonkeyPatch.context() as patch:
        taken = Snapshot.restore

        def restore(snapshot: Snapshot) -> object:
            nonlocal looks
            looks += 1
            return taken(snapshot)

        patch.setattr(Snapshot, "restore", restore)
        for _ in range(64):
            with guard.untouched(network):
                pass
        assert looks == 7
        network[0].register_forward_hook(lambda *_: None)
        with guard.untouched(network):
            pass
        assert looks == 8


def test_a_warning_names_several_modules_in_one_line() -> None:
    network = nn.Sequential(nn.Linear(4, 4), Counter(), nn.Linear(3, 4), Counter())
    message = re.escape("1 (Counter) changes itself in evaluation (n), and so does 3")
    with pytest.warns(UserWarning, match=message):
        evaluate(network, 3)
