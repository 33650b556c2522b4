"""Compact stores: the same runs in few files, wherever these are, and damage is noticed."""

from __future__ import annotations

import math
import random
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import polars as pl
import pytest
import torch
from tests.results.simulated import write_run

import engram
from engram.cli.audit import required_card
from engram.cli.output import incomplete_as_json, name_incomplete
from engram.core.errors import Damaged, InputError
from engram.record.incomplete import what_to_do
from engram.record.run import Run
from engram.results.integrity import check_run
from engram.results.runs import Runs, without_damaged
from engram.results.store import compact, read_store

METHODS = ("finetune", "er")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        for seed in (0, 1):
            engram.run("split-digits", method, updates=4, seed=seed, out=out)
    return out


@pytest.fixture(scope="module")
def store(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores") / "store"
    compact(engram.load(folder), place)
    return place


def same(one: object, other: object) -> bool:
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    )


def by_id(runs: Runs) -> dict[str, Run]:
    return {run.id: run for run in runs}


def test_every_part_of_every_run_is_there(folder: Path, store: Path) -> None:
    before, after = by_id(engram.load(folder)), by_id(engram.load(store))
    assert before.keys() == after.keys()
    for name, run in before.items():
        kept = after[name]
        assert kept.description == run.description
        assert list(kept.description) == list(run.description)
        assert kept.trace == run.trace and kept.ends == run.ends and kept.readings == run.readings
        assert (kept.curve.accuracy[-1] == run.curve.accuracy[-1]).all()
        assert kept.metrics.keys() == run.metrics.keys()
        assert all(same(value, run.metrics[metric]) for metric, value in kept.metrics.items())
        for part in ("card", "account", "estimates", "why", "sizes", "classes", "phases", "test_data"):
            assert getattr(kept, part) == getattr(run, part), part
        assert kept.seconds == run.seconds and kept.updates == run.updates and kept.versions == run.versions
        assert kept.experiment.id == name


def test_scores_answers_and_samples_are_kept(tmp_path: Path) -> None:
    test_sets = {"dogs": (torch.eye(4), torch.tensor([0, 1, 2, 3]))}
    ids = [["a", "b", "c", "d"]]
    scored = engram.Evaluator(test_sets, ids=ids, score=engram.score.cross_entropy())
    answered = engram.Evaluator(test_sets, ids=ids, answers=True, slices=[{"light": ["day"] * 4}])
    named = engram.Recorder()
    for step in (1, 2):
        named.record(step, "dogs", [True, False], answers=["a dog", f"cat {step}"], learning="dogs")
    named.save(tmp_path / "runs" / "named")
    for watch, name in ((scored, "scored"), (answered, "answered")):
        watch(torch.nn.Linear(4, 4), learning="dogs", last=True)
        watch.save(tmp_path / "runs" / name)
    compact(engram.load(tmp_path / "runs"), tmp_path / "store")
    before, after = by_id(engram.load(tmp_path / "runs")), by_id(engram.load(tmp_path / "store"))
    for name, run in before.items():
        kept = after[name]
        # Texts in lists must be equal, wherever they are in memory.
        assert kept.answers.frame().equals(run.answers.frame())
        assert kept.scores == run.scores
        assert kept.samples is not None and run.samples is not None
        assert kept.samples.frame.equals(run.samples.frame)
        assert kept.tables.has_answers == run.tables.has_answers == (name != "scored")
        assert kept.task_names == ["dogs"]


def test_runs_leave_a_store_as_they_came(store: Path, tmp_path: Path) -> None:
    run = engram.load(store)[0]
    run.save(tmp_path / run.id)
    again = engram.load(tmp_path)[0]
    assert again.trace == run.trace and again.card == run.card


def test_comparisons_tables_and_pages_are_the_same(folder: Path, store: Path, tmp_path: Path) -> None:
    plain, stored = engram.load(folder), engram.load(store)
    assert stored.compare("ACC").as_json() == plain.compare("ACC").as_json()
    table, other = plain.frame().sort("id").drop("folder"), stored.frame().sort("id").drop("folder")
    assert table.equals(other.select(table.columns))
    assert stored.report(tmp_path / "a.html").read_text() == plain.report(tmp_path / "b.html").read_text()


def test_a_store_can_be_compacted_again(store: Path, tmp_path: Path) -> None:
    compact(engram.load(store), tmp_path / "again")
    assert by_id(engram.load(tmp_path / "again")).keys() == by_id(engram.load(store)).keys()


def test_duckdb_and_polars_read_it(store: Path) -> None:
    index = pl.read_parquet(store / "runs.parquet")
    assert sorted(index["method"].unique()) == sorted(METHODS)
    assert index["metrics"].struct.field("ACC").is_finite().all()
    best_of_each = f"""select r.method, max(correct / total) from '{store}/trace/*.parquet' t
        join '{store}/runs.parquet' r using (id) group by 1 order by 1"""
    rows = duckdb.connect().execute(best_of_each).fetchall()
    assert [method for method, _ in rows] == sorted(METHODS)
    assert all(0 < best <= 1 for _, best in rows)


def test_large_parts_are_several_files(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.results.store.writing.FILE_BYTES", 1)
    written = compact(engram.load(folder), tmp_path / "store")
    assert len(list((tmp_path / "store" / "trace").iterdir())) == 4
    assert written.runs == 4
    for run in engram.load(tmp_path / "store"):
        assert run.trace == by_id(engram.load(folder))[run.id].trace


def test_damage_is_noticed(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    compact(engram.load(folder), place)
    [file, *_] = sorted((place / "trace").iterdir())
    frame = pl.read_parquet(file)
    changed = [
        bytes([row[0] ^ 1]) + row[1:] if number == 0 else row for number, row in enumerate(frame["bits"])
    ]
    frame.with_columns(bits=pl.Series(changed, dtype=pl.Binary)).write_parquet(file)
    [first, *others] = engram.load(place)
    with pytest.raises(Damaged, match=r"the trace of the run .* is damaged"):
        _ = first.trace
    assert len(others[0].trace)
    index = pl.read_parquet(place / "runs.parquet")
    index.with_columns(pl.col("result").str.replace('"updates":', '"updates":1')).write_parquet(
        place / "runs.parquet"
    )
    with pytest.raises(Damaged, match="digest"):
        _ = engram.load(place)[0].card
    assert all("its digest is not that of" in check_run(run).problems[-1] for run in engram.load(place))
    index.drop("result").write_parquet(place / "runs.parquet")
    with pytest.raises(Damaged, match="lacks the columns result"):
        engram.load(place)
    (place / "runs.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot read"):
        engram.load(place)


def everything(place: Path) -> str:
    """All that is said of the runs in a store without their bits, as text."""
    return repr(
        [(run.description, run.result(), run.versions, run.tables.counts()) for run in read_store(place)]
    )


@pytest.mark.parametrize("kind", ["runs", "trace"])
def test_a_flipped_bit_is_noticed_or_changes_nothing(kind: str, store: Path, tmp_path: Path) -> None:
    place = shutil.copytree(store, tmp_path / "store")
    path = sorted(place.glob(f"{kind}*.parquet") if kind == "runs" else place.glob(f"{kind}/*"))[0]
    whole, content = everything(place), path.read_bytes()
    draw, noticed = random.Random(0), 0
    for offset in draw.sample(range(len(content)), 80):
        changed = bytearray(content)
        changed[offset] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        try:
            assert everything(place) == whole, offset
        except Damaged:
            noticed += 1
    assert noticed > 20


def test_a_text_that_is_no_json_is_damage(store: Path, tmp_path: Path) -> None:
    """Indexes of earlier versions have no digest."""
    place = shutil.copytree(store, tmp_path / "store")
    index = pl.read_parquet(place / "runs.parquet").drop("digest", "trace_counts")
    index.write_parquet(place / "runs.parquet")
    assert everything(place) == everything(store)
    for name in ("experiment", "phases", "test_data", "versions", "why", "extremes", "result"):
        index.with_columns(pl.lit("[{").alias(name)).write_parquet(place / "runs.parquet")
        with pytest.raises(Damaged, match=r"^the run \S+ in \S+ is damaged: "):
            everything(place)


def test_runs_without_metrics_have_a_store(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "er", seed=0, tasks=2, updates=5)
    (run,) = engram.load(tmp_path / "runs")
    compact([replace(run, stored={})], tmp_path / "store")
    (back,) = engram.load(tmp_path / "store")
    assert back.stored == {} and back.trace == run.trace


def test_a_file_of_tables_that_is_gone_is_damage(store: Path, tmp_path: Path) -> None:
    place = shutil.copytree(store, tmp_path / "store")
    [file, _] = sorted((place / "trace").iterdir())
    file.unlink()
    runs = without_damaged(engram.load(place))
    assert [run.method for run in runs] == ["finetune"] * 2
    assert [run.status for run in runs.incomplete] == ["damaged"] * 2


def test_what_needs_a_damaged_trace_says_so(store: Path, tmp_path: Path) -> None:
    place = shutil.copytree(store, tmp_path / "store")
    for file in (place / "trace").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    # The smallest change of ACC is that of one test sample.
    with pytest.raises(Damaged, match="cannot read"):
        engram.load(place).compare("ACC")


def test_a_damaged_run_of_a_store_is_named_by_its_id(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shutil.copytree(store, tmp_path / "store")
    [file, _] = sorted((place / "trace").iterdir())
    file.unlink()
    runs = without_damaged(engram.load(place))
    name_incomplete(runs)
    first = runs.incomplete[0].id
    assert f"left out: {first}: it is damaged: " in capsys.readouterr().err
    assert what_to_do(runs.incomplete[0]) == "write the store again with engram compact"
    assert [row["folder"] for row in incomplete_as_json(runs)] == [None, None]
    with pytest.raises(InputError, match=r"^the run er-0 was made before cards"):
        required_card(Run(description={"id": "er-0", "label": "er"}))


def test_a_damaged_run_is_left_out_and_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        write_run(tmp_path / "runs", "er", seed=seed, tasks=2, updates=5)
    trace = tmp_path / "runs" / "er-1" / "trace.parquet"
    trace.write_bytes(trace.read_bytes()[:100])
    place = tmp_path / "store"
    with monkeypatch.context() as patch:
        patch.setattr("engram.results.store.writing._row", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compact(engram.load(tmp_path / "runs"), place)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    place.mkdir()
    written = compact(engram.load(tmp_path / "runs"), place)
    assert (written.folder, written.runs) == (place, 2)
    assert [run.id for run in written.damaged] == ["er-1"]
    assert [run.id for run in engram.load(place)] == ["er-0", "er-2"]
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "store"}
    with pytest.raises(InputError, match=r"no run to compact: .*er-1"):
        compact([engram.load(tmp_path / "runs")[1]], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_compacted_is_refused(folder: Path, tmp_path: Path) -> None:
    runs = engram.load(folder)
    with pytest.raises(InputError, match="two runs have the id"):
        compact([runs[0], runs[0]], tmp_path / "a")
    with pytest.raises(InputError, match="only finished runs"):
        compact([Run(description={"id": "a", "label": "a"})], tmp_path / "b")
    with pytest.raises(InputError, match="no finished run"):
        compact([], tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        compact(runs, tmp_path / "d")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


class _Objects(BaseHTTPRequestHandler):
    """The part of the S3 protocol that reading takes: HEAD, and GET with ranges."""

    root: Path

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.root / self.path.partition("?")[0].lstrip("/").partition("/")[2]
        if not path.is_file():
            self.send_error(404)
            return
        content, status, extra = path.read_bytes(), 200, {}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            size = len(content)
            first, last = wanted.groups()
            start = int(first) if first else max(0, size - int(last))
            stop = min(size, int(last) + 1) if first and last else size
            content, status = content[start:stop], 206
            extra = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "ETag": '"1"', **extra}.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Mon, 02 Nov 2026 00:00:00 GMT")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def bucket(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    served = type("Served", (_Objects,), {"root": store.parent})
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield "s3://bucket/store"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_an_object_store_is_read(store: Path, bucket: str) -> None:
    near, far = by_id(engram.load(store)), by_id(engram.load(bucket))
    assert near.keys() == far.keys()
    name = next(iter(near))
    assert far[name].trace == near[name].trace and far[name].card == near[name].card


@pytest.mark.slow
def test_a_missing_object_is_one_line(bucket: str) -> None:
    with pytest.raises(InputError, match=r"cannot read s3://bucket/other/runs.parquet") as caught:
        engram.load("s3://bucket/other")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_commands_take_a_store(folder: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from engram.cli.app import app

    command, place = CliRunner(), tmp_path / "store"
    made = command.invoke(app, ["compact", str(folder), "-o", str(place), "--json"])
    assert made.exit_code == 0 and '"runs": 4' in made.stdout
    page = str(tmp_path / "page.html")
    for verb in (["compare"], ["audit", "--json"], ["report", "-o", page], ["table"], ["compute"]):
        done = command.invoke(app, [verb[0], str(place), *verb[1:]])
        assert done.exit_code == 0, done.output
    one = engram.load(place)[0].id
    for verb in (["samples"], ["gaps"], ["flips", "start", "end"]):
        done = command.invoke(app, [verb[0], str(place / one), *verb[1:]])
        plain = command.invoke(app, [verb[0], str(folder / one), *verb[1:]])
        assert (done.exit_code, done.stdout) == (0, plain.stdout), done.output
    with pytest.raises(InputError, match="unknown run 'nothing'"):
        command.invoke(app, ["samples", str(place / "nothing")], catch_exceptions=False)
