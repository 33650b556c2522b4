"""The k-shot probe: what it computes, and that it does not change the network."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from engram.core.errors import InputError
from engram.engine.isolation import weights_digest
from engram.engine.loop import run, run_steps
from engram.engine.probing import probe_loss_name, probe_name, tuned_name
from engram.engine.recipe import experiment
from engram.evaluation.diversity import diversity
from engram.evaluation.kshot import Examples, draw_shots, features_of, linear_probe, tuned_probe
from engram.evaluation.samples import TensorSet
from engram.models.network import Network
from engram.record.experiment import EvaluationSpec, Experiment, TransferSpec
from engram.record.run import Run

PROBE = TransferSpec(shots=(1, 5), epochs=20, tuned_lrs=(0.01,), tuned_epochs=(1, 3))


def probed(method: str, probe: TransferSpec | None, **changes: object) -> Experiment:
    planned = experiment("split-digits", method, setting="task", updates=8)
    planned = replace(planned, scenario=replace(planned.scenario, held_out=0.2), **changes)  # type: ignore[arg-type]
    return replace(planned, evaluation=EvaluationSpec(every=100, subset=None, transfer=probe))


def blobs(n: int, seed: int) -> Examples:
    draws = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return Examples(torch.randn(n, 6, generator=draws) + 2 * nn.functional.one_hot(y, 6), y)


def learned(planned: Experiment) -> tuple[str, Run]:
    """The final weights, and the run."""
    steps, method = run_steps(planned), None
    while True:
        try:
            method = next(steps).method
        except StopIteration as end:
            assert method is not None
            return weights_digest(method), end.value


def test_the_head_is_trained_as_autograd_would() -> None:
    """The same initial weights and orders, through PyTorch's own layer, loss and optimiser."""
    few, test = blobs(30, 0), blobs(300, 1)
    probed = linear_probe(
        few, test, lr=0.05, epochs=7, batch_size=10, generator=torch.Generator().manual_seed(3)
    )
    accuracy = probed.accuracy
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(6, 3)
    reach = 6**-0.5
    with torch.no_grad():
        layer.weight.copy_(torch.empty(6, 3).uniform_(-reach, reach, generator=generator).T)
        layer.bias.uniform_(-reach, reach, generator=generator)
    step = torch.optim.SGD(layer.parameters(), lr=0.05)
    for _ in range(7):
        for rows in torch.randperm(30, generator=generator).split(10):
            step.zero_grad()
            nn.functional.cross_entropy(layer(few.x[rows]), few.y[rows]).backward()
            step.step()
    assert accuracy == float((layer(test.x).argmax(1) == test.y).float().mean())
    assert 0.6 < accuracy < 1.0
    left = nn.functional.cross_entropy(layer(few.x), few.y).item() / math.log(3)
    assert probed.loss == pytest.approx(left, rel=1e-4)


def test_a_probe_says_how_far_its_training_came() -> None:
    """On small features the published rate hardly learns; a greater one does, and the accuracy tells."""
    (x, y), (test_x, test_y) = blobs(30, 0), blobs(300, 1)
    few, test = Examples(0.05 * x, y), Examples(0.05 * test_x, test_y)
    short = linear_probe(few, test, generator=torch.Generator().manual_seed(0))
    fitted = linear_probe(few, test, lr=2.0, epochs=500, generator=torch.Generator().manual_seed(0))
    assert short.loss > 0.9 and fitted.loss < 0.5
    assert fitted.accuracy > short.accuracy + 0.2


def test_shots_are_nested_and_balanced() -> None:
    y = torch.tensor([0] * 10 + [1] * 3 + [2] * 10)
    drawn = draw_shots(y, 5, generator=torch.Generator().manual_seed(0))
    assert torch.bincount(y[drawn.rows]).tolist() == [5, 3, 5]
    assert torch.bincount(y[drawn.rows[drawn.rank < 2]]).tolist() == [2, 2, 2]
    assert len(drawn.rows.unique()) == len(drawn.rows)


@pytest.mark.parametrize("training", [True, False])
def test_probing_leaves_the_network_as_it_is(training: bool) -> None:
    layers = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    net = Network(layers, nn.Linear(5, 3)).train(training)
    net(blobs(9, 0).x).sum().backward()
    before = copy.deepcopy(net.state_dict()), [p.grad.clone() for p in net.parameters() if p.grad is not None]
    randomness = torch.get_rng_state()
    few, test = blobs(12, 1), blobs(30, 2)
    features_of(net, TensorSet(*few))
    diversity(net, TensorSet(*few))
    tuned_probe(net, few, [test], epochs=(2,), generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), randomness)
    assert all(torch.equal(a, b) for a, b in zip(before[0].values(), net.state_dict().values(), strict=True))
    assert all(
        torch.equal(a, p.grad) for a, p in zip(before[1], net.parameters(), strict=True) if p.grad is not None
    )
    assert net.training is training and all(part.training is training for part in net.modules())


def test_fine_tuning_helps_where_fixed_features_cannot() -> None:
    few, test = blobs(60, 1), blobs(300, 2)
    net = Network(nn.Sequential(nn.Linear(6, 5, bias=False)), nn.Linear(5, 3))
    with torch.no_grad():
        net.features[0].weight.zero_()  # type: ignore[index]
        net.features[0].weight[0] = 1.0  # type: ignore[index]
    fixed = [Examples(features_of(net, TensorSet(*examples)), examples.y) for examples in (few, test)]
    linear = linear_probe(fixed[0], fixed[1], lr=0.1, epochs=50, generator=torch.Generator()).accuracy
    tuned = tuned_probe(net, few, [test], lr=0.1, epochs=(50,), generator=torch.Generator())
    assert linear < 0.5 < 0.7 < tuned[50][0]


def test_a_network_without_features_is_refused() -> None:
    with pytest.raises(InputError, match="Linear has no features to probe: wrap"):
        features_of(nn.Linear(6, 2), TensorSet(*blobs(3, 0)))


@pytest.mark.parametrize("method", ["finetune", "er", "independent", "icarl", "packnet", "imm-mean", "gdumb"])
def test_a_probed_run_learns_the_same_bits(method: str) -> None:
    settings = {"gdumb": {"epochs": 2}}.get(method, {})
    changed = {**probed(method, None).settings, **settings}
    plain, watched = probed(method, None, settings=changed), probed(method, PROBE, settings=changed)
    (weights, unprobed), (weights_when_probed, outcome) = learned(plain), learned(watched)
    assert weights == weights_when_probed
    assert unprobed.trace == outcome.trace
    readings = outcome.readings
    assert {(learning, task) for _, learning, task, _, _ in readings} == {(t, t + 1) for t in range(4)}
    linear = {name(k) for k in (1, 5) for name in (probe_name, probe_loss_name)}
    names = {*linear, "FDiv"} | {
        tuned_name(k, lr=0.01, epochs=e, on=on)
        for k in (1, 5)
        for e in (1, 3)
        for on in ("test", "validation")
    }
    assert {name for *_, name, _ in readings} == names
    bounded = [value for *_, name, value in readings if name != "FDiv" and "loss" not in name]
    assert all(0 <= value <= 1 for value in bounded)


def test_independent_networks_have_the_features_of_their_own_task() -> None:
    """IND and fine-tuning are the same network after the first task, and different ones after the second."""
    readings = {
        method: {
            learning: value
            for _, learning, _, name, value in run(probed(method, PROBE)).readings
            if name == "FDiv"
        }
        for method in ("independent", "finetune")
    }
    assert readings["independent"][0] == readings["finetune"][0]
    assert readings["independent"][1] != readings["finetune"][1]


@pytest.mark.parametrize(
    "wrong",
    [{"shots": ()}, {"shots": (0,)}, {"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"tuned_lrs": (-1.0,)}],
)
def test_bad_probes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"of probes must be (at least 1|above 0), got"):
        TransferSpec(**wrong)  # type: ignore[arg-type]


def test_fine_tuning_without_validation_samples_is_refused_before_training() -> None:
    planned = probed("finetune", PROBE)
    with pytest.raises(InputError, match="chosen on validation samples, and there are none"):
        run(replace(planned, scenario=replace(planned.scenario, held_out=0.0)))
