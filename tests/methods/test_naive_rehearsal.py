"""Naive rehearsal in 32 and in 8 bits: shares, turns, bytes, and the numbers of Hsu et al. (2018)."""

from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
import torch
from tests.drained import drained
from tests.methods.toy import accuracy, info, learn, make, same_after_resuming, samples

from engram.core.values import Batch
from engram.engine.where import Where
from engram.methods.base import Learner
from engram.methods.finetune import Finetune
from engram.methods.naive_rehearsal import NaiveRehearsal
from engram.methods.naive_rehearsal_c import NaiveRehearsalC

Setting = Literal["class", "domain", "task"]
BOTH = pytest.mark.parametrize("kind", [NaiveRehearsal, NaiveRehearsalC])


def watch_rehearsal(method: Learner) -> list[Batch]:
    """Collect every joined batch."""
    seen: list[Batch] = []
    plain = method.rehearse

    def watched(batch: Batch) -> Batch:
        seen.append(plain(batch))
        return seen[-1]

    method.rehearse = watched  # type: ignore[method-assign]
    return seen


@BOTH
def test_every_task_keeps_an_equal_share(kind: type) -> None:
    method = make(kind, memory=25)
    kept = []
    for task, expected in enumerate(([25], [12, 12], [8, 8, 8])):
        learn(method, task)
        assert [len(part) for part in method.store.parts] == expected
        kept.append(method.store.parts[0].batch(torch.arange(expected[0]), ()).x)
    # An older task gives up the end of its random list.
    torch.testing.assert_close(kept[2], kept[0][:8])
    x, _ = samples(0)
    nearest = (x[None] - kept[0][:, None]).flatten(2).norm(dim=2).min(dim=1).values
    assert float(nearest.max()) < 0.05


@BOTH
def test_half_of_each_update_is_remembered(kind: type) -> None:
    method = make(kind, memory=16)
    seen = watch_rehearsal(method)
    learn(method, 0)
    assert all(joined.fresh is None and len(joined) == 8 for joined in seen)
    seen.clear()
    learn(method, 1, count=33, epochs=2)
    assert [(joined.fresh, len(joined)) for joined in seen] == [(8, 16)] * 4 + [(1, 2)] + [(8, 16)] * 4 + [
        (1, 2)
    ]
    for joined in seen:
        assert joined.fresh is not None and joined.weight is not None
        assert set(joined.y[joined.fresh :].tolist()) <= {0, 1}
        torch.testing.assert_close(joined.weight, torch.full_like(joined.weight, 1 / len(joined)))
    old = torch.cat([joined.x[joined.fresh :] for joined in seen])
    turns = Counter(tuple(x.flatten().tolist()) for x in old)
    assert len(turns) == 16
    assert set(turns.values()) <= {4, 5}


def test_the_memory_is_mixed_into_the_data_as_in_the_code() -> None:
    method = make(NaiveRehearsal, memory=12, mode="concat")
    seen = watch_rehearsal(method)
    learn(method, 0)
    seen.clear()
    learn(method, 1)
    # 40 new samples and 12 places: the memory comes 3 times a pass, spread over 5 updates.
    assert [len(joined) - 8 for joined in seen] == [7, 7, 7, 7, 8]
    old = torch.cat([joined.x[joined.fresh :] for joined in seen])
    assert set(Counter(tuple(x.flatten().tolist()) for x in old).values()) == {3}
    seen.clear()
    method = make(NaiveRehearsal, memory=1, mode="concat")
    seen = watch_rehearsal(method)
    learn(method, 0)
    learn(method, 1)
    learn(method, 2)  # one place for three tasks leaves none to each
    assert len(method.store) == 0


def test_a_memory_of_bytes_takes_a_quarter_of_the_bytes() -> None:
    kept = {}
    for kind in (NaiveRehearsal, NaiveRehearsalC):
        method = make(kind, memory=30)
        shown = [
            Batch(
                (torch.randint(0, 256, (40, 1, 4, 4)) / 255 - 0.1) / 0.2752,
                torch.arange(40) % 2,
                heads=((0, 1),),
            )
        ]
        method.begin_task(info(0, shown))
        method.observe(shown[0])
        method.end_task(shown)
        kept[kind] = method.kept_bytes()
    assert kept[NaiveRehearsal] == 30 * (16 * 4 + 16)
    # Beside the samples there is their range: two floats for the task.
    assert kept[NaiveRehearsalC] == 30 * (16 + 4) + 8


@BOTH
@pytest.mark.parametrize("setting", ["class", "domain", "task"])
def test_it_remembers_what_fine_tuning_forgets(kind: type, setting: Setting) -> None:
    plain, replay = make(Finetune), make(kind, memory=24)
    for method in (plain, replay):
        for task in range(3):
            learn(method, task, setting=setting, epochs=6)
    means = [sum(accuracy(m, t, setting=setting) for t in range(3)) / 3 for m in (plain, replay)]
    assert means[1] > (0.9 if setting == "task" else 0.8)
    assert means[1] >= means[0]
    if setting == "class":
        assert means[1] - means[0] > 0.4


@BOTH
@pytest.mark.parametrize("mode", ["half", "concat"])
def test_it_resumes_with_the_same_bits(kind: type, mode: str) -> None:
    assert same_after_resuming(kind, memory=20, mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting", "published"),
    [
        ("naive-rehearsal", "class", 0.9078),
        ("naive-rehearsal", "task", 0.9940),
        ("naive-rehearsal-c", "class", 0.9559),
    ],
)
def test_published_accuracy_on_split_mnist(
    name: str, setting: Setting, published: float, real_data: Path
) -> None:
    from engram.engine.recipe import experiment

    planned = experiment(
        "split-mnist-002",
        name,
        setting=setting,
        batch_size=64,
        evaluation={"every": 100_000, "subset": None},
    )
    accuracies = drained(planned, Where(out=None, data=real_data))[1].accuracies
    assert sum(accuracies.values()) / 5 == pytest.approx(published, abs=0.02)
