"""Evaluation in distributed training: two real processes record what one process records, to the bit."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from engram.core.errors import InputError
from engram.evaluation import passes, score
from engram.evaluation.evaluator import Evaluator
from engram.evaluation.ranks import Team, whole_network
from engram.record.run import Run

UPDATES = 4
pytestmark = pytest.mark.skipif(not distributed.is_gloo_available(), reason="PyTorch has no gloo here")


def data(seed: int, samples: int = 90) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 6, generator=draw), torch.randint(3, (samples,), generator=draw)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def normalised(rank: int) -> nn.Module:
    """Equal weights on all ranks, and running means of other samples on each."""
    norm, linear = nn.BatchNorm1d(6), nn.Linear(6, 3)
    torch.manual_seed(rank)
    norm(torch.randn(8, 6) + rank)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(3, 6))
        linear.bias.zero_()
    return nn.Sequential(norm, linear)


def small_pieces() -> None:
    passes.CHUNK_BYTES = 32 * 24


def trained(net: nn.Module, watch: Evaluator) -> list[Tensor]:
    """Two tasks of a few updates, each rank on the same batches, so that one process can do it too."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for task in range(2):
        x, y = data(10 + task, 32)
        for update in range(UPDATES):
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            watch(net, learning=task, last=update == UPDATES - 1)
    return [weight.detach().clone() for weight in net.parameters()]


def plain() -> Evaluator:
    return Evaluator([data(0), data(1)], losses=True, answers=True)


def two_level() -> Evaluator:
    return Evaluator([data(0), data(1)], samples="two-level:20")


def batched() -> Evaluator:
    x, y = data(2, 200)
    sets = {"a": {"input": x[:130], "labels": y[:130]}, "b": {"input": x[130:], "labels": y[130:]}}
    return Evaluator(
        sets,
        right=lambda output, batch: output.argmax(1) == batch["labels"],
        score=score.cross_entropy(),
    )


KINDS: dict[str, Callable[[], Evaluator]] = {"plain": plain, "two-level": two_level, "batched": batched}


def work(rank: int, place: str) -> None:
    """What each process does; what it finds is compared by the test."""
    torch.set_num_threads(1)
    small_pieces()
    distributed.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=2)
    found: dict[str, object] = {}
    for kind, make in KINDS.items():
        watch = make()
        weights = trained(DistributedDataParallel(network()), watch)
        found[kind] = {"state": watch.state_dict(), "weights": weights}
        watch.save(f"{place}/run-{kind}")
    # Buffers that every process counts for itself: those of rank 0 count, and it evaluates alone.
    normed = normalised(rank)
    watch = plain()
    watch(normed, learning=0)
    found["buffers"] = watch.trace.bits
    found["messages"] = refusals(rank)
    first = Evaluator([data(0)], ranks="first")
    if rank == 0:
        first(network(), learning=0)
    found["first"] = len(first.trace)
    each = Evaluator([data(rank)], ranks="each")
    each(network(), learning=0)
    found["each"] = len(each.trace)
    found["sharded"] = sharded()
    torch.save(found, f"{place}/rank{rank}.pt")
    distributed.destroy_process_group()


def refusals(rank: int) -> list[str]:
    messages = []

    def wrong_on_rank_1(output: Tensor, batch: object) -> Tensor:
        return torch.ones(len(output) + rank, dtype=torch.bool)

    torch.manual_seed(rank)
    for watch, net in (
        (Evaluator([data(rank)]), network()),
        (Evaluator([data(0)]), nn.Linear(6, 3)),
        (Evaluator([data(0, 200)], right=wrong_on_rank_1), network()),
    ):
        torch.manual_seed(rank)
        if isinstance(net, nn.Linear):
            net.reset_parameters()
        try:
            watch(net, learning=0)
        except InputError as error:
            messages.append(str(error))
        assert len(watch.trace) == 0
    return messages


def sharded() -> dict[str, object]:
    """FSDP: refused as it is, evaluated where it is gathered."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = network()
    fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    watch = Evaluator([data(0)])
    message = ""
    try:
        watch(net, learning=0)
    except InputError as error:
        message = str(error)

    def gathered() -> nn.Module:
        weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        box: list[Any] = [weights if distributed.get_rank() == 0 else None]
        distributed.broadcast_object_list(box)
        whole = network()
        whole.load_state_dict(box[0])
        return whole

    watch(gathered, learning=0)
    alone = Evaluator([data(0)], ranks="each")
    alone(network(), learning=0)
    return {"message": message, "same": watch.trace.bits == alone.trace.bits}


def found_by(place: Path) -> list[dict[str, Any]]:
    return [torch.load(place / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def place() -> Path:
    folder = Path(tempfile.mkdtemp())
    with warnings.catch_warnings(action="ignore"):
        spawn(work, args=(str(folder),), nprocs=2)
    return folder


def equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_record_what_one_records(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "CHUNK_BYTES", 32 * 24)
    watch = KINDS[kind]()
    weights = trained(network(), watch)
    state = watch.state_dict()
    for found in found_by(place):
        there = found[kind]
        assert isinstance(there, dict)
        assert equal(there["weights"], weights), "watching together changed training"
        for part in ("trace", "levels", "scores", "answered", "readings", "index", "learned"):
            assert equal(there["state"][part], state[part]), part
    assert (place / f"run-{kind}" / "result.json").is_file()


@pytest.mark.slow
def test_buffers_that_differ_are_those_of_rank_0(place: Path) -> None:
    normed = normalised(0)
    watch = Evaluator([data(0), data(1)])
    watch(normed, learning=0)
    assert [found["buffers"] for found in found_by(place)] == [watch.trace.bits] * 2


@pytest.mark.slow
def test_what_processes_cannot_do_together_is_refused_in_all_of_them(place: Path) -> None:
    for rank, found in enumerate(found_by(place)):
        other_data, other_weights, failed = found["messages"]
        assert "the test sets of the processes differ" in other_data
        assert "the networks of the processes differ" in other_weights
        expected = "right must return one bool per sample" if rank else "failed in another process"
        assert expected in failed


@pytest.mark.slow
def test_rank_0_alone_and_each_on_its_own(place: Path) -> None:
    assert [found["first"] for found in found_by(place)] == [1, 0]
    assert [found["each"] for found in found_by(place)] == [1, 1]


@pytest.mark.slow
def test_sharded_weights_are_refused_and_evaluated_where_they_are_gathered(place: Path) -> None:
    for found in found_by(place):
        sharded = found["sharded"]
        assert isinstance(sharded, dict)
        assert "are spread over several processes (FSDP)" in str(sharded["message"])
        assert "pass a function that returns a network with all weights" in str(sharded["message"])
        assert sharded["same"]


@pytest.mark.slow
def test_the_script_on_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "own-loop.md").read_text("utf-8")
    script = re.search(r'```python title="two.py"\n(.*?)```', page, re.DOTALL)
    assert script is not None
    (tmp_path / "two.py").write_text(script[1])
    subprocess.run([sys.executable, "two.py"], cwd=tmp_path, check=True)
    run = Run.load(tmp_path / "runs" / "two")
    assert (run.task_names, run.updates, run.sizes) == (["signs"], 2, (200,))


def test_weights_of_zero_3_are_refused_in_one_line() -> None:
    net = nn.Linear(2, 2)
    setattr(net.weight, "ds_tensor", torch.zeros(1))  # noqa: B010
    with pytest.raises(InputError, match="DeepSpeed ZeRO-3") as error:
        Evaluator([(torch.eye(2), torch.tensor([0, 1]))])(net, learning=0)
    assert "\n" not in str(error.value)


def test_wrappers_are_looked_through() -> None:
    net = nn.Linear(2, 2)
    compiled: Any = torch.compile(nn.DataParallel(net), backend="eager")
    assert whole_network(compiled) is net
    assert whole_network(net) is net
    assert Team().alone


def test_an_unknown_way_to_share_is_refused() -> None:
    with pytest.raises(InputError, match="unknown choice for ranks 'all'"):
        Evaluator([(torch.eye(2), torch.tensor([0, 1]))], ranks=cast(Any, "all"))
