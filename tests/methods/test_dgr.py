"""Deep generative replay: what is replayed, how it is weighed, and whether it looks like its class."""

import copy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.drained import saved
from torch import nn

from engram.core.errors import InputError
from engram.core.values import Batch, Heads, OptimizerSpec, TaskInfo
from engram.datasets import Images, load
from engram.engine.loop import run_steps
from engram.engine.where import Where
from engram.methods.dgr import DGR
from engram.models import ModelSpec, build
from engram.models.vae import VAE
from engram.record.experiment import Experiment, PhaseSpec
from engram.scenarios import split
from engram.scenarios.preparation import UNIT_RANGE

CPU = torch.device("cpu")
TASK: Heads = ((0, 1), (2, 3), (4, 5))


def samples(*labels: int, head: int = 0, heads: Heads = TASK, seed: int = 0) -> Batch:
    x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.tensor(labels), heads=heads, head=head)


def info(index: int) -> TaskInfo:
    return TaskInfo(index=index, identity=None, classes=(0, 1), samples=9, steps=3, epochs=1, batch_size=5)


def learner(**settings: Any) -> DGR:
    return DGR(
        network=build(ModelSpec(hidden=(8,)), shape=(6,), n_units=6, seed=0),
        optimizer_spec=OptimizerSpec("adam", lr=0.01),
        generator=torch.Generator().manual_seed(3),
        **{"latent": 2, **settings},
    )


def after(tasks: int) -> DGR:
    method = learner()
    for index in range(tasks):
        method.begin_task(info(index))
        for seed in range(3):
            method.observe(samples(2 * index, 2 * index + 1, 2 * index, head=index, seed=seed))
        method.end_task([])
    method.begin_task(info(tasks))
    return method


def test_nothing_is_replayed_in_the_first_task() -> None:
    method = learner()
    method.begin_task(info(0))
    batch = samples(0, 1)
    assert method.rehearse(batch) is batch


def test_every_earlier_head_labels_its_equal_share_within_itself() -> None:
    joined = after(2).rehearse(samples(4, 5, 4, head=2))
    assert joined.fresh == 3
    assert len(joined) == 3 + 6  # a batch of five, in two equal parts, rounded up
    assert isinstance(joined.head, torch.Tensor)
    assert joined.head.tolist() == [2, 2, 2, 0, 0, 0, 1, 1, 1]
    assert all(y in TASK[head] for y, head in zip(joined.y.tolist(), joined.head.tolist(), strict=True))


def test_the_third_task_counts_a_third() -> None:
    joined = after(2).rehearse(samples(4, 5, 4, head=2))
    assert joined.weight is not None
    assert float(joined.weight[:3].sum()) == pytest.approx(1 / 3)
    assert float(joined.weight[3:].sum()) == pytest.approx(2 / 3)


def test_where_identity_is_hidden_labels_are_sought_among_all_classes_learned_before() -> None:
    method = learner()
    method.begin_task(info(0))
    for seed in range(3):
        method.observe(samples(0, 1, 3, heads=((0, 1, 3),), seed=seed))
    method.end_task([])
    method.begin_task(info(1))
    replayed = method.replayed(samples(4, 5, heads=((0, 1, 3, 4, 5),)))
    assert replayed.head == 0
    assert len(replayed) == 5
    assert set(replayed.y.tolist()) <= {0, 1, 3}
    assert method.teacher is not None
    among = torch.tensor([0, 1, 3])
    assert torch.equal(among[method.teacher(replayed.x)[:, among].argmax(dim=1)], replayed.y)


def test_the_generator_learns_beside_the_network_and_the_older_one_stays() -> None:
    method = after(1)
    model, previous, teacher = method.dreams.model, method.dreams.previous, method.teacher
    assert isinstance(model, VAE) and previous is not None and teacher is not None

    def copied(module: nn.Module) -> list[torch.Tensor]:
        return [p.detach().clone() for p in module.parameters()]

    held = {name: copied(part) for name, part in (("model", model), ("old", previous), ("teacher", teacher))}
    method.observe(samples(2, 3, 3, head=1))
    assert all(not torch.equal(a, b) for a, b in zip(held["model"], model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(held["old"], previous.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(held["teacher"], teacher.parameters(), strict=True))


def test_in_the_third_task_the_generator_learns_two_thirds_from_its_older_self() -> None:
    method = after(2)
    previous = method.dreams.previous
    assert isinstance(method.dreams.model, VAE) and isinstance(previous, VAE)
    by_hand = copy.deepcopy(method.dreams.model)
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01)
    draws = torch.Generator()
    draws.set_state(method.generator.get_state())
    noise = [torch.randn(size, 2, generator=draws) for size in (3, 5, 5)]
    batch = samples(4, 5, 4, head=2)
    with torch.no_grad():
        older = previous.generate(noise[1])
    (by_hand.loss(batch.x, noise[0]) / 3 + 2 * by_hand.loss(older, noise[2]) / 3).backward()
    optimizer.step()
    method.after_step(batch)
    for ours, wanted in zip(method.dreams.model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted)


def surety_of(method: DGR, x: torch.Tensor) -> torch.Tensor:
    """The older network's highest probability, each head answering its equal share within itself."""
    assert method.teacher is not None
    scores = method.teacher(x).split(len(x) // 2)
    return torch.cat([scores[head][:, TASK[head]].softmax(dim=1).amax(dim=1) for head in (0, 1)])


def test_what_the_older_network_is_not_sure_of_is_drawn_again() -> None:
    method = after(2)
    before = method.generator.get_state()
    any_of_them, _ = method.imagined(40)
    surety = surety_of(method, any_of_them)
    method.sure = float(surety[20:].median())  # of the head that is less sure
    method.generator.set_state(before)
    chosen, labels = method.imagined(40)
    kept = surety >= method.sure
    assert 0 < kept.sum() < 40
    assert torch.equal(chosen[kept], any_of_them[kept])
    assert (surety_of(method, chosen) >= method.sure).all()
    assert method.teacher is not None
    scores = method.teacher(chosen)
    assert torch.equal(labels[:20], scores[:20, :2].argmax(dim=1))
    assert torch.equal(labels[20:], 2 + scores[20:, 2:4].argmax(dim=1))


def test_what_it_can_never_be_sure_of_ends_as_the_surest_of_some() -> None:
    method = after(2)
    before = method.generator.get_state()
    surety = surety_of(method, method.imagined(40)[0])
    method.sure = 0.999999
    method.generator.set_state(before)
    now = surety_of(method, method.imagined(40)[0])
    assert now.max() < method.sure
    assert (now >= surety).all() and (now > surety).sum() > 30


def test_network_and_generator_rehearse_only_what_it_is_sure_of() -> None:
    method = after(2)
    method.sure = 0.8
    drawn: list[int] = []
    imagined = method.imagined
    method.imagined = lambda size: drawn.append(size) or imagined(size)  # type: ignore[method-assign, func-returns-value]
    method.observe(samples(4, 5, 4, head=2))
    assert drawn == [6, 5]


def test_every_earlier_head_judges_where_there_are_too_few_inputs_for_equal_shares() -> None:
    method = after(2)
    assert method._turns(6, CPU).tolist() == [0, 0, 0, 1, 1, 1]
    assert method._turns(5, CPU).tolist() == [0, 0, 0, 1, 1]
    method.learned.before = {head: [head] for head in range(20)}
    assert set(method._turns(32, CPU).tolist()) == set(range(20))


def test_limits_come_from_the_first_batch_by_default() -> None:
    batch = samples(0, 1)
    for settings, wanted in (({}, (batch.x.min(), batch.x.max())), ({"low": -9.0, "high": 8.0}, (-9.0, 8.0))):
        method = learner(**settings)
        method.begin_task(info(0))
        method.observe(batch)
        assert isinstance(method.dreams.model, VAE)
        back = method.dreams.model.feedback
        assert (float(back.low), float(back.high)) == (float(wanted[0]), float(wanted[1]))


def test_limits_that_the_data_cannot_have_are_refused_before_anything_is_learned() -> None:
    method = learner(low=9.0)
    method.begin_task(info(0))
    before = copy.deepcopy(method.network.state_dict())
    with pytest.raises(InputError, match=r"low=9\.0 does not fit the first batch, whose inputs are"):
        method.observe(samples(0, 1))
    assert all(torch.equal(value, before[name]) for name, value in method.network.state_dict().items())


def test_a_first_batch_of_one_constant_sample_is_fine() -> None:
    method = learner()
    method.begin_task(info(0))
    for value in (0.0, 1.0):
        method.observe(Batch(torch.full((1, 6), value), torch.tensor([0]), heads=TASK))
    assert all(p.isfinite().all() for p in method.network.parameters())


def test_initial_weights_leave_the_global_generator_alone() -> None:
    method = learner()
    method.begin_task(info(0))
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    method.observe(samples(0, 1))
    assert torch.equal(torch.rand(1), expected)


def test_kept_bytes_are_both_generators_and_the_older_network() -> None:
    method = after(1)
    assert method.dreams.model is not None
    of = [sum(4 * t.numel() for t in m.state_dict().values()) for m in (method.dreams.model, method.network)]
    assert method.kept_bytes() == 2 * of[0] + of[1]
    assert learner().kept_bytes() == 0


def judge_of(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """A convolutional network that learns all ten digits, in one pass at a rate that falls to 0."""
    judge = build(ModelSpec("cnn"), shape=(1, 28, 28), n_units=10, seed=1)
    optimizer = torch.optim.Adam(judge.parameters())
    batches = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).split(128)
    for number, rows in enumerate(batches):
        optimizer.param_groups[0]["lr"] = 0.003 * (1 - number / len(batches))
        optimizer.zero_grad()
        nn.functional.cross_entropy(judge(images[rows]), labels[rows]).backward()
        optimizer.step()
    return judge.eval()


def all_of(part: Images) -> torch.Tensor:
    return next(iter(part.read([torch.arange(len(part.labels))]))).float() / 255


@pytest.mark.slow
def test_replayed_digits_look_to_a_judge_like_the_class_they_stand_for(real_data: Path) -> None:
    """Over 90 % of what any task rehearses, if the older network must be sure; of the second task's anyway.

    The set-up of Hsu et al. (2018): pixels from 0 to 1, Adam at .001, batches of 128, 2,000 updates per task
    (later tasks have 800 here, for the sake of time). The shares that have the right label, from the second
    task to the fifth, means of three seeds, with a judge that has 99.2 % on the test set:

    - as published, 92.7, 85.4, 75.7 and 69.3 % (the first seed with a judge that has 98.6 %). It is the
      autoencoder that blends digits, and not the replay that spoils them: one that learns the digits 0 to 3
      from the data themselves generates images of which judge and network say the same in 86.0 % (2,000
      updates) to 90.0 % (12,000), and a code of 10 numbers instead of 100 makes no better ones;
    - with `sure=0.9999`, 97.8, 98.3, 97.0 and 95.4 %.
    """
    digits = load("mnist", real_data)
    images, test = all_of(digits.train), all_of(digits.test)
    judge = judge_of(images, digits.train.labels)
    with torch.no_grad():
        assert float((judge(test).argmax(dim=1) == digits.test.labels).float().mean()) > 0.98

    plan = Experiment(
        split("mnist", setting="class", transforms=(UNIT_RANGE,)),
        "dgr",
        optimizer=OptimizerSpec("adam", lr=0.001, reset=False),
        batch_size=128,
        updates=800,
        by_phase=(PhaseSpec(updates=2000),),
    )
    where = Where(out=None, data=real_data)
    *_, first_task = islice(run_steps(plan, where, watch=False), 2000)
    learned = copy.deepcopy(saved(first_task))

    def check(sure: float, *, least: list[float], worst: list[float], rarest: float) -> None:
        """As each later task begins: how many are right, of all and of each digit, and how often it comes."""
        state = copy.deepcopy(learned)
        state["method"]["sure"]["value"] = sure
        begins = [2001 + 800 * later for later in range(len(least))]
        for progress in run_steps(plan, where, watch=False, resume=state):
            if progress.step not in begins:
                continue
            method, task = progress.method, progress.learning
            assert isinstance(method, DGR) and method.sure == sure
            new = Batch(images[:1], digits.train.labels[:1], heads=(tuple(range(2 * task + 2)),))
            replayed = [method.replayed(new) for _ in range(16)]
            y = torch.cat([batch.y for batch in replayed])
            with torch.no_grad():
                surety, seen = torch.cat([judge(batch.x).softmax(dim=1) for batch in replayed]).max(dim=1)
            right, recognised = seen == y, surety > 0.9
            assert len(y) == 16 * 128
            assert y.bincount(minlength=2 * task).min() > rarest * len(y) / (2 * task)
            assert right.float().mean() > least[task - 1]
            assert min(right[y == digit].float().mean() for digit in range(2 * task)) > worst[task - 1]
            assert recognised.float().mean() > 0.4 and right[recognised].float().mean() > 0.95
            if progress.step == begins[-1]:
                break

    check(0.0, least=[0.9, 0.8], worst=[0.85, 0.65], rarest=0.6)
    check(0.9999, least=[0.9] * 4, worst=[0.85, 0.75, 0.75, 0.75], rarest=0.25)
