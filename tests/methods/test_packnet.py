"""PackNet: who owns which weight, and that what is owned never changes."""

import pytest
import torch
from tests.methods.toy import accuracy, batches, info, learn, make, network, same_after_resuming
from torch import nn

from engram.core.errors import InputError
from engram.core.values import OptimizerSpec
from engram.methods.packnet import Packed, PackNet
from engram.models.network import Network


def task_bits(method: PackNet, task: int) -> torch.Tensor:
    predictor = method.predictor()
    assert isinstance(predictor, Packed)
    with torch.no_grad():
        answers: torch.Tensor = predictor.route(task).eval()(batches(task)[0].x)
    return answers[:, 2 * task : 2 * task + 2]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_answers_to_an_earlier_task_never_change(optimizer: str) -> None:
    spec = OptimizerSpec(
        optimizer, lr=0.01, momentum=0.9 * (optimizer == "sgd"), weight_decay=0.01, reset=False
    )
    method = PackNet(network=network(hidden=(16, 12)), optimizer_spec=spec)
    learn(method, 0, setting="task", epochs=3)
    first = task_bits(method, 0)

    def unchanged(step: int) -> None:
        assert torch.equal(task_bits(method, 0), first)

    learn(method, 1, setting="task", epochs=3, after=unchanged)
    second = task_bits(method, 1)
    learn(method, 2, setting="task", epochs=3, after=unchanged)
    assert torch.equal(task_bits(method, 1), second)


def test_every_task_takes_its_share_of_what_is_free() -> None:
    method = make(PackNet, prune=0.75)
    for task in range(3):
        learn(method, task, setting="task", epochs=3)
    (owner,) = method.owner.values()
    counts = torch.bincount(owner.flatten().int(), minlength=4)
    assert counts[1:].tolist() == [64, 48, 36]  # of 256, 192, 144
    weight = method.network.features[1].weight
    assert bool((weight[owner == 0] == 0).all())
    assert bool((weight[owner > 0] != 0).all())


def test_the_smallest_free_weights_are_pruned_and_the_others_continue_to_learn() -> None:
    method = make(PackNet, prune=0.5, retrain=0.4)
    shown = batches(0, setting="task")
    method.begin_task(info(0, shown, setting="task"))
    (owner,) = method.owner.values()
    weight = method.network.features[1].weight
    for batch in shown[:2]:
        method.observe(batch)
    assert not method.pruned
    magnitude = weight.detach().abs().clone()
    method.observe(shown[2])  # three fifths of the updates
    assert method.pruned
    assert float(magnitude[owner == 1].mean()) > float(magnitude[owner == 0].mean())
    held = weight.detach().clone()
    for batch in shown[3:]:
        method.observe(batch)
    changed = weight.detach() != held
    assert bool(changed[owner == 1].any())
    assert not bool(changed[owner == 0].any())


def test_a_task_that_was_cut_short_is_pruned_when_it_ends() -> None:
    method = make(PackNet)
    shown = batches(0, setting="task")
    method.begin_task(info(0, shown, setting="task", epochs=9))
    method.observe(shown[0])
    method.end_task(iter(shown))
    assert method.pruned


def test_biases_and_batch_norm_are_held_after_the_first_task() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(1))
        method = PackNet(network=Network(features, nn.Linear(16, 6)))
    start = {name: value.clone() for name, value in method.network.state_dict().items()}
    learn(method, 0, setting="task", epochs=2)
    first = {name: value.clone() for name, value in method.network.state_dict().items()}
    learn(method, 1, setting="task", epochs=2)
    second = method.network.state_dict()
    norm = [name for name in first if name.startswith("features.1.")]
    assert len(norm) == 5
    assert not any(torch.equal(start[name], first[name]) for name in norm)
    assert all(torch.equal(first[name], second[name]) for name in [*norm, "features.0.bias"])
    assert torch.equal(first["head.weight"][:2], second["head.weight"][:2])
    assert not torch.equal(first["head.weight"][2:4], second["head.weight"][2:4])


def test_no_task_is_forgotten() -> None:
    method = make(PackNet, momentum=0.9)
    learned = []
    for task in range(3):
        learn(method, task, setting="task", epochs=8)
        learned.append(accuracy(method, task, setting="task"))
    assert min(learned) > 0.9
    assert [accuracy(method, task, setting="task") for task in range(3)] == learned


def test_it_resumes_with_the_same_bits() -> None:
    assert same_after_resuming(PackNet, setting="task")


def test_several_tasks_at_once_are_refused() -> None:
    """They would share weights that are found by the identity of a single task."""
    hidden = info(0, batches(0))
    with pytest.raises(InputError, match="packnet learns one task at a time and must know which: use the"):
        make(PackNet).begin_task(hidden)
