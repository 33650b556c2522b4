"""Images that are cropped and mirrored at random whenever they are learned."""

import io
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from tests.drained import drained, learned, saved
from torch import nn

from engram.core.errors import InputError
from engram.datasets import arrays
from engram.datasets.stream import Stream
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.recipe import experiment
from engram.methods.augment import crop_and_flip
from engram.methods.er import ER
from engram.models.network import Network
from engram.record.experiment import Experiment
from engram.scenarios import split
from engram.scenarios.values import Normalise


def planned(method: str = "er", **changes: object) -> Experiment:
    plain = experiment("split-digits", method, updates=6, augment=True, evaluation={"every": 3})
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_crops_and_flips_are_windows_on_the_padded_image() -> None:
    """Every result is one of the 81 windows or its mirror image; both kinds and many places come up."""
    x = torch.rand(300, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    windows = crop_and_flip(x, torch.Generator().manual_seed(1), margin=4)
    assert windows.shape == x.shape
    padded = nn.functional.pad(x, (4, 4, 4, 4))
    seen: Counter[tuple[int, int, bool]] = Counter()
    for image, changed in zip(padded, windows, strict=True):
        matches = [
            (down, across, mirrored)
            for down in range(9)
            for across in range(9)
            for mirrored, dims in ((False, ()), (True, (2,)))
            if torch.equal(image[:, down : down + 6, across : across + 5].flip(dims), changed)
        ]
        assert matches
        seen[matches[0]] += 1
    assert {place[0] for place in seen} == {place[1] for place in seen} == set(range(9))
    assert 100 < sum(count for place, count in seen.items() if place[2]) < 200


def test_crops_are_padded_with_black() -> None:
    """A border of black in every channel, which is not 0 where images are normalised."""
    x = torch.full((200, 2, 4, 4), 7.0)
    black = torch.tensor([[-2.0, 0.5]])
    shown = crop_and_flip(x, torch.Generator().manual_seed(0), margin=2, black=black)
    assert set(shown[:, 0].unique().tolist()) == {-2.0, 7.0}
    assert set(shown[:, 1].unique().tolist()) == {0.5, 7.0}
    own = torch.arange(200.0)[:, None].expand(-1, 2) - 1000
    shown = crop_and_flip(x, torch.Generator().manual_seed(0), margin=2, black=own)
    assert all(set(image.unique().tolist()) <= {place - 1000.0, 7.0} for place, image in enumerate(shown))


@pytest.mark.parametrize("method", ["er", "gdumb"])
def test_the_padding_of_a_run_is_the_black_of_its_images(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Normalised as (value − .5) / .25, black is −2: no pixel that is learned has the mean colour 0."""
    draw = np.random.default_rng(0)
    x = draw.choice(np.array([0, 255], np.uint8), size=(24, 8, 8))
    y = np.arange(24) % 4
    normalised = split(
        arrays("spots", x, y, x, y), 2, setting="class", transforms=(Normalise((0.5,), (0.25,)),)
    )
    settings = {"augment": True, "epochs": 1} if method == "gdumb" else {}
    plan = Experiment(normalised, method, settings=settings, augment=method != "gdumb", batch_size=8)
    seen: set[float] = set()
    forward = Network.forward

    def noting(self: Network, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            seen.update(x.unique().tolist())
        return forward(self, x)

    monkeypatch.setattr(Network, "forward", noting)
    run(plan)
    assert seen == {-2.0, 2.0}


def test_tasks_that_are_normalised_differently_have_their_own_black() -> None:
    one, two = (
        split("digits", 5, setting="class", transforms=(Normalise((m,), (0.5,)),)) for m in (0.5, 0.25)
    )
    mixed = replace(one, tasks=(one.tasks[0], two.tasks[1]))
    assert Stream(mixed).black() == ((-1.0,),) * 5 + ((-0.5,),) * 5
    shared = replace(mixed, tasks=tuple(replace(task, units=(0, 1, 2, 3, 4)) for task in mixed.tasks))
    with pytest.raises(InputError, match="normalise their images differently"):
        Stream(shared).black()


def test_the_margin_is_an_eighth_of_the_height() -> None:
    x = torch.arange(1.0, 257).view(1, 1, 16, 16)
    default, same = (crop_and_flip(x, torch.Generator().manual_seed(3), margin=size) for size in (None, 2))
    assert torch.equal(default, same) and not torch.equal(default, x)


def test_learning_is_changed_and_what_is_remembered_is_not() -> None:
    plain, changed = learned(planned(augment=False)), learned(planned())
    assert weights_digest(plain) != weights_digest(changed)
    kept = []
    for method in (plain, changed):
        assert isinstance(method, ER)
        kept.append(method.store.samples.batch(torch.arange(50), ((0,),)).x)
    assert torch.equal(*kept)


@pytest.mark.parametrize(
    "method", ["finetune", "er", "a-gem", "gem", "fomaml", "der++", "multitask", "icarl"]
)
def test_hardly_anything_is_learned_as_it_came(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 18 ways to move and mirror an image one leaves it alone; some digits have empty margins."""
    stream = Stream(experiment("split-digits", method).scenario)
    phases = [stream.phase(number) for number in range(5)]
    known = {row.numpy().tobytes() for phase in phases for batch in phase.in_order(500) for row in batch.x}
    shown: list[bool] = []
    forward = Network.forward

    def noting(self: Network, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            shown.extend(row.detach().numpy().tobytes() in known for row in x)
        return forward(self, x)

    monkeypatch.setattr(Network, "forward", noting)
    run(planned(method))
    assert len(shown) > 100 and sum(shown) < 0.3 * len(shown), (sum(shown), len(shown))


def test_passes_are_drawn_anew() -> None:
    x = torch.rand(20, 1, 8, 8)
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(crop_and_flip(x, generator), crop_and_flip(x, generator))


def test_a_run_resumes_to_the_same_bits() -> None:
    whole, last = drained(planned())
    *_, step = islice(run_steps(planned()), 13)
    file = io.BytesIO()
    torch.save(saved(step), file)
    file.seek(0)
    resumed, end = drained(planned(), resume=torch.load(file, weights_only=True))
    assert last.method is not None and end.method is not None
    assert weights_digest(end.method) == weights_digest(last.method)
    assert resumed.trace == whole.trace


def test_ids_of_runs_without_are_as_before() -> None:
    assert "augment" not in planned(augment=False).as_json() and planned().as_json()["augment"] is True


def test_papers_that_change_images() -> None:
    assert experiment("split-cifar10-003", "finetune").augment
    assert not experiment("split-cifar10-003", "finetune", augment=False).augment
    assert not experiment("split-cifar10-003", "gdumb").augment
    assert [experiment("split-cifar100", name).augment for name in ("er", "finetune", "gdumb")] == [
        True,
        False,
        False,
    ]
    assert not experiment("split-cifar10", "er").augment


def test_a_method_of_another_kind_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a benchmark whose images are changed it runs as it is, and is refused only if somebody asks."""
    monkeypatch.setattr("engram.engine.recipe.augments_itself", lambda _: False)
    assert not experiment("split-cifar10-003", "gdumb").augment
    with pytest.raises(InputError, match="gdumb does not support augmented images"):
        experiment("split-cifar10-003", "gdumb", augment=True)


def test_what_cannot_be_changed_is_refused() -> None:
    with pytest.raises(InputError, match="gdumb does not support augmented images"):
        run(replace(experiment("split-digits", "gdumb"), augment=True))
    for augment in (True, False):
        assert experiment("split-cifar100", "gdumb", augment=augment).settings["augment"] is augment
    with pytest.raises(InputError, match="permutes pixels"):
        experiment("permuted-mnist", "er", augment=True)
    draw = np.random.default_rng(0)
    name = arrays(
        "vectors", draw.normal(size=(8, 3)), np.arange(8) % 4, draw.normal(size=(8, 3)), np.arange(8) % 4
    )
    with pytest.raises(InputError, match="has no images to crop"):
        run(Experiment(split(name, 2, setting="class", transforms=()), "finetune", augment=True))
