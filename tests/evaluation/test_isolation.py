"""Whatever a module does in evaluation, training is the same with and without it, to the bit."""

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.evaluation.changing import (
    BEHAVING,
    CHANGING,
    ClassCounter,
    Counter,
    LargeTensor,
    Layer,
    Make,
    Quiet,
    WrittenBuffer,
    WrittenParameter,
    everything,
    frozen_part,
)
from torch import Tensor, nn
from torch.nn import functional

from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.guard import Guard, untouched
from engram.evaluation.kshot import features_of
from engram.evaluation.restoring_tensors import same_bits
from engram.evaluation.samples import TensorSet
from engram.evaluation.settings import Settings
from engram.evaluation.snapshot import Snapshot

UPDATES = 5


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
        def _evaluate(self, model: object, *_: object, **__: object) -> bool:
            assert isinstance(model, nn.Module)
            model.eval()
            with torch.no_grad():
                model(torch.ones(3, 4))
            model.train()
            return True

    different = 0
    for make, _ in CHANGING.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "Evaluator", Careless)
            different += learned(make, watch=True) != learned(make, watch=False)
    assert different >= 33


class SetsTorch(Layer):
    """A module that changes PyTorch's settings in evaluation; in training they scale what it computes."""

    def scale(self) -> float:
        if not self.training:
            torch.set_num_threads(torch.get_num_threads() + 1)
            torch.set_default_dtype(torch.float64)
            torch.set_float32_matmul_precision("medium")
            torch.set_autocast_enabled("cpu", True)
            torch.use_deterministic_algorithms(True, warn_only=True)
        strict = torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
        loose = torch.get_num_threads(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")
        return 100 / sum(map(ord, repr((strict, loose))))


def test_settings_of_pytorch_are_restored_and_named() -> None:
    before = Settings()
    settings = "PyTorch's default dtype, .* threads, .* mode, .* matrix precision, .* autocast on the CPU"
    try:
        with pytest.warns(UserWarning, match=rf"SetsTorch changes itself in evaluation \({settings}\)"):
            watched = learned(SetsTorch, watch=True)
        assert not before.changed()
        assert watched == learned(SetsTorch, watch=False)
        SetsTorch().eval().scale()
        assert len(before.changed()) == 5
    finally:
        before.restore()
    assert not before.changed()


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


def spawned(seeds: np.random.SeedSequence) -> float:
    return float(np.random.default_rng(seeds.spawn(1)[0]).random())


@pytest.mark.parametrize(
    ("make", "advance"),
    [
        (itertools.count, next),
        (lambda: (1 / n for n in itertools.count(1)), next),
        (lambda: itertools.cycle((1.0, 0.5)), next),
        (lambda: iter([1.0, 0.5, 0.25]), next),
        (lambda: np.random.SeedSequence(3), spawned),
        (lambda: np.random.default_rng(3), lambda generator: generator.spawn(1)[0].random()),
    ],
    ids=["count", "generator", "cycle", "iterator", "seeds", "spawned generators"],
)
def test_what_cannot_be_restored_is_refused_with_the_name_of_the_module(
    make: Callable[[], object], advance: Callable[[object], float]
) -> None:
    class Advancing(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.source = make()

        def scale(self) -> float:
            return advance(self.source)

    network = nn.Sequential(OrderedDict(first=nn.Linear(4, 4), second=Advancing()))
    with pytest.raises(
        InputError, match=r"second \(Advancing\) changes .*, and its source cannot be"
    ) as error:
        evaluate(network, 1)
    assert "\n" not in str(error.value)


def test_what_a_hook_or_a_method_counts_elsewhere_is_left_alone() -> None:
    """A user's own record of what was evaluated is not part of the network."""
    seen: list[int] = []

    class Seeing(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.note = seen.append

        def forward(self, x: Tensor) -> Tensor:
            seen.append(1)
            self.note(1)
            return super().forward(x)

    network, replaced = nn.Sequential(nn.Linear(4, 3), nn.Identity(), Seeing()), Layer()
    network[0] = nn.Linear(4, 4)
    network[0].register_forward_hook(lambda *_: seen.append(1))
    forward = replaced.forward

    def see(x: Tensor) -> Tensor:
        seen.append(1)
        return forward(x)

    replaced.forward = see  # type: ignore[method-assign]
    evaluate(network, 3)
    evaluate(replaced, 3)
    assert len(seen) == 12


class OwnEvaluator(Evaluator):
    """An evaluator of the user's own."""


@pytest.mark.parametrize("kind", [Evaluator, OwnEvaluator])
def test_what_an_evaluator_records_is_kept_where_the_network_knows_the_evaluator(
    kind: type[Evaluator],
) -> None:
    class Trainer:
        def __init__(self, network: nn.Module) -> None:
            self.watch = kind([(torch.ones(5, 4), torch.zeros(5))], losses=True)
            self.trace = self.watch.trace
            vars(network)["trainer"] = self

    network, own = Layer(), kind([(torch.ones(5, 4), torch.zeros(5))], losses=True)
    vars(network)["watch"] = own
    for watch in (own, Trainer(network).watch):
        for _ in range(3):
            watch(network, learning=0)
        assert watch.trace.step == [1, 2, 3] and len(watch.readings) == 3


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


class ScriptedState(nn.Module):
    """Keeps state in every kind of attribute that TorchScript has."""

    seen: list[int]
    table: dict[str, float]
    kept: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.calls = 0
        self.word = "a\nb = c"
        self.seen = []
        self.table = {"mean": 0.0}
        self.kept = [torch.zeros(4)]
        self.last = torch.zeros(4)
        self.register_buffer("n", torch.zeros(()))
        self.n: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.word += "!"
        self.seen.append(self.calls)
        self.table["mean"] = float("nan")
        self.kept[0] += 1
        self.last = x[0]
        self.n = self.n + 1
        scores: Tensor = self.linear(x) * (
            1.0 + 0.1 * self.calls + self.n + self.kept[0].sum() + len(self.seen)
        )
        return scores


STATE = ("calls", "word", "seen", "table", "kept", "last", "n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_attributes_of_scripted_modules_are_restored() -> None:
    scripted = torch.jit.script(ScriptedState())
    scripted(torch.ones(2, 4))
    before = {name: str(getattr(scripted, name)) for name in STATE}
    with pytest.warns(UserWarning, match=r"RecursiveScriptModule.* changes itself in evaluation \(.*calls"):
        evaluate(nn.Sequential(scripted), 5)
    assert {name: str(getattr(scripted, name)) for name in STATE} == before
    scripted(torch.ones(2, 4))
    assert scripted.calls == 2 and scripted.seen == [1, 2] and float(scripted.n) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_that_changes_itself_is_trained_to_the_same_bits() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return torch.jit.script(ScriptedState())

    with pytest.warns(UserWarning, match="changes itself in evaluation"):
        watched = learned(make, watch=True)
    assert watched == learned(make, watch=False)


class Box:
    def __init__(self, n: int) -> None:
        self.n = n


class Boxed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.box = Box(1)

    def forward(self, x: Tensor) -> Tensor:
        self.box.n += 1
        scores: Tensor = self.linear(x) / self.box.n
        return scores


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_with_an_object_that_cannot_be_copied_is_refused() -> None:
    torch.jit.script(Box)
    network = nn.Sequential(torch.jit.script(Boxed()))
    with pytest.raises(
        InputError, match=r"^0 \(RecursiveScriptModule\) is scripted, and its box is an object"
    ) as error:
        evaluate(network, 1)
    assert "\n" not in str(error.value)


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
