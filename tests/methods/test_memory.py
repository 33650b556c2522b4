"""Memories hold what they promise: sizes, balance, uniform chances, content."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from engram.core.values import Batch
from engram.methods.memory import (
    ClassBalanced,
    CodedSamples,
    Greedy,
    Latest,
    PerClass,
    Reservoir,
    Samples,
    Sections,
    Turns,
    choose,
    gather,
    join,
    pool,
    select,
)

HEADS = ((0, 1, 2, 3),)


def numbered(y: list[int], *, start: int = 0, head: int | Tensor = 0) -> Batch:
    """Samples whose input is their number in the stream, so that one can tell which are held."""
    x = torch.arange(start, start + len(y), dtype=torch.float32)[:, None]
    return Batch(x, torch.tensor(y), heads=HEADS, head=head)


def numbers(samples: Samples) -> list[int]:
    assert samples.x is not None
    return [int(value) for value in samples.x.flatten()]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("sizes", [(12,), (5, 1, 2, 4), (1,) * 12])
def test_reservoir_is_a_uniform_sample_of_the_stream(sizes: tuple[int, ...]) -> None:
    held: Counter[int] = Counter()
    generator = seeded()
    for _ in range(1200):
        memory, start = Reservoir(3, generator), 0
        for size in sizes:
            memory.add(numbered([0] * size, start=start))
            start += size
        assert len(set(numbers(memory.samples))) == 3
        held.update(numbers(memory.samples))
    counts = [held[number] for number in range(12)]
    assert sum(counts) == 3600
    # Draws without replacement vary less than the test assumes, so a p-value near 0 means a real difference.
    assert chisquare(counts).pvalue > 0.001


def test_reservoir_says_what_it_stored_where() -> None:
    memory, generator = Reservoir(4, seeded()), seeded(1)
    mirror: dict[int, int] = {}
    for start in range(0, 60, 6):
        batch = numbered(torch.randint(4, (6,), generator=generator).tolist(), start=start)
        mirror |= {place: start + row for place, row in memory.add(batch).items()}
    assert numbers(memory.samples) == [mirror[place] for place in range(4)]


def test_reservoir_draws_different_samples_uniformly() -> None:
    memory = Reservoir(6, seeded())
    memory.add(numbered([0] * 6))
    drawn = Counter(i for _ in range(1000) for i in memory.sample(3, HEADS).x.flatten().int().tolist())
    assert sum(drawn.values()) == 3000
    assert chisquare([drawn[number] for number in range(6)]).pvalue > 0.001
    assert len(memory.sample(100, HEADS)) == 6


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    capacity=st.integers(1, 20),
    size=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_class_balanced_memory_gives_equal_shares(labels: list[int], capacity: int, size: int) -> None:
    memory = ClassBalanced(capacity, seeded())
    memory.fill(Batch(x, y, heads=HEADS) for x, y in _pieces(labels, size))
    counts, seen = Counter(memory.samples.y.tolist()), Counter(labels)
    share, rest = divmod(capacity, len(seen))
    for position, name in enumerate(sorted(seen)):
        assert counts[name] == min(share + (position < rest), seen[name])
    assert len(set(numbers(memory.samples))) == len(memory)
    assert all(
        labels[number] == name
        for number, name in zip(numbers(memory.samples), memory.samples.y.tolist(), strict=True)
    )


def _pieces(labels: list[int], size: int) -> list[tuple[Tensor, Tensor]]:
    whole = numbered(labels)
    return list(zip(whole.x.split(size), whole.y.split(size), strict=True))


def test_class_balanced_memory_stays_a_uniform_sample_when_shares_shrink() -> None:
    held: Counter[int] = Counter()
    generator = seeded()
    for _ in range(1000):
        memory = ClassBalanced(6, generator)
        memory.fill([numbered([0] * 10), numbered([0] * 2, start=10)])
        memory.fill([numbered([1] * 8, start=12)])
        held.update(numbers(memory.samples))
    assert chisquare([held[number] for number in range(12)]).pvalue > 0.001
    assert sum(held[number] for number in range(12)) == 3000


def test_class_balanced_memory_draws_classes_equally_until_they_are_exhausted() -> None:
    memory = ClassBalanced(20, seeded())
    memory.fill([numbered([0] * 18 + [1] * 2 + [2])])
    drawn = [Counter(memory.sample(4, HEADS).y.tolist()) for _ in range(300)]
    first = Counter(int(memory.sample(1, HEADS).y) for _ in range(1000))
    assert chisquare([first[name] for name in range(3)]).pvalue > 0.001
    assert all(counts[1] <= 2 and counts[2] <= 1 and counts.total() == 4 for counts in drawn)
    assert Counter(memory.sample(99, HEADS).y.tolist()) == Counter(memory.samples.y.tolist())


def test_per_class_memory_keeps_its_share_of_every_class_of_every_task() -> None:
    memory = PerClass(3, seeded())
    memory.fill([numbered([0] * 9 + [1]), numbered([1] * 5, start=10)])
    before = numbers(memory.samples)
    memory.fill([numbered([1] * 7 + [2] * 2, start=15)])
    assert Counter(memory.samples.y.tolist()) == {0: 3, 1: 6, 2: 2}
    assert numbers(memory.samples)[:6] == before


def test_latest_is_a_ring_for_each_class() -> None:
    memory = Latest(2)
    for start, labels in ((0, [0, 1, 0]), (3, [0]), (4, [2, 0, 1])):
        memory.add(numbered(labels, start=start))
    assert sorted(numbers(memory.samples)) == [1, 3, 4, 5, 6]


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=80),
    capacity=st.integers(1, 12),
    size=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_greedy_memory_is_as_balanced_as_the_stream_allows(
    labels: list[int], capacity: int, size: int
) -> None:
    memory = Greedy(capacity, seeded())
    for x, y in _pieces(labels, size):
        memory.add(Batch(x, y, heads=HEADS))
    counts, seen = Counter(memory.samples.y.tolist()), Counter(labels)
    quota = capacity / len(seen)
    assert len(memory) <= capacity
    assert len(set(numbers(memory.samples))) == len(memory)
    assert all(
        labels[n] == name for n, name in zip(numbers(memory.samples), memory.samples.y.tolist(), strict=True)
    )
    if max(seen.values()) <= quota:
        assert counts == seen
    # A class is above its quota only if no other class needed the place.
    if any(count >= quota + 1 for count in counts.values()):
        assert all(counts[name] == seen[name] or counts[name] >= quota for name in seen)


def test_greedy_memory_evicts_from_the_largest_class() -> None:
    memory = Greedy(6, seeded())
    memory.add(numbered([0] * 20))
    assert Counter(memory.samples.y.tolist()) == {0: 6}
    memory.add(numbered([1] * 20, start=20))
    assert Counter(memory.samples.y.tolist()) == {0: 3, 1: 3}
    memory.add(numbered([2] * 20, start=40))
    assert Counter(memory.samples.y.tolist()) == {0: 2, 1: 2, 2: 2}


def test_greedy_memory_stores_no_sample_twice() -> None:
    memory = Greedy(50, seeded())
    batch = numbered([0, 1, 1, 0])
    assert memory.add(batch)
    assert not memory.add(batch)
    again = Greedy(50, seeded())
    again.load_state_dict(memory.state_dict())
    assert not again.add(batch)
    assert again.add(numbered([1, 1, 1, 0]))  # the first two inputs have other labels now
    assert len(again) == 5


def test_turns_come_equally_often() -> None:
    turns = Turns(seeded())
    dealt = Counter(i for _ in range(12) for i in turns.deal(5, 6).tolist())
    assert dealt == dict.fromkeys(range(6), 10)


@pytest.mark.parametrize(("remembered", "times", "samples"), [(5, 3, 17), (40, 1, 17), (1, 1, 100)])
def test_a_pass_shows_every_remembered_sample_equally_often(
    remembered: int, times: int, samples: int
) -> None:
    turns = Turns(seeded())
    for _ in range(2):
        sizes = [4] * (samples // 4) + [samples % 4] * (samples % 4 > 0)
        dealt = [turns.accompany(size, remembered, times=times, samples=samples) for size in sizes]
        assert Counter(torch.cat(dealt).tolist()) == dict.fromkeys(range(remembered), times)
        expected = [size * remembered * times / samples for size in sizes]
        assert all(abs(len(d) - e) <= 1 for d, e in zip(dealt, expected, strict=True))


def test_choose_is_uniform_in_choice_and_order() -> None:
    first: Counter[int] = Counter()
    held: Counter[int] = Counter()
    generator = seeded()
    for _ in range(1000):
        chosen = numbers(choose([numbered([0] * 7), numbered([0] * 5, start=7)], 4, generator=generator))
        first[chosen[0]] += 1
        held.update(chosen)
    assert chisquare([first[number] for number in range(12)]).pvalue > 0.001
    assert chisquare([held[number] for number in range(12)]).pvalue > 0.001


def test_bytes_of_images_come_back_from_a_quarter_of_the_space() -> None:
    pixels = torch.randint(0, 256, (50, 3, 6, 6), generator=seeded())
    pixels[0, :, 0, 0], pixels[0, :, 0, 1] = 0, 255
    mean = torch.tensor([0.49, 0.48, 0.45])[:, None, None]
    std = torch.tensor([0.2, 0.19, 0.3])[:, None, None]
    x = (pixels / 255 - mean) / std
    samples = gather([Batch(x, torch.arange(50), heads=((0,), (1,)), head=1)])
    coded = CodedSamples.of(samples)
    assert torch.equal(coded.codes, pixels.to(torch.uint8))
    everything = coded.batch(torch.arange(50), ((0,), (1,)))
    torch.testing.assert_close(everything.x, x, atol=1e-6, rtol=1e-6)
    assert torch.equal(everything.y, torch.arange(50))
    assert isinstance(everything.head, Tensor)
    assert torch.equal(everything.head, torch.ones(50, dtype=torch.int64))
    held = (coded.codes, coded.y, coded.head)
    assert 4 * sum(t.numel() * t.element_size() for t in held) == samples.bytes


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_coding_is_off_by_at_most_half_a_level(values: list[float]) -> None:
    x = torch.tensor(values)[:, None]
    coded = CodedSamples.of(gather([Batch(x, torch.zeros(len(x), dtype=torch.int64), heads=HEADS)]))
    decoded = coded.batch(torch.arange(len(x)), HEADS).x
    spread = float(x.max() - x.min())
    assert float((decoded - x).abs().max()) <= spread / 255 / 2 * 1.001 + 1e-3 * 2**-10


def test_many_labels_are_kept_whole() -> None:
    y = torch.tensor([3, 70_000])
    coded = CodedSamples.of(gather([Batch(torch.zeros(2, 1), y, heads=HEADS)]))
    assert torch.equal(coded.batch(torch.arange(2), HEADS).y, y)


def test_sections_lose_their_last_samples_first() -> None:
    memory = Sections()
    for start in (0, 4):
        memory.add(gather([numbered([start // 4] * 4, start=start)]))
    memory.trim(3)
    assert len(memory) == 6
    assert memory.batch(torch.arange(6), HEADS).x.flatten().tolist() == [0, 1, 2, 4, 5, 6]
    again = Sections()
    again.load_state_dict(memory.state_dict())
    assert torch.equal(
        again.batch(torch.tensor([5, 0]), HEADS).x, memory.batch(torch.tensor([0, 5]), HEADS).x
    )


def test_losses_of_joined_batches_are_weighted_means() -> None:
    new, old = numbered([0, 1, 2], head=0), numbered([3], start=3, head=torch.tensor([1]))
    joined = join(new, old, weight=0.3, remembered_weight=0.7)
    assert joined.weight is not None
    torch.testing.assert_close(joined.weight, torch.tensor([0.1, 0.1, 0.1, 0.7]))
    assert (joined.fresh, len(joined)) == (3, 4)
    assert isinstance(joined.head, Tensor)
    assert joined.head.tolist() == [0, 0, 0, 1]
    pooled = pool(new, old).weight
    assert pooled is not None
    torch.testing.assert_close(pooled, torch.full((4,), 0.25))
    assert select(joined, slice(2, None)).y.tolist() == [2, 3]


@given(held=st.integers(0, 6), sizes=st.lists(st.integers(1, 5), max_size=3), seed=st.integers(0, 99))
def test_samples_are_chosen_among_those_held_and_offered(held: int, sizes: list[int], seed: int) -> None:
    numbers = torch.arange(held + sum(sizes))
    head = numbers % 3
    first, *offered = [
        Batch(rows[:, None].float(), rows, heads=(), head=head[rows])
        for rows in numbers.split([held, *sizes])
    ]
    store = Samples()
    if held:
        store.append(first)
    order = torch.randperm(len(numbers), generator=seeded(seed))
    index = order[: len(order) // 2 + 1]
    store.choose(index, *offered)
    if len(numbers):
        assert store.x is not None
        assert torch.equal(store.x[:, 0].long(), index)
        assert torch.equal(store.y, index) and torch.equal(store.head, head[index])
