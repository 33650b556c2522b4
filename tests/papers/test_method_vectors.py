"""The papers' methods on worked examples, to six digits."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engram.core.jsons import Json, JsonObject
from engram.methods import a_gem, gem
from engram.methods.distil import distillation
from engram.methods.merging import merge_means, merge_modes, shares
from engram.methods.optimizers import cosine_factor
from engram.methods.si import path_importance
from engram.models.lwta import winners

VECTORS: JsonObject = json.loads(Path(__file__).with_name("vectors.json").read_text(encoding="utf-8"))
V5, V6, V7, V8, V9 = (VECTORS[name] for name in ("V5_AGEM", "V6_KD", "V7_LWTA", "V8_IMM", "V9_SI"))


def tensor(values: Json) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(ours: Tensor, theirs: Json) -> bool:
    return torch.allclose(ours, tensor(theirs), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "case", VECTORS["V4_GEM"], ids=lambda case: f"margin {case['margin']} of {case['g']}"
)
def test_gem_projects_as_in_v4(case: JsonObject) -> None:
    projected = gem.project(tensor(case["g"]), tensor(case["G"]), margin=case["margin"], ridge=case["eps"])
    assert close(projected, case["gtilde"])


def test_agem_projects_as_in_v5() -> None:
    assert close(a_gem.project(tensor(V5["g"]), tensor(V5["gref"])), V5["gtilde"])


@pytest.mark.parametrize(
    ("expected", "units", "options"),
    [
        ("T2_CE_classsum", 3, {"squared": True, "form": "cross-entropy"}),
        (
            "T2_CE_mean_over_classes_2018",
            3,
            {"squared": True, "form": "cross-entropy", "mean_over_units": True},
        ),
        ("KL_batchmean_noT2", 3, {}),
        ("classIL_prev_first2_T2_CE", 2, {"squared": True, "form": "cross-entropy"}),
    ],
)
def test_distillation_as_in_v6(expected: str, units: int, options: JsonObject) -> None:
    previous = tensor(V6["prev"])[:, :units]
    assert close(distillation(tensor(V6["cur"]), previous, temperature=V6["T"], **options), V6[expected])


def test_winners_take_all_as_in_v7() -> None:
    assert close(winners(tensor(V7["x"]), V7["block"]), V7["y"])


@pytest.mark.parametrize("balance", [0.5, 0.25])
def test_networks_merge_as_in_v8(balance: float) -> None:
    networks = [{"w": tensor(V8["t1"])}, {"w": tensor(V8["t2"])}]
    importances = [{"w": tensor(V8["F1"])}, {"w": tensor(V8["F2"])}]
    weighted, expected = shares(2, balance), V8[f"alpha_{balance}"]
    assert close(merge_means(networks, weighted)["w"], expected["mean"])
    assert close(merge_modes(networks, importances, weighted, damping=V8["eps"])["w"], expected["mode"])


def test_path_importance_as_in_v9() -> None:
    assert close(path_importance(tensor(V9["w"]), tensor(V9["dtheta"]), damping=V9["xi"]), V9["omega"])


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.01), (1, 0.009877), (5, 0.007071), (9, 0.001564), (10, 0.0)]
)
def test_the_rate_falls_along_a_quarter_cosine(step: int, rate: float) -> None:
    assert 0.01 * cosine_factor(step, 10) == pytest.approx(rate, abs=5e-7)
