"""Modules that change themselves in evaluation, in every way that we know of, and some that do not."""

import logging
import queue
import random
import threading
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from io import BytesIO
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import MagicMock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

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


class WrittenWithGradient(TensorAttribute):
    """Writes what it learns into a tensor, with its graph."""

    def scale(self) -> Tensor:
        if not self.training:
            with torch.enable_grad():
                self.mean.add_(self.linear.bias)
        return 1 + self.mean.detach()


class WrittenConjugate(Layer):
    """A tensor that is a conjugate view, in its other parts."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = torch.ones(3, dtype=torch.complex128).conj()
        self.parts = self.phases.imag

    def scale(self) -> Tensor:
        self.phases.mul_(0.5 + 0.5j)
        return self.phases.abs().float() + self.parts.float()


class WrittenBehindExpanded(Layer):
    def __init__(self) -> None:
        super().__init__()
        one = torch.ones(1)
        self.wide, self.one = one.expand(3), one

    def scale(self) -> Tensor:
        self.one.mul_(0.5)
        return self.wide.clone()


class TransposedInPlace(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.square = torch.arange(9.0).reshape(3, 3)

    def scale(self) -> Tensor:
        return self.square.t_()[0].clone()


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
    __slots__ = ("n", "other")

    def __init__(self, other: object = None) -> None:
        self.n, self.other = 0, other


class SlottedAndOpen(Slotted):
    """It has an answer to every name."""

    __slots__ = ("unset",)

    def __getattr__(self, name: str) -> object:
        return object()


class ObjectWithSlots(Layer):
    def __init__(self, kind: type[Slotted] = Slotted) -> None:
        super().__init__()
        self.state = kind()

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


class ListOfHooks(Layer):
    """Has a list of its own with a name like those of PyTorch's hooks."""

    def __init__(self) -> None:
        super().__init__()
        self._my_hooks: list[object] = [self.linear.register_forward_hook(lambda *_: None)]

    def scale(self) -> float:
        self._my_hooks.append(1)
        return 1 / len(self._my_hooks)


class OwnDropout(Layer):
    """Drops values also in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(super().forward(x), 0.5, training=True)


class Calls(Layer):
    """Asks a function that it holds, or an object that counts in a way of its own."""

    def __init__(self, calls: Callable[[], float]) -> None:
        super().__init__()
        self.calls = calls

    def scale(self) -> float:
        return 1 / (1 + self.calls())


def closure() -> nn.Module:
    seen: list[int] = []

    def count() -> int:
        seen.append(1)
        return len(seen)

    return Calls(count)


def assigned_variable() -> nn.Module:
    calls = 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    return Calls(count)


def attribute_of_a_function() -> nn.Module:
    def count() -> int:
        memory["calls"] = memory.get("calls", 0) + 1
        return int(memory["calls"])

    memory = vars(count)
    return Calls(count)


def partial_function() -> nn.Module:
    def count(seen: list[int]) -> int:
        seen.append(1)
        return len(seen)

    return Calls(partial(count, []))


def default_value() -> nn.Module:
    class Defaulted(Layer):
        def scale(self, seen: list[int] = []) -> float:  # noqa: B006
            seen.append(1)
            return 1 / len(seen)

    return Defaulted()


def file_in_memory() -> nn.Module:
    class Written(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.file = BytesIO()

        def scale(self) -> float:
            self.file.write(b".")
            return 1 / self.file.tell()

    return Written()


def local_to_a_thread() -> nn.Module:
    class Threaded(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.local = threading.local()
            self.local.n = 0

        def scale(self) -> float:
            self.local.n += 1
            return float(1 / self.local.n)

    return Threaded()


class Sobol(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.draws = torch.quasirandom.SobolEngine(1, scramble=True, seed=3)

    def scale(self) -> Tensor:
        drawn: Tensor = self.draws.draw(1)
        return 1 + drawn


class Oldest(Layer):
    """Takes the oldest entry, and makes it the newest, as caches do."""

    def __init__(self, kind: type[dict[int, float]]) -> None:
        super().__init__()
        self.entries = kind({n: float(n) for n in range(1, 5)})

    def scale(self) -> float:
        key = next(iter(self.entries))
        if isinstance(self.entries, OrderedDict):
            self.entries.move_to_end(key)
        else:
            self.entries[key] = self.entries.pop(key)
        return 1 / key


class WeightWithAttributes(Layer):
    def scale(self) -> float:
        weight = self.linear.weight
        vars(weight)["calls"] = vars(weight).get("calls", 0) + 1
        return float(1 / vars(weight)["calls"])


class HooksOfWeights(Layer):
    """Registers hooks that shrink gradients."""

    def scale(self) -> float:
        self.linear.weight.register_hook(lambda gradient: 0.9 * gradient)
        self.linear.bias.register_post_accumulate_grad_hook(self.shrink)
        return 1.0

    @staticmethod
    def shrink(weight: Tensor) -> None:
        assert weight.grad is not None
        weight.grad *= 0.9


class RemovesHooks(Layer):
    """Shrinks gradients, one weight fewer after every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.handles = [weight.register_hook(lambda gradient: 0.9 * gradient) for weight in self.parameters()]

    def scale(self) -> float:
        if self.handles:
            self.handles.pop().remove()
        return 1.0


class Adapting(Layer):
    """Adapts itself to its inputs, with an optimizer and a schedule of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            answers = super().forward(x.detach()).softmax(1)
            entropy = -(answers * answers.log()).sum(1).mean()
        self.optimizer.zero_grad()
        entropy.backward()
        self.optimizer.step()
        self.schedule.step()
        return super().forward(x)


class Object:
    """An object that counts, in itself or in its class."""

    kept = 0

    def count(self) -> int:
        self.kept += 1
        return self.kept

    @classmethod
    def count_all(cls) -> int:
        cls.kept += 1
        return cls.kept


def in_the_class_of_an_object() -> nn.Module:
    class Counted(Object):
        kept = 0

    class Holds(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.held = Counted()

        def scale(self) -> float:
            return 1 / self.held.count_all()

    return Holds()


def held(hold: Callable[[Object], object]) -> nn.Module:
    """A module that holds an object somewhere."""
    counted = Object()

    class Holds(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.held = hold(counted)

        def scale(self) -> float:
            return 1 / counted.count()

    return Holds()


def deeply(value: object) -> object:
    return {"outer": [{"inner": ({"list": [[value]]},)}]}


def in_an_array(value: object) -> object:
    array = np.empty(2, dtype=[("n", "i4"), ("object", "O")])
    array["object"] = value
    return array


class Queued(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.Queue[int] = queue.Queue()

    def scale(self) -> float:
        self.queue.put(1)
        return 1 / self.queue.qsize()


class WeaklyKeyed(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()

    def scale(self) -> float:
        self.calls[self.linear] = self.calls.get(self.linear, 0) + 1
        return 1 / self.calls[self.linear]


OTHERS: list[Object] = []


class Referring(Layer):
    """A module that refers to an object of others without keeping it alive."""

    def __init__(self, *, proxy: bool = False) -> None:
        super().__init__()
        OTHERS[:] = [Object()]
        self.other = (weakref.proxy if proxy else weakref.ref)(OTHERS[0])

    def scale(self) -> float:
        other = self.other() if isinstance(self.other, weakref.ref) else self.other
        return 1.0 if other is None else 1 / other.count()


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
    "tensor written with its graph": (WrittenWithGradient, "WrittenWithGradient .*mean"),
    "conjugate tensor": (WrittenConjugate, "WrittenConjugate .*phases"),
    "memory of an expanded tensor": (WrittenBehindExpanded, "WrittenBehindExpanded .*wide"),
    "tensor transposed in place": (TransposedInPlace, "TransposedInPlace .*square"),
    "large tensor attribute": (LargeTensor, "LargeTensor .*table"),
    "containers and objects": (Nested, "Nested .*kept, pair, other"),
    "object with slots": (ObjectWithSlots, "ObjectWithSlots .*state"),
    "object with slots and any attribute": (
        lambda: ObjectWithSlots(SlottedAndOpen),
        "ObjectWithSlots .*state",
    ),
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
    "list of hooks": (ListOfHooks, "ListOfHooks .*_my_hooks"),
    "shared module": (shared, r"1 \(Counter\) .*n"),
    "frozen part": (frozen_part, r"2 \(Counter\) .*n"),
    "closure": (closure, "Calls .*calls"),
    "variable that a function assigns": (assigned_variable, "Calls .*calls"),
    "attribute of a function": (attribute_of_a_function, "Calls .*calls"),
    "partial function": (partial_function, "Calls .*calls"),
    "default value": (default_value, "Defaulted .*scale"),
    "file in memory": (file_in_memory, "Written .*file"),
    "local to a thread": (local_to_a_thread, "Threaded .*local"),
    "quasirandom numbers": (Sobol, "Sobol .*draws"),
    "order of a dictionary": (lambda: Oldest(dict), "Oldest .*entries"),
    "order of an ordered dictionary": (lambda: Oldest(OrderedDict), "Oldest .*entries"),
    "attributes of a weight": (WeightWithAttributes, r"linear \(Linear\) .*weight"),
    "hooks of weights": (HooksOfWeights, r"linear \(Linear\) .*weight, bias"),
    "removed hooks of weights": (RemovesHooks, r"linear \(Linear\) .*bias.* RemovesHooks"),
    "optimizer and schedule": (Adapting, r"Adapting: they are"),
    "counter in the class of an object": (in_the_class_of_an_object, "Holds .*kept"),
    "object as a key": (lambda: held(lambda item: {item: 1}), "Holds .*held"),
    "object in a frozen set": (lambda: held(lambda item: frozenset([item])), "Holds .*held"),
    "object in an array": (lambda: held(in_an_array), "Holds .*held"),
    "object deep inside": (lambda: held(deeply), "Holds .*held"),
    "queue": (Queued, "Queued .*queue"),
    "dictionary with weak keys": (WeaklyKeyed, "WeaklyKeyed .*calls"),
    "weak reference": (Referring, "Referring .*other"),
    "weak proxy": (lambda: Referring(proxy=True), "Referring .*other"),
    "old spectral norm": (old_spectral_norm, r"0 \(Linear\) .*weight"),
}


class Quiet(Layer):
    """A user's own module that behaves."""


class Options(dict[str, int]):
    __slots__ = ()
    __getattr__ = dict.__getitem__


class Strict:
    __slots__ = ("unset",)

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


class OwnLogger(logging.Logger):
    pass


class Odd(Layer):
    """It holds all kinds of objects, and changes none."""

    def __init__(self) -> None:
        super().__init__()
        self.log = OwnLogger("odd")
        self.objects = [Options(n=1), Strict(), type("Made", (), {"__module__": None})(), MagicMock(Layer)]
        self.gone = Slotted(weakref.proxy(Object()))
        nan = torch.full((2,), torch.nan, dtype=torch.complex128)
        self.tensors = [nan, nan.conj(), nan.conj().imag]

    def scale(self) -> float:
        self.log.debug("scaled")
        return float(self.objects[0].n)


def parametrized(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(norm(nn.Linear(4, 4)), nn.Linear(4, 3))


BEHAVING: dict[str, Make] = {
    "own module": Quiet,
    "odd objects": Odd,
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
        return (
            value.detach().resolve_conj().resolve_neg().numpy().tobytes(),
            value.requires_grad,
            value.is_inference(),
        )
    if isinstance(value, dict):
        # What is printed of other keys, such as weights and objects, has their address or takes long.
        keys = (str(key) if isinstance(key, str | int) else type(key).__name__ for key in value)
        return list(zip(keys, map(plain, value.values()), strict=True))
    if isinstance(value, list | tuple | deque | set):
        return [plain(item) for item in value]
    if isinstance(value, SimpleNamespace):
        return plain(vars(value))
    if isinstance(value, torch.Generator):
        return plain(value.get_state())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.ndarray):
        return value.dtype.str if value.dtype.hasobject else value.tobytes()
    if isinstance(value, random.Random):
        return value.getstate()
    return value if isinstance(value, int | float | str | bytearray | bool | None) else type(value).__name__
