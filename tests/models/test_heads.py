"""Heads: masks, masked scores and labels counted among a head's units agree with each other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engram.core.values import Batch
from engram.evaluation.accuracy import answered_right
from engram.evaluation.loss import answer_loss
from engram.methods.losses import cross_entropy
from engram.models.heads import (
    allowed_units,
    copied_scores,
    head_masks,
    head_of_each,
    mask_scores,
    places_among,
    scores_of,
    units_at,
)

N_UNITS = 6
HEADS = ((0, 1, 2, 3, 4, 5), (0, 1, 2), (3, 4, 5), (1, 2), (0, 2, 5), (4,))


@pytest.mark.parametrize("units", HEADS)
def test_a_view_holds_the_scores_that_a_copy_holds(units: tuple[int, ...]) -> None:
    scores = torch.randn(5, N_UNITS, generator=torch.Generator().manual_seed(0))
    assert torch.equal(scores_of(scores, units), copied_scores(scores, units))
    assert torch.equal(scores_of(scores, None), scores)


@pytest.mark.parametrize("units", HEADS)
def test_labels_are_counted_among_the_units_and_back(units: tuple[int, ...]) -> None:
    y = torch.tensor(units)
    places = places_among(y, units, N_UNITS)
    assert places.tolist() == list(range(len(units)))
    assert torch.equal(units_at(places, units, N_UNITS), y)


@pytest.mark.parametrize("units", HEADS)
def test_masked_scores_and_picked_scores_answer_alike(units: tuple[int, ...]) -> None:
    scores = torch.randn(20, N_UNITS, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([units[row % len(units)] for row in range(20)])
    masked = mask_scores(scores, head_masks((units,), N_UNITS, scores.device)[0])
    assert torch.equal(answered_right(scores, y, units), masked.argmax(dim=1) == y)
    one_head = Batch(scores, y, heads=(units,))
    own_heads = Batch(scores, y, heads=(units,), head=torch.zeros_like(y))
    assert torch.allclose(answer_loss(scores, y, units).mean(), cross_entropy(scores, one_head))
    assert torch.allclose(cross_entropy(scores, one_head), cross_entropy(scores, own_heads))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_each_sample_gets_the_mask_of_its_own_head(heads: list[int]) -> None:
    y, units = torch.zeros(len(heads), dtype=torch.int64), ((0, 1), (2, 3), (1, 4))
    batch = Batch(torch.zeros(len(heads), 1), y, heads=units, head=torch.tensor(heads))
    rows = allowed_units(batch, N_UNITS)
    assert [tuple(row.nonzero().flatten().tolist()) for row in rows] == [units[head] for head in heads]
    assert head_of_each(batch).tolist() == heads


def test_a_label_outside_of_the_units_costs_infinity_and_is_never_right() -> None:
    scores, y = torch.zeros(1, N_UNITS), torch.tensor([5])
    assert answer_loss(scores, y, (0, 1)).isinf().all()
    assert not answered_right(scores, y, (0, 1)).any()


def test_a_nan_score_is_never_right() -> None:
    scores = torch.tensor([[torch.nan, 1.0, 0.0]])
    assert not answered_right(scores, torch.tensor([0])).any()
    assert not answered_right(scores, torch.tensor([1]), (0, 1)).any()


def test_a_mask_that_an_evaluation_asked_for_first_serves_training() -> None:
    heads, device = ((0, 1), (2, 3, 4)), torch.device("cpu")
    head_masks.cache_clear()
    with torch.inference_mode():
        masks = head_masks(heads, 5, device)
    scores = torch.zeros(2, 5, requires_grad=True)
    mask_scores(scores, masks).exp().sum().backward()
    assert head_masks(heads, 5, device) is masks and scores.grad is not None
