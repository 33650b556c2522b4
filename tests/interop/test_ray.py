"""A real Ray cluster of several nodes on this machine: the contract of executors, and what dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.executors.contract import (
    CHECKS,
    Make,
    left_over,
    paced,
    plugin_in,
    same_bits,
    small,
    steps_made,
    the_run_of_a_killed_worker_resumes,
)

from engram.core.errors import InputError
from engram.core.folder import CHECKPOINT, RESULT
from engram.engine.observers import Observer, Step, Watcher
from engram.engine.where import Where
from engram.executors import Executor, Machines, Ray
from engram.record.run import Run

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: make test-integrations"),
    # Ray itself warns of what later versions will do.
    pytest.mark.filterwarnings("ignore"),
]
STORE = 80 * 2**20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes of one core, each with a cache of its own."""
    ray = import_module("ray")
    caches = tmp_path_factory.mktemp("caches")
    # As `nohup` starts them: their workers ignore SIGINT, which is how Ray cancels a task.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    made = import_module("ray.cluster_utils").Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": STORE,
            "include_dashboard": False,
            "env_vars": variables(caches / "head"),
        },
    )
    made.caches = caches
    add_node(made, "second")
    signal.signal(signal.SIGINT, before)
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def add_node(cluster: Any, name: str) -> Any:
    wanted = variables(cluster.caches / name)
    return cluster.add_node(num_cpus=1, object_store_memory=STORE, env_vars=wanted)


def variables(cache: Path) -> dict[str, str]:
    """The environment of a node, whose workers do not give way to other tests."""
    return {"ENGRAM_CACHE": str(cache), "RAY_worker_niceness": "0"}


def maker(cluster: Any, *, shared: bool | None = None) -> Make:
    def make(where: Where, observers: Sequence[Observer] = ()) -> Executor:
        return Ray(where, observers, machines=Machines(on="ray", address=cluster.address), shared=shared)

    return make


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Callable[[Make, Path], None], cluster: Any, tmp_path: Path) -> None:
    check(maker(cluster), tmp_path)


@pytest.mark.parametrize("check", CHECKS[:3], ids=lambda check: check.__name__)
def test_contract_where_the_folder_is_not_shared(
    check: Callable[[Make, Path], None], cluster: Any, tmp_path: Path
) -> None:
    check(maker(cluster, shared=False), tmp_path)


def test_files_go_to_each_node_once(cluster: Any, tmp_path: Path) -> None:
    maker(cluster)(Where(out=tmp_path / "a"))([small(seed=seed) for seed in range(4)])
    nodes = [cluster.caches / "head", cluster.caches / "second"]
    kept = [{place.name: place.stat().st_ino for place in (node / "cargo").iterdir()} for node in nodes]
    assert kept[0].keys() & kept[1].keys(), "both nodes have the data"
    maker(cluster)(Where(out=tmp_path / "b"))([small(seed=seed) for seed in range(4)])
    assert kept == [
        {place.name: place.stat().st_ino for place in (node / "cargo").iterdir()} for node in nodes
    ]


def test_the_run_of_a_killed_worker_resumes(cluster: Any, tmp_path: Path) -> None:
    the_run_of_a_killed_worker_resumes(maker(cluster), tmp_path, told="died: it is run again")
    assert left_over(tmp_path / "runs") == []


def test_the_runs_of_a_removed_node_resume_on_another(cluster: Any, tmp_path: Path) -> None:
    plugin, out = plugin_in(tmp_path), tmp_path / "runs"
    paced(tmp_path)
    third = add_node(cluster, "third")
    removed: list[float] = []

    class Remove(Watcher):
        def updated(self, step: Step) -> None:
            if not removed and len(list(out.glob(f"*/{CHECKPOINT}"))) == 3:
                removed.append(time.time())
                cluster.remove_node(third, allow_graceful=False)
                (tmp_path / "stop").unlink()

    where = Where(out=out, plugin=plugin, checkpoint_seconds=0.2)
    planned = [small(), *(small("test-paced", updates=20, seed=seed) for seed in range(3))]
    maker(cluster)(where)(planned[:1])
    stamp = (out / planned[0].id / RESULT).stat().st_mtime_ns
    runs = maker(cluster)(where, [Remove()])(planned)
    assert removed and all(run.finished for run in runs), [run.failure for run in runs]
    assert (out / planned[0].id / RESULT).stat().st_mtime_ns == stamp, "what was finished is not run again"
    assert 300 <= steps_made(tmp_path) <= 300 + 30, "only the work since the last checkpoint was lost"
    assert left_over(out) == []
    (tmp_path / "slow").unlink()
    assert all(same_bits(run) for run in runs)


def sweep(cluster: Any, place: Path, *more: str) -> list[str]:
    """A sweep of three paced runs, as a person types it."""
    file = place / "sweep.toml"
    file.write_text(
        'scenario = "split-digits"\nmethod = "test-paced"\nupdates = 20\nevery = 2\nsubset = 20\nseeds = 3\n'
    )
    command = [sys.executable, "-m", "engram", "sweep", str(file), "--on", "ray", *more]
    places = ["--address", cluster.address, "--plugin", str(plugin_in(place)), "--out", str(place / "runs")]
    return [*command, *places, "--checkpoint-every", "0.2", "--json"]


def stopped_by(number: signal.Signals, cluster: Any, place: Path) -> tuple[int, str]:
    """Stop a sweep in the middle of its second run; its exit code, and what it wrote to stderr."""
    (place / "slow").touch()
    process = subprocess.Popen(
        [*sweep(cluster, place), "--jobs", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120

    def having(file: str) -> set[Path]:
        return {path.parent for path in (place / "runs").glob(f"*/{file}")}

    # For a moment, a run that is finished has a checkpoint too.
    while not having(RESULT) or not having(CHECKPOINT) - having(RESULT):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_driver_is_started_again(number: signal.Signals, cluster: Any, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    code, errors = stopped_by(number, cluster, tmp_path)
    if number == signal.SIGKILL:
        assert code == -number
    else:
        assert code == 128 + number, errors
        assert errors.strip().splitlines()[-1].startswith("error: interrupted: 1 of 3 runs are finished")
        assert "Traceback" not in errors
        assert any(Run.load(folder).status == "unfinished" for folder in out.iterdir() if folder.is_dir())
    stamps = {path: path.stat().st_mtime_ns for path in out.glob(f"*/{RESULT}")}
    assert len(stamps) == 1
    again = subprocess.run(sweep(cluster, tmp_path), capture_output=True, text=True, check=False, timeout=180)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["counts"]["done"] == 3
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert 300 <= steps_made(tmp_path) <= 300 + 20, "nothing finished is run again, and the rest resumes"
    assert left_over(out) == []
    (tmp_path / "slow").unlink()
    assert all(same_bits(Run.load(folder)) for folder in sorted(out.iterdir())[:2])


def test_a_worker_without_hope_fails_its_run_only(cluster: Any, tmp_path: Path) -> None:
    plugin = tmp_path / "dies.py"
    plugin.write_text(
        "import os, signal, engram\n"
        "@engram.method('test-dies')\n"
        "class Dies(engram.Learner):\n"
        "    'Kills its process.'\n"
        "    def after_step(self, batch):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    from engram.core.plugins import load_plugin

    load_plugin(plugin)
    bad, good = maker(cluster)(Where(out=tmp_path / "runs", plugin=plugin))([small("test-dies"), small()])
    assert good.finished and bad.failure is not None and bad.failure.kind == "crashed"
    assert "its worker died 3 times" in bad.failure.reason


def output_of(*words: object) -> dict[str, Any]:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "engram", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def assert_same_runs(folder: Path, reference: Path) -> None:
    """Assert that two folders have the same runs, to the bit, and that nothing else is left there."""
    names = sorted(path.parent.name for path in reference.glob(f"*/{RESULT}"))
    assert names and names == sorted(path.parent.name for path in folder.glob(f"*/{RESULT}"))
    assert left_over(folder) == []
    for name in names:
        run, other = Run.load(folder / name), Run.load(reference / name)
        assert run.trace == other.trace and dict(run.stored) == pytest.approx(
            other.stored, nan_ok=True, abs=0
        )


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (("grid", "split-digits", "finetune", "--grid", "lr=.1,.01", "--seeds", 2), 4),
        # What it asks for depends on what its first runs said.
        (("causal", "slt-D5-5a-digits", "finetune", "--grid", "lr=.1,.01"), 2 + 3 + 1),
    ],
    ids=["grid", "causal"],
)
def test_a_protocol_on_the_cluster_chooses_the_same(
    words: Sequence[object], runs: int, cluster: Any, tmp_path: Path
) -> None:
    words = ("protocol", *words, "--updates", 8)
    on_ray = output_of(*words, "--on", "ray", "--address", cluster.address, "--out", tmp_path / "ray")
    serial = output_of(*words, "--on", "serial", "--out", tmp_path / "serial")
    # The card has times.
    assert {**on_ray, "card": None} == {**serial, "card": None}
    assert_same_runs(tmp_path / "ray", tmp_path / "serial")
    assert len(list((tmp_path / "ray").glob(f"*/{RESULT}"))) == runs


def test_a_table_of_a_paper_is_reproduced_on_the_cluster(
    cluster: Any, tmp_path: Path, real_data: Path
) -> None:
    cells = ("--cells", "task/(Adam|L2)", "--scale", "quick", "--seeds", 2, "--data", real_data)
    words = ("reproduce", "002-table2", *cells)
    on_ray = output_of(*words, "--on", "ray", "--address", cluster.address, "--out", tmp_path / "ray")
    serial = output_of(*words, "--on", "serial", "--out", tmp_path / "serial")
    assert on_ray["pieces"] and on_ray["verdicts"] == serial["verdicts"] == {"not compared": 2}
    for piece, other in zip(on_ray["pieces"], serial["pieces"], strict=True):
        assert piece["missing"] == 0 and piece["cells"] == other["cells"]
    assert_same_runs(tmp_path / "ray", tmp_path / "serial")


def test_more_than_any_node_has_is_one_line(cluster: Any, tmp_path: Path) -> None:
    machines = Machines(on="ray", address=cluster.address, cpus_per_run=99)
    with pytest.raises(InputError, match="no node of the Ray cluster has the 99 CPUs"):
        Ray(Where(out=tmp_path / "runs"), machines=machines)([small()])


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "the Ray cluster 127.0.0.1:1 does not answer"),
        ("nonsense", "must be auto or HOST:PORT"),
    ],
)
def test_a_wrong_address_is_one_line(address: str, words: str, cluster: Any, tmp_path: Path) -> None:
    command = sweep(cluster, tmp_path)
    command[command.index("--address") + 1] = address
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2 and words in done.stderr.strip().splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr and not list((tmp_path / "runs").glob("*"))
