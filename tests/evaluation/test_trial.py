"""Whether half precision is faster: trials are made once per machine and form of network, and remembered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import engram
from engram import Evaluator
from engram.core.errors import InputError
from engram.evaluation import trial
from engram.evaluation.dense import Dense
from engram.evaluation.half import HalfScorer, half_scorer
from engram.evaluation.integers import Lattice
from engram.record.half_checked import HalfChecked

Pair = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was tried before."""
    monkeypatch.setattr(trial, "_TRIALS", {})
    yield


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which trials are remembered."""
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    monkeypatch.setenv("ENGRAM_TRIALS", "on")
    return tmp_path / "half-precision.json"


def samples(count: int = 600) -> Pair:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(10, (count,), generator=generator)
    return torch.randn(10, 64, generator=generator)[y] + torch.randn(count, 64, generator=generator), y


def perceptron(width: int = 128) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def evaluated(network: nn.Module, test: Pair | None = None, *, times: int = 3) -> HalfChecked:
    """Evaluate a few times with `auto`; the bits are those of full precision."""
    test = samples() if test is None else test
    full, auto = Evaluator([test]), Evaluator([test], precision="auto")
    for _ in range(times):
        full(network, learning=0)
        auto(network, learning=0)
    assert auto.trace == full.trace and auto.precision_record is not None
    return auto.precision_record


def outcomes(monkeypatch: pytest.MonkeyPatch, ratio: float) -> list[float]:
    """Let every trial find a ratio; returns the trials that are made."""
    made: list[float] = []

    def tried(passes: object, x: object) -> float:
        made.append(ratio)
        return ratio

    monkeypatch.setattr(trial, "_tried", tried)
    return made


# What is decided --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "used"), [(0.5, True), (0.85, True), (0.9, False), (float("inf"), False)])
def test_auto_uses_what_is_faster(ratio: float, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = outcomes(monkeypatch, ratio)
    for _ in range(2):
        record = evaluated(perceptron())
        assert record.evaluations == (3 if used else 0)
        assert ("half precision takes" in record.trial) or ratio == float("inf")
        assert ("more than 0.85" in record.why) is (ratio == 0.9)
        assert ("fails here" in record.why) is (ratio == float("inf"))
    assert len(made) == 1


def test_a_processor_without_fast_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real trial of a half precision that computes everything four times."""

    def slow(network: nn.Module, layers: list[Dense] | None, lattice: Lattice | None) -> HalfScorer:
        ask = half_scorer(network, layers, lattice)
        return HalfScorer(lambda x: torch.stack([ask.scores(x) for _ in range(4)]).mean(dim=0), ask.form)

    monkeypatch.setattr(trial, "half_scorer", slow)
    record = evaluated(perceptron(512))
    assert (
        record.evaluations == 0 and "of the time of full precision here (tried in this process)" in record.why
    )
    [found] = trial._TRIALS.values()
    assert found.ratio > 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="oneDNN's switch is for x86 processors")
def test_a_processor_that_only_has_avx2(tmp_path: Path) -> None:
    """oneDNN is told to use no later instructions: `auto` finds out by itself."""
    script = (
        "import torch, engram\n"
        "x, y = torch.randn(600, 784), torch.randint(10, (600,))\n"
        "net = torch.nn.Sequential(torch.nn.Linear(784, 400), torch.nn.ReLU(), torch.nn.Linear(400, 10))\n"
        "watch = engram.Evaluator([(x, y)], precision='auto')\n"
        "watch(net, learning=0)\n"
        "print(watch.precision_record.evaluations, watch.precision_record)\n"
    )
    settings = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ENGRAM_CACHE": str(tmp_path), "ENGRAM_TRIALS": "on"}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **settings}, capture_output=True, text=True
    )
    assert done.stdout.startswith("0 full precision: half precision"), done.stdout + done.stderr


def test_a_real_trial() -> None:
    evaluated(perceptron())
    [found] = trial._TRIALS.values()
    assert 0 < found.ratio < 100 and not found.remembered


class OnlyFloat(nn.Module):
    """A network that refuses anything but 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if hidden.dtype is not torch.float32:
            raise RuntimeError("expected 32 bits")
        scores: Tensor = self.last(hidden.relu())
        return scores


def test_a_trial_that_fails_means_full_precision_and_is_not_remembered(cache: Path) -> None:
    record = evaluated(OnlyFloat())
    assert record.evaluations == 0 and record.why.startswith("half precision fails here")
    assert not cache.exists()


def test_a_network_with_a_single_output() -> None:
    x, y = samples()
    record = evaluated(nn.Linear(64, 1), (x, y % 2))
    assert record.evaluations <= 1


# What is remembered -----------------------------------------------------------------------------------


def test_trials_are_remembered_for_other_processes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = outcomes(monkeypatch, 0.5)
    assert evaluated(perceptron()).trial.endswith("(tried in this process)")
    [(kind, entry)] = json.loads(cache.read_text())["trials"].items()
    assert entry["ratio"] == 0.5 and f"torch {torch.__version__}" in kind and "[512, 64]" in kind
    monkeypatch.setattr(trial, "_TRIALS", {})
    record = evaluated(perceptron())
    assert record.evaluations == 3
    assert record.trial.endswith(f"here (remembered from {entry['day']} in {cache})")
    assert record.trial in str(record) and len(made) == 1
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


def test_other_forms_sizes_and_threads_are_other_trials(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = outcomes(monkeypatch, 0.5)
    before = torch.get_num_threads()
    evaluated(perceptron())
    evaluated(perceptron())
    evaluated(perceptron(64))
    evaluated(perceptron(), samples(300))
    try:
        torch.set_num_threads(before + 1)
        evaluated(perceptron())
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(trial, "machine", lambda: "another machine")
    evaluated(perceptron())
    assert len(made) == len(json.loads(cache.read_text())["trials"]) == 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"form": 1, "trials": [1]}',
        b'{"form": 0, "trials": {}}',
        b'{"form": 1, "trials": {"KIND": 3}}',
        b'{"form": 1, "trials": {"KIND": {"ratio": "fast", "day": 3}}}',
        b'{"form": 1, "trials": {"KIND": {"ratio": -1}}}',
    ],
    ids=repr,
)
def test_a_broken_file_means_another_trial(
    content: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = outcomes(monkeypatch, 0.5)
    evaluated(perceptron())
    [kind] = json.loads(cache.read_text())["trials"]
    cache.write_bytes(content.replace(b"KIND", kind.encode()))
    monkeypatch.setattr(trial, "_TRIALS", {})
    assert evaluated(perceptron()).trial.endswith("(tried in this process)")
    assert len(made) == 2 and json.loads(cache.read_text())["trials"][kind]["ratio"] == 0.5


def test_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(cache.parent / "file"))
    (cache.parent / "file").write_text("not a folder")
    made = outcomes(monkeypatch, 0.5)
    assert evaluated(perceptron()).evaluations == 3 and len(made) == 1


def test_remembering_is_switched_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_TRIALS", "off")
    outcomes(monkeypatch, 0.5)
    assert evaluated(perceptron()).evaluations == 3 and not cache.exists()
    monkeypatch.setenv("ENGRAM_TRIALS", "maybe")
    monkeypatch.setattr(trial, "_TRIALS", {})
    with pytest.raises(InputError, match="ENGRAM_TRIALS must be on or off, got 'maybe'"):
        evaluated(perceptron())


def test_the_file_does_not_grow_for_ever(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "KEPT", 3)
    for number in range(5):
        trial.remember(cache, f"kind {number}", trial.Trial(0.5))
    assert list(json.loads(cache.read_text())["trials"]) == ["kind 2", "kind 3", "kind 4"]


@pytest.mark.slow
def test_the_workers_of_a_sweep_share_trials(cache: Path, tmp_path: Path) -> None:
    runs = engram.sweep(
        {"scenario": "split-digits", "method": ["er", "finetune"], "updates": 3, "tasks": "all"},
        out=tmp_path / "runs",
        jobs=2,
        precision="auto",
    )
    [entry] = json.loads(cache.read_text())["trials"].values()
    again = engram.sweep(
        {"scenario": "split-digits", "method": ["er", "finetune"], "updates": 4, "tasks": "all"},
        out=tmp_path / "again",
        jobs=2,
        precision="auto",
    )
    assert len(list(runs)) == len(list(again)) == 2
    for run in again:
        assert run.precision is not None and f"remembered from {entry['day']}" in run.precision.trial
