"""Logs as other tools write them become the long table that metrics are computed from."""

from __future__ import annotations

import csv
import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram.cli import main
from engram.core.errors import InputError
from engram.interop.importers import read_log
from engram.interop.wandb_files import records_in
from engram.metrics.tables import read_accuracies

MATRIX = [(1, 0, 0, 0.9), (2, 1, 0, 0.6), (2, 1, 1, 0.8)]
"""Two tasks: the first falls from .9 to .6 while the second is learned."""


def rows(path: Path, kind: str | None = None, **options: object) -> list[tuple[int, object, object, float]]:
    table = read_log(path, kind, **options)  # type: ignore[arg-type]
    return [(step, learning, task, round(value, 9)) for step, learning, task, value in table.iter_rows()]


def test_avalanche_csv(tmp_path: Path) -> None:
    """Evaluated before training, after the first and after the second experience, and twice at the end."""
    (tmp_path / "eval_results.csv").write_text(
        "eval_exp,training_exp,eval_accuracy,eval_loss,forgetting\n"
        "0,None,0.1000,2.3,0\n0,0,0.9000,0.1,0\n0,1,0.6000,0.5,0.3000\n1,1,0.8000,0.2,0\n0,1,0.5000,0.5,0.4\n"
    )
    (tmp_path / "training_results.csv").write_text("training_exp,epoch\n")
    assert rows(tmp_path) == [*MATRIX, (3, 1, 0, 0.5)]
    assert rows(tmp_path / "eval_results.csv") == rows(tmp_path)


def test_avalanche_json(tmp_path: Path) -> None:
    name = "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp00{}"
    content = {
        name.format(0): [[1, 2], [0.9, 0.6]],
        name.format(1): [[2], [0.8]],
        "Loss_Exp/eval_phase/test_stream/Task000/Exp000": [[1, 2], [0.1, 0.2]],
        "Top1_Acc_Stream/eval_phase/test_stream/Task000": [[1, 2], [0.9, 0.7]],
    }
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps(content))
    assert rows(file) == MATRIX


def test_mammoth(tmp_path: Path) -> None:
    """The last line counts; values may be NumPy's, and other entries anything."""
    file = tmp_path / "logs.pyd"
    old = "{'model': 'er', 'accmean_task1': 1.0, 'accuracy_1_task1': 1.0}\n"
    file.write_text(
        old + "{'model': 'er', 'device': device(type='cuda', index=0), 'accmean_task1': 90.0, "
        "'accuracy_1_task1': 90.0, 'accuracy_1_task2': np.float64(60.0), 'accuracy_2_task2': 80.0, "
        "'forgetting': 30.0}\n"
    )
    assert rows(file) == MATRIX


def test_pycil(tmp_path: Path) -> None:
    file = tmp_path / "reproduce_resnet32.log"
    file.write_text(
        "2026-01-01 00:00:00,000 [trainer.py] => CNN: {'total': 90.0, '00-09': 90.0, 'old': 0, 'new': 90.0}\n"
        "2026-01-01 00:00:00,000 [trainer.py] => NME: {'total': 80.0, '00-09': 80.0, 'old': 0, 'new': 80.0}\n"
        "2026-01-01 00:00:00,000 [trainer.py] => CNN: {'total': 70.0, '00-09': np.float64(60.0), "
        "'10-19': 80.0, 'old': 60.0, 'new': 80.0}\n"
    )
    assert rows(file) == [(1, "00-09", "00-09", 0.9), (2, "10-19", "00-09", 0.6), (2, "10-19", "10-19", 0.8)]


def test_mlflow(tmp_path: Path) -> None:
    (tmp_path / "metrics" / "acc").mkdir(parents=True)
    (tmp_path / "metrics" / "acc" / "task0").write_text("1700000000000 0.9 1\n1700000000001 0.6 2\n")
    (tmp_path / "metrics" / "acc" / "task1").write_text("1700000000001 0.8 2\n")
    (tmp_path / "metrics" / "loss").write_text("1700000000001 0.1 2\n")
    assert rows(tmp_path) == MATRIX


@pytest.mark.parametrize("name", ["history.csv", "history.jsonl"])
def test_wandb(tmp_path: Path, name: str) -> None:
    lines = [{"_step": 1, "test/acc_task_0": 0.9, "loss": 0.5}, {"_step": 2, "test/acc_task_0": 0.6}]
    lines[1]["test/acc_task_1"] = 0.8
    file = tmp_path / name
    if name.endswith(".csv"):
        names = ["_step", "test/acc_task_0", "test/acc_task_1", "loss"]
        cells = [",".join(str(line.get(column, "")) for column in names) for line in lines]
        file.write_text("\n".join([",".join(names), *cells]))
    else:
        file.write_text("\n".join(map(json.dumps, lines)))
    assert rows(file) == MATRIX


def test_wandb_table_of_a_page(tmp_path: Path) -> None:
    """As the pages export it: the run's name before each curve, its least and greatest value after."""
    name = "er-seed0 - accuracy/task {} {}"
    heads = [
        f"{name.format(*task)}{end}" for task in ((1, "0, 1"), (2, "2, 3")) for end in ("", "__MIN", "__MAX")
    ]
    file = tmp_path / "wandb_export.csv"
    with file.open("w", newline="") as text:
        csv.writer(text).writerows(
            [["Step", *heads], ["1", ".9", ".9", ".9", "", "", ""], ["2", ".6", ".6", ".6", ".8", ".8", ".8"]]
        )
    assert rows(file) == [(1, 1, 1, 0.9), (2, 2, 1, 0.6), (2, 2, 2, 0.8)]


def test_lm_eval(tmp_path: Path) -> None:
    for task, answers in (("arc_easy", [1, 1, 0, 1]), ("gsm8k", [0, 1])):
        lines = [
            {
                "doc_id": number,
                "doc": {},
                "target": "a",
                "filtered_resps": ["a"],
                "doc_hash": f"{task}{number}",
            }
            | {"acc": float(answer)}
            for number, answer in enumerate(answers)
        ]
        (tmp_path / f"samples_{task}_2026-01-01T00-00-00.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert rows(tmp_path) == [(1, "arc_easy", "arc_easy", 0.75), (1, "arc_easy", "gsm8k", 0.5)]


def test_mlflow_database(tmp_path: Path) -> None:
    """The tables that matter of MLflow's schema; the latest run counts."""
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE runs (run_uuid TEXT, start_time INTEGER)")
        database.execute(
            "CREATE TABLE metrics (key TEXT, value REAL, step INTEGER, is_nan INTEGER, run_uuid TEXT)"
        )
        database.executemany("INSERT INTO runs VALUES (?, ?)", [("old", 1), ("new", 2), ("empty", 3)])
        logged = [("acc_task0", 0.9, 1), ("acc_task0", 0.6, 2), ("acc_task1", 0.8, 2), ("loss", 1.0, 1)]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, 0, 'new')", logged)
        database.execute("INSERT INTO metrics VALUES ('acc_task0', 0.1, 1, 0, 'old')")
    assert rows(file) == MATRIX
    # The folder that a tracker was given, and a database of any name.
    assert rows(tmp_path) == MATRIX
    assert rows(file.rename(tmp_path / "tracked")) == MATRIX
    with pytest.raises(InputError, match="not a database of MLflow"):
        read_log(Path(__file__), "mlflow")


def test_what_is_learned_follows_from_first_evaluations_or_ends(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    lines = [{"_step": step, "a": 0.1 * step, "b": 0.05 * step} for step in range(1, 7)]
    file.write_text("\n".join(map(json.dumps, lines)))
    options: dict[str, Any] = {"pattern": "(?P<task>[ab])", "order": ["a", "b"]}
    with pytest.raises(InputError, match="give the last step of each with --ends"):
        rows(file, **options)
    learned = {step: learning for step, learning, _, _ in rows(file, **options, ends=[2, 6])}
    assert learned == {1: "a", 2: "a", 3: "b", 4: "b", 5: "b", 6: "b"}
    with pytest.raises(InputError, match="needs 2 rising steps"):
        rows(file, **options, ends=[6, 2])


def _named_tasks(folder: Path, *tasks: str) -> Path:
    """Tasks that are all evaluated after each of them."""
    file = folder / "history.csv"
    title = ",".join(["_step", *(f"eval/{task}/acc" for task in tasks)])
    file.write_text("\n".join([title, "100,.9,.2,.1", "200,.5,.8,.2", "300,.3,.6,.7"]))
    return file


def test_the_order_of_names_is_not_guessed(tmp_path: Path) -> None:
    """Names that are evaluated from the same step on say no order, and neither do the ends of tasks."""
    tasks = ["cifar", "mnist", "aircraft"]
    file = _named_tasks(tmp_path, *tasks)
    for ends in (None, [100, 200, 300]):
        with pytest.raises(InputError, match=r"in which order cifar, mnist, aircraft were learned.*--order"):
            rows(file, ends=ends)
        learned = {step: learning for step, learning, *_ in rows(file, order=tasks, ends=ends)}
        assert learned == {100: "cifar", 200: "mnist", 300: "aircraft"}
    for order in (["cifar", "mnist"], ["cifar", "mnist", "mnist"], ["cifar", "mnist", "flowers"]):
        with pytest.raises(InputError, match=r"must name every task of .* once"):
            rows(file, order=order)


def test_numbers_are_an_order_unless_another_is_given(tmp_path: Path) -> None:
    file = _named_tasks(tmp_path, "0", "1", "2")
    assert [learning for _, learning, task, _ in rows(file) if task == 0] == [0, 1, 2]
    given = rows(file, order=["2", "0", "1"])
    assert [learning for _, learning, task, _ in given if task == 0] == [2, 0, 1]


def test_an_order_that_contradicts_the_log_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    lines = [{"_step": 1, "acc/task_a": 0.9}, {"_step": 2, "acc/task_a": 0.6, "acc/task_b": 0.8}]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert [learning for _, learning, *_ in rows(file)] == ["a", "b", "b"]
    with pytest.raises(InputError, match="--order names b before a, which is evaluated earlier"):
        rows(file, order=["b", "a"])


def _log_of(folder: Path, *values: float) -> Path:
    file = folder / "history.jsonl"
    file.write_text("\n".join(json.dumps({"_step": n, "acc/task0": value}) for n, value in enumerate(values)))
    return file


def test_rounding_above_one_makes_no_percentages(tmp_path: Path) -> None:
    values = rows(_log_of(tmp_path, 1.00000012, 0.775, -1e-9))
    assert [value for *_, value in values] == [1.0, 0.775, 0.0]


def test_percentages_are_said_to_be_assumed(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="accuracies up to 77.5: they are taken for percentages"):
        assert [value for *_, value in rows(_log_of(tmp_path, 77.5, 0.5))] == [0.775, 0.005]


@pytest.mark.parametrize("value", [1.01, 1.9, 100.1, -0.5, float("inf")])
def test_values_that_are_no_accuracies_are_refused(tmp_path: Path, value: float) -> None:
    file = tmp_path / "get_all_metrics.json"
    name = "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000"
    file.write_text(json.dumps({name: [[1, 2], [0.5, value]]}))
    with pytest.raises(InputError, match="must be fractions from 0 to 1 or percentages from 0 to 100"):
        rows(file)


def _pycil_log(*evaluations: dict[str, float]) -> str:
    return "".join(f"[trainer.py] => CNN: { ({'total': 50.0} | groups)!r}\n" for groups in evaluations)


@pytest.mark.parametrize("first", [1, 2])
def test_the_last_of_several_runs_of_pycil(tmp_path: Path, first: int) -> None:
    """A run that is repeated appends to its log, also where the one before ended after its first task."""
    file = tmp_path / "run.log"
    before = [{"00-09": 100.0}, {"00-09": 20.0, "10-19": 100.0}][:first]
    file.write_text(_pycil_log(*before, {"00-09": 90.0}, {"00-09": 60.0, "10-19": 80.0}))
    with pytest.warns(UserWarning, match="has 2 runs, one after the other: only the last one is read"):
        table = rows(file)
    assert table == [(1, "00-09", "00-09", 0.9), (2, "10-19", "00-09", 0.6), (2, "10-19", "10-19", 0.8)]


def test_a_group_of_pycil_may_have_the_classes_of_several_tasks(tmp_path: Path) -> None:
    """Its first versions have groups of ten classes, also where a task has five."""
    file = tmp_path / "run.log"
    run = [{"00-09": 95.0, "old": 0}, {"00-09": 90.0, "old": 80.0}]
    run.append({"00-09": 60.0, "10-19": 80.0, "old": 0.0})
    expected = [(1, "00-09", "00-09", 0.95), (2, "00-09", "00-09", 0.9)]
    expected += [(3, "10-19", "00-09", 0.6), (3, "10-19", "10-19", 0.8)]
    file.write_text(_pycil_log(*run))
    assert rows(file) == expected
    file.write_text(_pycil_log(run[0], *run))
    with pytest.warns(UserWarning, match="has 2 runs"):
        assert rows(file) == expected


def test_fractions_in_logs_of_pycil(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    file.write_text(_pycil_log({"00-09": 0.9}, {"00-09": 0.6, "10-19": 1.0}))
    with pytest.warns(UserWarning, match="up to 1: they are taken for fractions, as in the first versions"):
        assert [value for *_, value in rows(file)] == [0.9, 0.6, 1.0]


@pytest.mark.parametrize("options", [{"pattern": "(?P<task>a)"}, {"ends": [1, 2]}, {"order": ["a", "b"]}])
@pytest.mark.parametrize("kind", ["avalanche-csv", "mammoth", "pycil", "lm-eval"])
def test_options_without_effect_are_refused(tmp_path: Path, kind: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"--{next(iter(options))} has no effect on a log of {kind}"):
        rows(tmp_path, kind, **options)


def test_tensorboard_event_files(tmp_path: Path) -> None:
    writing = pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    with writing.SummaryWriter(str(tmp_path)) as writer:
        for tag, step, value in (("acc/task0", 1, 0.9), ("acc/task0", 2, 0.6), ("acc/task1", 2, 0.8)):
            writer.add_scalar(tag, value, step)
    table = rows(tmp_path)
    assert [row[:3] for row in table] == [row[:3] for row in MATRIX]
    assert [row[3] for row in table] == pytest.approx([row[3] for row in MATRIX])


def test_a_folder_of_tensorboard_runs(tmp_path: Path) -> None:
    writing = pytest.importorskip("tensorboardX", reason="needs the extra tensorboard")
    for number, name in enumerate(("one", "two")):
        with writing.SummaryWriter(str(tmp_path / name)) as writer:
            writer.add_scalar("acc/task0", 0.5, 1)
        if number == 0:
            assert rows(tmp_path) == [(1, 0, 0, 0.5)]
    with pytest.raises(InputError, match=r"has 2 runs: name one of them: .*one, .*two"):
        rows(tmp_path)


def test_records_of_wandb_that_span_blocks(tmp_path: Path) -> None:
    """A record of 70,000 bytes takes three blocks; the last one was not written completely."""
    contents = [b"a" * 100, b"b" * 70_000, b"c" * 32_000, b"d" * 300]
    written = bytearray(b":W&B" + bytes(3))
    for content in contents:
        rest, first = content, True
        while rest or first:
            room = 2**15 - len(written) % 2**15
            if room < 7:
                written += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = 1 if first and not rest else 2 if first else 3 if rest else 4
            written += struct.pack("<IHB", 0, len(part), kind) + part
            first = False
    file = tmp_path / "run.wandb"
    file.write_bytes(written)
    assert list(records_in(file)) == contents
    file.write_bytes(written[:-10])
    assert list(records_in(file)) == contents[:-1]
    file.write_bytes(b"else")
    with pytest.raises(InputError, match="is not a file of Weights & Biases"):
        list(records_in(file))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", "", "cannot tell which tool"),
        ("metrics.json", "[]", "not what get_all_metrics"),
        ("metrics.json", "{", "not what get_all_metrics"),
        ("history.jsonl", "1\n", "every line must be a JSON object"),
        ("history.csv", "loss\n1\n", "no accuracy per task among loss"),
        ("logs.pyd", "", "has no accuracies of tasks"),
        ("run.log", "nothing", "has no accuracies of tasks"),
        ("run.log", "=> CNN: {'total': 1, '0-9': x}", "cannot read .* as a log of pycil"),
        ("eval_results.csv", "eval_exp,training_exp\n0,0\n", "it has no 'eval_accuracy'"),
        ("eval_results.csv", "eval_exp,training_exp,eval_accuracy\nx,0,1\n", "as a log of avalanche-csv"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_log(tmp_path / name)


def test_bad_options_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text("loss\n1\n")
    for options, message in (
        ({"kind": "avalanch"}, "avalanche-csv"),
        ({"pattern": "("}, "valid regular expression"),
        ({"pattern": "acc"}, "needs a group for the task"),
    ):
        with pytest.raises(InputError, match=message):
            read_log(file, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no such file"):
        read_log(tmp_path / "nowhere")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_table_is_read_by_metrics(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "logs.pyd", tmp_path / f"table.{ending}"
    log.write_text("{'accuracy_1_task1': 90.0, 'accuracy_1_task2': 60.0, 'accuracy_2_task2': 80.0}")
    with pytest.raises(SystemExit) as ended:
        main(["import", str(log), "-o", str(out), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 3, "tasks": 2, "table": str(out)}
    curve = read_accuracies(out)
    assert not isinstance(curve, np.ndarray)
    assert curve.matrix().tolist()[1] == pytest.approx([0.6, 0.8])


def test_event_files_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    with pytest.raises(InputError, match=r"an event file needs tensorboardX: pip install 'engram-eval"):
        read_log(tmp_path)
