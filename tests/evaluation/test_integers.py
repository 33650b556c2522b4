"""Inputs that are 8-bit numbers: what is taken for them, and a dense layer computed with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from engram import Evaluator
from engram.evaluation import half
from engram.evaluation.dense import Dense, dense_layers
from engram.evaluation.doubt import Margins
from engram.evaluation.half import half_scorer, worth_integers
from engram.evaluation.integers import MOST_INPUTS, IntegerLayer, as_integers, integers_work
from engram.evaluation.judge import Judge
from engram.evaluation.passes import Passes
from engram.evaluation.samples import Questions, TensorSet
from engram.evaluation.trial import kind_of

needs_integers = pytest.mark.skipif(
    not integers_work(), reason="needs a processor with instructions for 8-bit numbers (VNNI)"
)
SHAPE = (1, 8, 8)


def pixels(n: int = 400, *, levels: int = 256, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(levels, (n, *SHAPE), generator=draw)


def normalised(numbers: Tensor, mean: float = 0.286, std: float = 0.353) -> Tensor:
    return (numbers.float() / 255 - mean) / std


@pytest.mark.parametrize(("mean", "std"), [(0.286, 0.353), (0.0, 1.0), (0.5, 0.5), (-40.0, 0.1)])
@pytest.mark.parametrize("levels", [256, 17, 2])
def test_images_are_recognised_however_they_were_normalised(levels: int, mean: float, std: float) -> None:
    numbers = pixels(levels=levels)
    integers = as_integers(normalised(numbers, mean, std))
    assert integers is not None
    assert torch.equal(integers.values.int() + 128, numbers.flatten(1).int())
    back = integers.lattice.lowest + integers.lattice.step * (integers.values.double() + 128)
    assert torch.allclose(back, normalised(numbers, mean, std).flatten(1).double(), atol=1e-4)


def test_levels_need_not_begin_at_the_lowest_or_be_complete() -> None:
    numbers = torch.tensor([[7, 8, 200], [8, 7, 9]])
    integers = as_integers(normalised(numbers))
    assert integers is not None and (integers.values.int() + 128 + 7).equal(numbers.int())


def by_channel() -> Tensor:
    x = normalised(pixels().repeat(1, 2, 1, 1))
    x[:, 1] = normalised(pixels(seed=1)[:, 0], 0.4, 0.2)
    return x


def with_one(value: float) -> Tensor:
    x = normalised(pixels())
    x[-1, 0, -1, -1] = value
    return x


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(torch.randn(400, 64), id="any numbers"),
        pytest.param(by_channel(), id="channels of two kinds"),
        pytest.param(with_one(0.0123456), id="one value between two levels"),
        pytest.param(with_one(100.0), id="one value far away"),
        pytest.param(with_one(float("nan")), id="not a number"),
        pytest.param(with_one(float("inf")), id="infinite"),
        pytest.param(torch.zeros(400, 64), id="constant"),
        pytest.param(torch.zeros(0, 64), id="nothing"),
        pytest.param(normalised(pixels()).double(), id="64 bits"),
        pytest.param(torch.arange(257).repeat(4, 1).float(), id="257 levels"),
    ],
)
def test_anything_else_is_left_as_it_is(x: Tensor) -> None:
    assert as_integers(x) is None


@needs_integers
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_errs_by_half_a_step_of_its_weights_at_most(bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 50, bias=bias), normalised(pixels()).flatten(1)
    with torch.no_grad():
        layer.weight[3] = 0  # a unit without weights
        integers = as_integers(x)
        assert integers is not None
        errors = (IntegerLayer(layer).given(integers.lattice)(integers.values) - layer(x)).abs()
        steps = layer.weight.abs().amax(dim=1) / 127
        most = (x - x.min()).sum(dim=1)[:, None] * steps / 2
    assert bool((errors <= most + 1e-5).all())
    assert float(errors.max()) > 1e-4  # Weights are rounded.


@needs_integers
@pytest.mark.parametrize("bias", [True, False])
def test_what_follows_a_rectifier_is_rounded_sample_by_sample(bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = (
        nn.Linear(64, 50, bias=bias),
        torch.randn(400, 64).relu_() * torch.logspace(-6, 6, 400)[:, None],
    )
    x[7] = 0  # a sample without inputs
    with torch.no_grad():
        errors = (IntegerLayer(layer).of_positive(x.clone()) - layer(x)).abs()
        steps = layer.weight.abs().amax(dim=1) / 127
        by_weights = x.sum(dim=1)[:, None] * steps / 2
        rounded = layer.weight.abs() + steps[:, None] / 2
        by_inputs = x.amax(dim=1)[:, None] / 255 / 2 * rounded.sum(dim=1)
    most = by_weights + by_inputs
    assert bool((errors <= 1.001 * most + 1e-6).all())
    assert float(errors[7].max()) < 1e-6


@needs_integers
def test_sums_of_the_most_inputs_fit() -> None:
    layer = nn.Linear(MOST_INPUTS, 2, bias=False)
    x = torch.ones(32, MOST_INPUTS)
    x[:, 0] = 0
    with torch.no_grad():
        layer.weight[:] = torch.tensor([[1.0], [-1.0]])
        integers = as_integers(x)
        assert integers is not None
        outputs = IntegerLayer(layer).given(integers.lattice)(integers.values)
    assert torch.allclose(outputs, layer(x), rtol=1e-5)


def classes(*, mean: float = 0.286, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of ten classes, most of which can be told apart."""
    y = torch.arange(400) % 10
    return normalised((pixels(10, seed=9)[y] + pixels(seed=seed)) // 2, mean), y


def learned(network: nn.Module, x: Tensor, y: Tensor, *, updates: int) -> Iterator[None]:
    """Learn, and yield after every update."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(updates):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        yield


def perceptron(*widths: int) -> nn.Sequential:
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Flatten()]
    for size, width in zip((64, *widths), (*widths, 10), strict=True):
        layers += [nn.Linear(size, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@needs_integers
def test_they_are_used_where_they_are_worth_it() -> None:
    layers = dense_layers(perceptron(4096, 64))
    assert layers is not None
    enough = -(-half.WORTH_INTEGERS // (2 * 64 * 4096))
    assert worth_integers(layers, enough) and not worth_integers(layers, enough - 1)
    linear = [layers[0], Dense(layers[1].layer, rectified=False), layers[2]]
    assert not worth_integers(linear, enough)  # Its outputs may be negative.
    assert not worth_integers(dense_layers(perceptron()), 10**9)  # one layer: the last
    assert not worth_integers(None, 10**9)


@needs_integers
@pytest.mark.parametrize("widths", [(128, 64), (128,)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_bits_are_those_of_full_precision(
    widths: tuple[int, ...], shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half, "WORTH_INTEGERS", 0)
    forms: list[str] = []
    ask = Passes.half

    def noted(passes: Passes, *, integers: bool) -> Margins:
        lattice = passes.lattice if integers else None
        forms.append(half_scorer(passes.network, passes.dense, lattice).form)
        return ask(passes, integers=integers)

    monkeypatch.setattr(Passes, "half", noted)
    tasks = [classes(seed=seed) for seed in (0, 1)]
    full, checked = (
        Evaluator(tasks, tasks="all", shuffle=shuffle, precision=precision)
        for precision in ("full", "half-checked")
    )
    network = perceptron(*widths)
    for task, (x, y) in enumerate(tasks):
        for _ in learned(network, x, y, updates=8):
            for evaluator in (full, checked):
                evaluator(network, learning=task)
    assert checked.trace == full.trace
    record = checked.precision_record
    assert record is not None and record.evaluations == 16 and record.wrong == 0
    assert record.asked_again < record.answers / 3
    assert set(forms) == {"integers"}


@needs_integers
def test_inputs_that_are_no_such_numbers_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "WORTH_INTEGERS", 0)
    x, y = torch.randn(400, *SHAPE), torch.arange(400) % 10
    full, checked = (Evaluator([(x, y)], precision=precision) for precision in ("full", "half-checked"))
    network = perceptron(128)
    for evaluator in (full, checked):
        evaluator(network, learning=0)
    assert checked.trace == full.trace
    assert checked.precision_record is not None and checked.precision_record.evaluations == 1


@needs_integers
def test_where_they_leave_too_much_in_doubt_inputs_are_rounded_until_the_next_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One weight far above the others of its unit leaves few of the 8 bits to these."""
    monkeypatch.setattr(half, "WORTH_INTEGERS", 0)
    allowed: list[bool] = []
    ask = Passes.half

    def noted(passes: Passes, *, integers: bool) -> Margins:
        allowed.append(integers)
        return ask(passes, integers=integers)

    monkeypatch.setattr(Passes, "half", noted)
    x, y = classes(mean=0.0)
    x[:, 0, 0, 0] = 0.0
    network = perceptron(128)
    for _ in learned(network, x, y, updates=20):
        pass
    layers = dense_layers(network)
    assert layers is not None
    with torch.no_grad():
        layers[0].layer.weight[:, 0] = 100.0  # of an input that is always 0
    full, checked = (
        Evaluator([(x, y), (x, y)], precision=precision) for precision in ("full", "half-checked")
    )
    for task in (0, 0, 0, 1):
        for evaluator in (full, checked):
            evaluator(network, learning=task)
    assert checked.trace == full.trace
    assert allowed == [True, False, False, True]
    record = checked.precision_record
    assert record is not None and (record.evaluations, record.wrong) == (2, 0)


@needs_integers
def test_trials_with_them_are_remembered_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "WORTH_INTEGERS", 0)
    network, y = perceptron(128), torch.arange(400) % 10

    def kind(x: Tensor) -> str:
        questions = Questions([TensorSet(x, y)], [torch.arange(400)], [0], device="cpu", hold=True)
        return kind_of(Passes(network, questions, Judge([y]), [None], nullcontext), x)

    eight, others = kind(normalised(pixels())), kind(torch.randn(400, *SHAPE))
    assert eight == f"{others} of 8-bit numbers"


@needs_integers
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
def test_a_network_that_has_diverged_is_asked_in_full_precision(
    value: float, layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half, "WORTH_INTEGERS", 0)
    x, y = classes()
    network = perceptron(128, 64)
    for _ in learned(network, x, y, updates=8):
        pass
    layers = dense_layers(network)
    assert layers is not None
    with torch.no_grad():
        layers[layer].layer.weight[:, 5] = value
    full, checked = (Evaluator([(x, y)], precision=precision) for precision in ("full", "half-checked"))
    for _ in range(3):
        for evaluator in (full, checked):
            evaluator(network, learning=0)
    assert checked.trace == full.trace
    record = checked.precision_record
    assert record is not None and record.wrong == 0
