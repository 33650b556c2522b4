"""A scenario with its data: which samples, which labels, which units compete."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engram.core.errors import InputError
from engram.datasets import arrays
from engram.datasets.stream import Stream
from engram.datasets.transforms import pixel_order, prepare, prepared_shape
from engram.scenarios import joint, permuted, slt, split
from engram.scenarios.values import (
    ClassSetting,
    Colour,
    Grey,
    Normalise,
    Pad,
    Permute,
    Resize,
    Rotate,
    Transform,
)


def ramp(channels: int = 1, side: int = 4) -> torch.Tensor:
    return torch.arange(channels * side * side, dtype=torch.uint8).view(1, channels, side, side) * 3


def test_bytes_become_fractions() -> None:
    assert torch.equal(prepare(ramp(), []), ramp().float() / 255)


def test_padding_then_normalising_gives_the_border_of_002() -> None:
    prepared = prepare(ramp(), [Pad(2), Normalise((0.1,), (0.2752,))])
    assert prepared.shape == (1, 1, 8, 8)
    assert float(prepared[0, 0, 0, 0]) == pytest.approx(-0.363372, abs=1e-6)


def test_permutation_is_a_reordering_that_depends_on_its_seed() -> None:
    x = ramp()
    one, two = prepare(x, [Permute(1)]), prepare(x, [Permute(2)])
    assert sorted(one.flatten().tolist()) == sorted(prepare(x, []).flatten().tolist())
    assert not torch.equal(one, two) and torch.equal(one, prepare(x, [Permute(1)]))
    assert torch.equal(one.flatten(), prepare(x, []).flatten()[pixel_order(1, 16)])


def test_rotation_is_counter_clockwise() -> None:
    x = torch.zeros(1, 1, 3, 3, dtype=torch.uint8)
    x[0, 0, 0, 2] = 255
    turned = prepare(x, [Rotate(90)])[0, 0]
    assert turned.nonzero().tolist() == [[0, 0]]
    assert torch.equal(prepare(x, [Rotate(0)]), prepare(x, []))


def test_colour_grey_and_size() -> None:
    assert prepare(ramp(), [Colour()]).shape == (1, 3, 4, 4)
    grey = prepare(ramp(3), [Grey()])
    luma = (ramp(3).float() * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    assert torch.allclose(grey, luma.round() / 255)
    assert prepared_shape((3, 32, 32), [Grey(), Resize(28)]) == (1, 28, 28)


def test_normalising_needs_matching_channels() -> None:
    with pytest.raises(InputError, match="one per channel \\(3\\), got 2 and 1"):
        prepare(ramp(3), [Normalise((0.1, 0.2), (1.0,))])


def test_flat_samples_can_be_permuted_but_not_padded() -> None:
    assert prepare(torch.ones(2, 5), [Permute(0)]).shape == (2, 5)
    with pytest.raises(InputError, match="pad needs images"):
        prepare(torch.ones(2, 5), [Pad(1)])


@pytest.mark.parametrize("setting", ["task", "domain", "class"])
def test_labels_heads_and_units(setting: str) -> None:
    scenario = split("digits", setting=setting)  # type: ignore[arg-type]
    stream = Stream(scenario)
    phase = stream.phase(1)
    batch = next(phase.batches(torch.arange(len(phase)), 16))
    expected = {"task": {2, 3}, "domain": {0, 1}, "class": {2, 3}}[setting]
    assert set(phase.y.tolist()) == expected
    heads = {"task": ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)), "domain": ((0, 1),), "class": ((0, 1, 2, 3),)}
    assert batch.heads == heads[setting]
    assert batch.head == (1 if setting == "task" else 0)


def test_known_classes_all_compete() -> None:
    scenario = split("digits", setting=ClassSetting(classes_known=True))
    assert Stream(scenario).phase(0).heads == (tuple(range(10)),)


def test_every_sample_comes_once() -> None:
    phase = Stream(split("digits", setting="class")).phase(0)
    order = torch.randperm(len(phase))
    batches = list(phase.batches(order, 50))
    assert sum(len(batch) for batch in batches) == len(phase)
    x = torch.cat([batch.x for batch in batches])
    whole = next(phase.batches(torch.arange(len(phase)), len(phase)))
    assert torch.equal(x, whole.x[order])


def test_joint_training_in_the_task_setting_has_one_head_a_sample() -> None:
    phase = Stream(joint(split("digits", setting="task"))).phase(0)
    batch = next(phase.batches(torch.arange(len(phase)), len(phase)))
    assert isinstance(batch.head, torch.Tensor)
    assert torch.equal(batch.head, batch.y // 2)


def test_samples_too_large_to_hold_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for scenario in (
        joint(permuted("digits", 2, setting="domain", seed=0)),
        split("digits", setting="class"),
    ):
        held = Stream(scenario).phase(0)
        monkeypatch.setattr("engram.datasets.stream.HELD_BYTES", 0)
        read = Stream(scenario).phase(0)
        monkeypatch.undo()
        order = torch.randperm(len(held))
        for one, two in zip(held.batches(order, 64), read.batches(order, 64), strict=True):
            assert torch.equal(one.x, two.x) and torch.equal(one.y, two.y)


def test_tasks_of_different_shapes_are_refused() -> None:
    from engram.scenarios.values import DomainSetting, Scenario, Source, Task

    flat = arrays(
        "flat", torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]), torch.zeros(2, 3), torch.tensor([0, 1])
    )
    wide = arrays(
        "wide", torch.zeros(4, 5), torch.tensor([0, 1, 0, 1]), torch.zeros(2, 5), torch.tensor([0, 1])
    )
    tasks = tuple(Task(Source(name, (0, 1)), (0, 1)) for name in (flat, wide))
    with pytest.raises(InputError, match="different shapes"):
        Stream(Scenario("mixed", tasks, DomainSetting()))


def test_unused_training_samples_are_neither_learned_nor_held_out() -> None:
    whole = split("digits", 5, setting="class")
    cut = replace(
        whole, tasks=tuple(replace(task, source=replace(task.source, unused=100)) for task in whole.tasks)
    )
    before, after = Stream(whole), Stream(cut)
    assert sum(len(before.train(task)) - len(after.train(task)) for task in (0, 1)) == 100
    assert [int(after.train(task).index.min()) >= 100 for task in (0, 1)] == [True, True]
    assert [len(after.test(task)) for task in (0, 1)] == [len(before.test(task)) for task in (0, 1)]
    halves = Stream(replace(cut, held_out=0.5))
    assert int(halves.validation(0).index.min()) >= 100


def test_mnist_of_004_is_what_its_table_counts(real_data: Path) -> None:
    stream = Stream(slt("DP10-10", "mnist"), real_data)
    counts = torch.bincount(stream.train(0).y)
    assert (int(counts.sum()), int(counts.max()), int(counts.min())) == (55000, 6179, 4987)
    assert len(stream.test(0)) == 10000


NORMALISED = Normalise((0.3,), (0.25,))


@pytest.mark.parametrize("transforms", [(), (NORMALISED,), (Pad(1), NORMALISED), (Permute(3),)])
def test_batches_are_the_prepared_samples_to_the_bit(transforms: tuple[Transform, ...]) -> None:
    stream = Stream(split("digits", setting="class", transforms=transforms))
    whole = stream.train(1).prepared(torch.arange(len(stream.train(1))))
    data = stream.phase(1)
    for number in range(3):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(number))
        assert torch.equal(torch.cat([batch.x for batch in data.batches(order, 16)]), whole[order])
    in_order = list(data.in_order(16))
    assert torch.equal(torch.cat([batch.x for batch in in_order]), whole)
    # What a method does to a batch must not reach the data.
    for batch in in_order:
        batch.x.zero_()
    assert torch.equal(torch.cat([batch.x for batch in data.in_order(16)]), whole)


def test_tasks_learned_together_are_scaled_each_in_its_own_way() -> None:
    scenario = split("digits", setting="class", transforms=(NORMALISED,))
    tasks = tuple(
        replace(task, transforms=(Normalise((0.1 * number,), (0.5,)),) if number else task.transforms)
        for number, task in enumerate(scenario.tasks)
    )
    for mixed in (joint(scenario), joint(replace(scenario, tasks=tasks))):
        stream = Stream(mixed)
        parts = [stream.train(task) for task in mixed.phases[0]]
        whole = torch.cat([part.prepared(torch.arange(len(part))) for part in parts])
        assert torch.equal(torch.cat([batch.x for batch in stream.phase(0).in_order(64)]), whole)
