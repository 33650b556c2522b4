"""Layers that do not learn stay as they are, whatever hyper-parameters a method is given."""

from dataclasses import replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import nn

from engram.core.errors import InputError
from engram.core.values import Batch
from engram.engine.check import complete
from engram.engine.loop import run
from engram.methods import METHODS
from engram.methods.importance import batch_fisher, output_sensitivity
from engram.models import model
from engram.models.network import Network
from engram.models.spec import ModelSpec
from engram.testing import FROZEN, check_frozen_run, sample_experiment, settings_of

REGISTERED = [name for name in METHODS if not name.startswith("test-")]


def choices() -> list[tuple[str, str, object]]:
    """Every value that a hyper-parameter can have where it is one of a few, except the default."""
    others = []
    for method in REGISTERED:
        kind = METHODS[method]
        hints = get_type_hints(kind)
        for name, field in kind.__dataclass_fields__.items():
            hint = hints[name]
            values = (True, False) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
            others += [(method, name, value) for value in values if value != field.default]
    return others


@pytest.mark.parametrize(("method", "name", "value"), choices())
def test_frozen_layers_stay_whatever_is_chosen(method: str, name: str, value: object) -> None:
    setting = settings_of(method)[-1]
    planned = sample_experiment(method, setting, model=FROZEN[0])
    planned = replace(planned, epochs=1, settings={**planned.settings, name: value})
    check_frozen_run(planned)


def test_choices_include_those_that_differentiate_batches() -> None:
    wanted = {
        ("ewc", "fisher", "batch"),
        ("ewc", "fisher", "batch-scaled"),
        ("online-ewc", "fisher", "batch"),
        ("imm-mode", "fisher", "batch"),
        ("mas", "gradients", "sample"),
    }
    assert wanted <= set(choices())


def test_frozen_weights_have_no_importance_and_the_others_what_they_have_without() -> None:
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2))
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    batches = [Batch(x, y, heads=((0, 1),))]
    whole = [batch_fisher(network, batches), output_sensitivity(network, batches)]
    network.features.requires_grad_(False)
    for free, frozen in zip(
        whole, [batch_fisher(network, batches), output_sensitivity(network, batches)], strict=True
    ):
        assert all(bool((part == 0).all()) for part in frozen[:2])
        assert all(torch.equal(a, b) for a, b in zip(free[2:], frozen[2:], strict=True))


def test_a_network_that_cannot_learn_is_refused() -> None:
    setting = settings_of("finetune")[0]

    @model("test-all-frozen")
    def all_frozen(shape: tuple[int, ...], n_units: int) -> Network:
        return Network(nn.Flatten(1), nn.Linear(36, n_units)).requires_grad_(False)

    planned = sample_experiment("finetune", setting, model=ModelSpec("test-all-frozen"))
    with pytest.raises(InputError, match="has no weight that learns, all are frozen"):
        run(complete(planned))
