"""The papers' metrics on worked examples, to six digits."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from engram.core.jsons import Json, JsonObject
from engram.metrics import curve as curves
from engram.metrics import joint, matrix
from engram.metrics.arrays import Vector
from engram.metrics.curve import Curve, History
from engram.metrics.diversity import feature_diversity
from engram.metrics.streaming import StreamingMetrics
from engram.papers.paper004.tables import forgets
from engram.papers.published import cells

VECTORS: JsonObject = json.loads(Path(__file__).with_name("vectors.json").read_text(encoding="utf-8"))
V1, V2, V3 = VECTORS["V1_stream"], VECTORS["V2_matrix"], VECTORS["V3_FDiv"]
PRECISION = 1e-6


def close(ours: ArrayLike, theirs: Json) -> bool:
    expected = np.array(theirs, dtype=np.float64)
    return bool(
        np.allclose(np.asarray(ours, dtype=np.float64), expected, rtol=0, atol=PRECISION, equal_nan=True)
    )


def stream_of_v1() -> Curve:
    ends = V1["ends"]
    rows = [
        (int(n), np.searchsorted(ends, int(n)), task, accuracy)
        for task, name in enumerate(("E1", "E2", "E3"))
        for n, accuracy in V1[name].items()
    ]
    step, learning, task, accuracy = zip(*rows, strict=True)
    return Curve.of_table(step=step, learning=learning, task=task, accuracy=accuracy)


def one_task(values: list[float]) -> Curve:
    n = len(values)
    return Curve(step=np.arange(n), learning=np.zeros(n, dtype=np.int64), accuracy=np.array([values]).T)


def per_evaluation(key: str) -> Vector:
    return np.array([V1["per_t"][str(n)][key] for n in range(13)], dtype=np.float64)


@pytest.mark.parametrize(
    ("key", "history"),
    [
        ("WCACC", curves.worst_case_accuracy(stream_of_v1())),
        ("minACC", curves.min_accuracy(stream_of_v1())),
        ("minACC_printed", curves.min_accuracy(stream_of_v1(), span="printed")),
        ("minACC_incl", curves.min_accuracy(stream_of_v1(), span="inclusive")),
    ],
)
def test_worst_case_metrics_at_every_evaluation(key: str, history: History) -> None:
    assert close(history.curve, per_evaluation(key))


@pytest.mark.parametrize("key", list(V1["windows"]))
@pytest.mark.parametrize(
    ("name", "function", "mode"),
    [
        ("WF", curves.windowed_forgetting, "exact"),
        ("WF", curves.windowed_forgetting, "refcode"),
        ("WP", curves.windowed_plasticity, "exact"),
        ("WP_refcode", curves.windowed_plasticity, "refcode"),
    ],
)
def test_windowed_metrics(key: str, name: str, function: Callable[..., History], mode: str) -> None:
    width, last = (part.partition("=")[2] for part in key.split(","))
    window = None if width == "None" else int(width)
    history = function(stream_of_v1().prefix(int(last) + 1), window=window, mode=mode)
    expected = V1["windows"][key]
    by_task = history.by_task[~np.isnan(history.by_task)]
    assert close(by_task, expected[f"{name}_tasks"])
    assert close(history.final, expected[name])


def test_streams_agree_with_the_worked_stream() -> None:
    curve = stream_of_v1()
    metrics = StreamingMetrics(3)
    for n in range(13):
        metrics.update(int(curve.learning[n]), curve.accuracy[n], updated=n > 0)
        now = metrics.get()
        assert close(
            [now["min-ACC"], now["WC-ACC"]], [V1["per_t"][str(n)][key] for key in ("minACC", "WCACC")]
        )
    assert close([now["WF10"], now["WPinf"]], [0.406667, 0.73])


def test_matrix_of_the_worked_stream() -> None:
    acc = stream_of_v1().matrix()
    assert close(matrix.final(matrix.average_accuracy(acc), acc), 0.883333)
    assert close(matrix.final(matrix.forgetting(acc), acc), 0.095)


@pytest.mark.parametrize("case", VECTORS["V1b_WP_refcode_difference"])
def test_plasticity_where_the_released_code_differs(case: JsonObject) -> None:
    curve, window = one_task(case["curve"]), case["w"]
    assert close(curves.windowed_plasticity(curve, window=window).final, case["WP_exact"])
    if "WP_refcode" in case:
        assert close(
            curves.windowed_plasticity(curve, window=window, mode="refcode").final, case["WP_refcode"]
        )
    expected = case.get("WF", case.get("WF_clamped"))
    assert close(curves.windowed_forgetting(curve, window=window).final, expected)


R = np.array(V2["R"], dtype=np.float64)


MATRIX_METRICS: dict[str, ArrayLike] = {
    "ACC": matrix.average_accuracy(R),
    "FORG": matrix.forgetting(R),
    "AF": matrix.average_forgetting(R),
    "Fgt": matrix.signed_forgetting(R),
    "AvgFgt": matrix.average_signed_forgetting(R),
    "AvgAcc": matrix.final_average_accuracy(R),
    "AvgLAcc": matrix.average_learning_accuracy(R),
    "beta_closed": matrix.forgetting_difficulty(V2["C_equal"]),
}
for kind in ("equal", "unequal"):
    classes_seen = V2[f"C_{kind}"]
    MATRIX_METRICS[f"gamma_{kind}"] = matrix.accuracy_difficulty(classes_seen)
    MATRIX_METRICS[f"RAA_{kind}"] = matrix.rescaled_average_accuracy(R, classes_seen)
    MATRIX_METRICS[f"RandAF_{kind}"] = matrix.random_forgetting(classes_seen)
    MATRIX_METRICS[f"beta_{kind}"] = matrix.forgetting_difficulty(classes_seen)
    MATRIX_METRICS[f"RAF_{kind}"] = matrix.rescaled_average_forgetting(R, classes_seen)


@pytest.mark.parametrize("key", list(V2["out"]))
def test_matrix_metrics(key: str) -> None:
    assert close(MATRIX_METRICS[key], V2["out"][key])


def test_feature_diversity() -> None:
    psi, y, epsilon = np.array(V3["Psi"]), V3["y"], V3["eps"]
    assert close(feature_diversity(psi, y, epsilon=epsilon), V3["weighted"])
    assert close(feature_diversity(psi, y, epsilon=epsilon, half=True), V3["weighted_half"])
    assert close(feature_diversity(psi, y, epsilon=epsilon, weighted=False), V3["printed_unweighted"])


@pytest.mark.parametrize("length", list(VECTORS["V11_beta"]))
def test_forgetting_difficulty_of_long_streams(length: str) -> None:
    tasks = int(length.removeprefix("K="))
    beta = matrix.forgetting_difficulty(range(2, 2 * tasks + 1, 2))
    for k, expected in VECTORS["V11_beta"][length].items():
        assert close(beta[int(k) - 1], expected)


def test_random_classifier_seems_to_forget() -> None:
    classes = [2, 4, 6, 8, 10]
    percent = VECTORS["V12_random_classifier_5x2"]["AF_percent"]
    assert np.allclose(100 * matrix.random_forgetting(classes)[1:], percent, rtol=0, atol=5e-5)
    acc = np.tril(np.repeat(matrix.random_accuracy(classes)[:, np.newaxis], 5, axis=1))
    assert close(matrix.average_forgetting(acc), matrix.random_forgetting(classes))
    assert close(matrix.average_accuracy(acc), matrix.random_accuracy(classes))


def test_omega_and_flag_of_two_task_streams() -> None:
    assert close(joint.omega_all(0.30, 0.50), 0.6)
    cell = next(cell for cell in cells("004", "3") if (cell.metric, cell.scenario) == ("q best", "D5-5"))
    assert [forgets(cell, best) for best in (0.49, 0.46, 0.50)] == [True, True, False]
