"""Fingerprints of test data: what they notice, and what they do not depend on."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import engram
from engram.core.errors import InputError
from engram.evaluation.batch_sets import as_test_set
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.fingerprint import FEW, fingerprint
from engram.record.run import Run
from engram.record.test_data import TestData

DRAW = torch.Generator().manual_seed(0)
X, Y = torch.randn(50, 3, generator=DRAW), torch.randint(3, (50,), generator=DRAW)


class Noisy(Dataset[tuple[Tensor, int]]):
    """Draws from the global generator whenever a sample is read."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return X[index] + torch.rand(3), int(Y[index])


def of(data: object, chosen: Tensor | None = None) -> TestData:
    return fingerprint(as_test_set(data), chosen)


def test_the_order_of_samples_does_not_count() -> None:
    shuffled = DataLoader(TensorDataset(X, Y), batch_size=7, shuffle=True)
    assert of((X, Y)) == of((X.flip(0), Y.flip(0))) == of(shuffled)


def test_other_data_are_noticed() -> None:
    one = of((X, Y))
    changed = X.clone()
    changed[17, 1] += 1e-6
    assert one.differs(of((changed, Y)))
    assert one.differs(of((X, Y.roll(1))))
    assert one.differs(of((X[:49], Y[:49])))
    assert one.differs(of((X.double(), Y)))
    assert not one.differs(of((X.numpy(), Y.numpy())))


def test_the_drawn_samples_have_a_fingerprint_of_their_own() -> None:
    everything, some, others = torch.arange(50), torch.arange(20), torch.arange(10, 30)
    prints = [of((X, Y), chosen) for chosen in (everything, some, others)]
    assert len({one.evaluated for one in prints}) == 3
    assert len({one.content for one in prints}) == 1
    assert prints[0].evaluated == prints[0].content
    assert of((X, Y)).evaluated is None


def test_what_is_not_in_memory_is_judged_by_a_few_inputs() -> None:
    lazy = of(TensorDataset(X, Y), torch.arange(20))
    assert lazy.samples == 50 and lazy.inputs <= FEW
    assert not lazy.differs(of((X, Y))), "hashes of different numbers of inputs are not compared"
    assert lazy.differs(of(TensorDataset(X + 1, Y)))
    assert lazy.evaluated != of(TensorDataset(X, Y), torch.arange(10, 30)).evaluated


def test_reading_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    data = as_test_set(Noisy())
    before = torch.get_rng_state()
    one = fingerprint(data, None)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert fingerprint(data, None) == one


def test_an_evaluator_keeps_it_with_the_run(tmp_path: Path) -> None:
    watch = Evaluator([(X, Y)], subset=10)
    watch(nn.Linear(3, 3), learning=0)
    watch.save(tmp_path / "mine")
    loaded = Run.load(tmp_path / "mine")
    assert loaded.test_data == watch.test_data and len(loaded.test_data) == 1
    assert json.loads((tmp_path / "mine/result.json").read_text())["test_data"][0]["samples"] == 50
    with pytest.warns(UserWarning, match="redraw"):
        redrawn = Evaluator([(X, Y)], subset=10, redraw=True)
    assert redrawn.test_data[0].evaluated is None


def test_a_run_of_an_experiment_has_one_that_its_seed_does_not_change() -> None:
    runs = [
        engram.run("permuted-digits", "finetune", updates=1, every=10, subset=50, seed=seed)
        for seed in (0, 1)
    ]
    for one, other in zip(runs[0].test_data, runs[1].test_data, strict=True):
        assert not one.differs(other)
        assert one.evaluated != other.evaluated
    assert (
        runs[0].experiment.id
        == engram.experiment("permuted-digits", "finetune", updates=1, every=10, subset=50).id
    )


def test_a_record_is_not_continued_on_other_test_data() -> None:
    watch = Evaluator([(X, Y)])
    watch(nn.Linear(3, 3), learning=0)
    state = watch.state_dict()
    Evaluator([(X, Y)]).load_state_dict(state)
    with pytest.raises(InputError, match="the test data of task 0 are not those"):
        Evaluator([(X + 1, Y)]).load_state_dict(state)
    del state["test_data"]
    Evaluator([(X + 1, Y)]).load_state_dict(state)
