"""Methods that hold further networks: the same seed gives the same bits, interrupted or not."""

import io
from collections.abc import Iterator

import pytest
import torch
from tests.drained import saved as saved_state
from torch import Tensor

from engram.engine.loop import run_steps
from engram.engine.observers import Step
from engram.engine.recipe import experiment
from engram.methods.base import Learner, Method
from engram.methods.traits import Settings
from engram.record.experiment import Experiment
from engram.scenarios import SettingName

METHODS: list[tuple[str, SettingName, Settings]] = [
    ("lwf", "class", {"weight": "share", "softmax": "padded"}),
    ("dgr", "task", {"latent": 4}),
    ("rtf", "class", {"latent": 4}),
    ("lp-ft", "task", {}),
    ("fomaml", "class", {}),
    ("fomaml", "task", {"memory": 3}),
    ("imm-mean", "task", {"l2_transfer": 0.01, "drop_transfer": 0.3}),
    ("imm-mode", "domain", {"weight_transfer": False, "fisher": "batch"}),
    ("imm-mode", "class", {}),
]


def small(method: str, settings: Settings, setting: SettingName) -> Experiment:
    return experiment(
        "split-digits",
        method,
        setting=setting,
        settings=settings,
        hidden=(12,),
        lr=0.01,
        updates=4,
        evaluation={"every": 2, "subset": 20},
    )


def answers(method: Method) -> Tensor:
    x = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
    with torch.no_grad():
        scores: Tensor = method.predictor().eval()(x)
    return scores


def to_the_end(steps: Iterator[Step]) -> tuple[Tensor, list[Tensor], list[float]]:
    losses, latest = [], None
    for progress in steps:
        losses.append(progress.loss)
        latest = progress.method
    assert isinstance(latest, Learner)
    return answers(latest), [p.detach().clone() for p in latest.network.parameters()], losses


@pytest.mark.parametrize(("method", "setting", "settings"), METHODS, ids=str)
def test_interrupted_in_the_middle_of_a_task_it_resumes_with_the_same_bits(
    method: str, setting: SettingName, settings: Settings
) -> None:
    plan = small(method, settings, setting)
    whole = to_the_end(run_steps(plan))
    saved = io.BytesIO()
    for progress in run_steps(plan):
        if progress.step == 10:
            torch.save(saved_state(progress), saved)
            break
    saved.seek(0)
    torch.manual_seed(99)
    resumed = to_the_end(run_steps(plan, resume=torch.load(saved, weights_only=True)))
    assert torch.equal(whole[0], resumed[0])
    assert all(torch.equal(a, b) for a, b in zip(whole[1], resumed[1], strict=True))
    assert whole[2][10:] == resumed[2]


@pytest.mark.parametrize(("method", "setting", "settings"), METHODS, ids=str)
def test_watching_changes_nothing(method: str, setting: SettingName, settings: Settings) -> None:
    plan = small(method, settings, setting)
    watched, alone = to_the_end(run_steps(plan)), to_the_end(run_steps(plan, watch=False))
    assert watched[2] == alone[2]
    assert torch.equal(watched[0], alone[0])
