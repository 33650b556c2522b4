"""Tests of the forgetting gate: joining, counting, tests, rules, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import engram
from engram.cli import main
from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.datasets.files import Reading, own_file
from engram.metrics.flips import exact_test
from engram.metrics.tables import read_accuracies
from engram.record.run import Run
from engram.record.tables import Tables
from engram.results.gate import join, judge, of_table, parse_rule, read_predictions
from engram.results.gate.comparing import compare_files, read_answers
from engram.results.gate.history import read_history, versions_in
from engram.results.gate.history_page import page as history_page
from engram.results.gate.page import page
from engram.results.gate.writing import junit, markdown

Rows = dict[str, list[object]]


def made_up(n: int = 300, *, harm: float = 0.0, seed: int = 0) -> tuple[Rows, Rows]:
    """Two models of 90 % accuracy on two slices; the new one loses some more samples of the slice `night`."""
    random = np.random.default_rng(seed)
    label = random.integers(0, 3, n)
    night = random.random(n) < 0.5

    def answers(wrong: npt.NDArray[np.floating]) -> list[object]:
        return np.where(random.random(n) < wrong, (label + 1) % 3, label).tolist()  # type: ignore[no-any-return]

    old: Rows = {"id": list(range(n)), "label": label.tolist(), "prediction": answers(np.full(n, 0.1))}
    new: Rows = {**old, "prediction": answers(0.1 + harm * night)}
    old["light"] = np.where(night, "night", "day").tolist()
    return old, new


def test_counts_are_those_of_a_hand_made_table() -> None:
    old: Rows = {"id": [1, 2, 3, 4], "correct": [1, 1, 0, 0], "kind": ["a", "a", "b", "b"]}
    new = {"id": [4, 3, 2, 1], "correct": [0, 1, 0, 1]}
    outcome = compare_files(old, new, [])
    assert (outcome.overall.lost, outcome.overall.gained, outcome.overall.total) == (1, 1, 4)
    by_name = {change.name: change for change in outcome.slices}
    assert (by_name["kind=a"].lost, by_name["kind=a"].gained) == (1, 0)
    assert (by_name["kind=b"].before, by_name["kind=b"].after) == (0.0, 0.5)
    assert outcome.slices[0].name == "kind=a"


def test_slices_are_columns_of_values_and_of_true_and_false() -> None:
    old: Rows = {
        "id": [1, 2, 3, 4],
        "correct": [1] * 4,
        "dark": [True, True, None, False],
        "size": [1, 1, 2, 2],
    }
    outcome = compare_files(old, {"id": [1, 2, 3, 4], "correct": [0, 1, 1, 1]}, [])
    assert {change.name: (change.total, change.lost) for change in outcome.slices} == {
        "dark": (2, 1),
        "size=1": (2, 1),
        "size=2": (2, 0),
    }


def test_p_values_are_corrected_over_slices() -> None:
    outcome = compare_files(*made_up(900, harm=0.3), [])
    p = {change.name: change.p for change in outcome.slices}
    smallest = min(p, key=p.__getitem__)
    corrected = {change.name: change.p_holm for change in outcome.slices}
    assert corrected[smallest] == pytest.approx(min(1.0, len(p) * p[smallest]))
    assert outcome.overall.p == outcome.overall.p_holm
    assert outcome.overall.p == float(exact_test(outcome.overall.lost, outcome.overall.gained))


@pytest.mark.parametrize("quantity", ["max-drop", "max-flips", "max-worst-slice-drop"])
def test_safe_needs_evidence_and_harm_needs_evidence(quantity: str) -> None:
    """Between the two bounds neither can be shown: safe fails and harm passes."""
    old, new = made_up(300, harm=0.15)
    verdicts = {}
    for shown in ("safe", "harm"):
        for limit in ("0.001", "0.12", "0.9"):
            rule = parse_rule(quantity, f"{limit}:{shown}")  # type: ignore[arg-type]
            verdicts[shown, limit] = compare_files(old, new, [rule]).passed
    assert verdicts["safe", "0.9"]
    assert verdicts["harm", "0.9"]
    assert not verdicts["safe", "0.001"]
    assert verdicts["harm", "0.12"] >= verdicts["safe", "0.12"]
    if quantity != "max-drop":
        assert not verdicts["harm", "0.001"]


@pytest.mark.slow
@pytest.mark.parametrize(("shown", "drop"), [("safe", 0.05), ("harm", 0.05)])
def test_rules_are_wrong_at_most_as_often_as_their_level_says(shown: str, drop: float) -> None:
    """A true drop that equals the limit is called safe, or harmful, in at most 5 % of cases (plus noise)."""
    random = np.random.default_rng(0)
    rule = parse_rule("max-drop", f"{drop}:{shown}")
    wrong, repeats, n = 0, 300, 400
    for _ in range(repeats):
        kind = random.choice(3, size=n, p=[0.02 + drop, 0.02, 0.96 - drop])
        old = of_table(pl.DataFrame({"id": range(n), "correct": kind != 1}), source="old")
        new = of_table(pl.DataFrame({"id": range(n), "correct": kind != 0}), source="new")
        wrong += judge(join(old, new), [rule]).passed == (shown == "safe")
    assert wrong / repeats < 0.085


def test_worst_slice_is_found() -> None:
    rule = parse_rule("max-worst-slice-drop", "5pp:harm")
    outcome = compare_files(*made_up(2000, harm=0.3), [rule])
    assert not outcome.passed
    assert outcome.judgements[0].slice == "light=night"


def test_a_slice_that_is_too_small_to_be_safe_is_said_to_be() -> None:
    old: Rows = {"id": list(range(200)), "correct": [1] * 200, "rare": [place < 10 for place in range(200)]}
    outcome = compare_files(old, old, [parse_rule("max-worst-slice-drop", "5pp")])
    assert "with 10 samples it cannot be shown, at least 52 are needed" in outcome.judgements[0].reason
    enough = compare_files(old, old, [parse_rule("max-drop", "5pp")], min_samples=20)
    assert enough.passed
    assert enough.too_small == 1


# Files ----------------------------------------------------------------------------------------------


def test_all_kinds_of_files_say_the_same(tmp_path: Path) -> None:
    old, new = made_up(60)
    expected = compare_files(old, new, []).as_json()
    tables = {"old": pl.DataFrame(old), "new": pl.DataFrame(new).sample(fraction=1, shuffle=True, seed=1)}
    for name, table in tables.items():
        table.write_csv(tmp_path / f"{name}.csv")
        table.write_parquet(tmp_path / f"{name}.parquet")
        table.write_ndjson(tmp_path / f"{name}.jsonl")
        np.savez(tmp_path / f"{name}.npz", **{key: np.array(table[key].to_list()) for key in table.columns})  # type: ignore[arg-type]
    for ending in ("csv", "parquet", "jsonl", "npz"):
        outcome = compare_files(tmp_path / f"old.{ending}", tmp_path / f"new.{ending}", []).as_json()
        assert {**outcome, "old": "old", "new": "new"} == expected, ending


def test_lm_eval_files_are_read_as_they_are(tmp_path: Path) -> None:
    for name, scores in (("old", [1.0, 1.0, 0.0]), ("new", [1.0, 0.0, 1.0])):
        (tmp_path / name).mkdir()
        rows = [
            {
                "doc_id": number,
                "doc": {"question": "?", "choices": ["a", number]},
                "target": number,
                "arguments": {"gen_args_0": {"arg_0": "?"}},
                "resps": [["x"]],
                "filtered_resps": ["x"],
                "filter": "none",
                "metrics": ["acc", "acc_norm"],
                "doc_hash": f"hash{number}",
                "acc": score,
                "acc_norm": 1.0,
            }
            for number, score in enumerate(scores)
        ]
        for date in ("2026-01-01T00-00-00.000001", "2025-01-01T00-00-00.000001"):
            shown = rows if date.startswith("2026") else rows[:1]
            lines = "\n".join(map(json.dumps, shown))
            (tmp_path / name / f"samples_arc_easy_{date}.jsonl").write_text(lines)
    outcome = compare_files(tmp_path / "old", tmp_path / "new", [])
    assert (outcome.overall.lost, outcome.overall.gained) == (1, 1)
    assert [change.name for change in outcome.slices] == ["task=arc_easy"]
    assert compare_files(tmp_path / "old", tmp_path / "new", [], score="acc_norm").overall.after == 1
    with pytest.raises(InputError, match="unknown metric"):
        compare_files(tmp_path / "old", tmp_path / "new", [], score="f1")


def test_runs_are_compared_by_their_last_evaluation(tmp_path: Path) -> None:
    places: list[Path] = []
    for name, last in (("old", [True, True]), ("new", [True, False])):
        trace = Trace()
        for step, bits in ((1, [False, False]), (2, last)):
            trace.add(step=step, learning=0, task=0, right=np.array(bits))
        description = {"id": name, "label": name, "seed": 0}
        run = Run(description=description, finished=True, stored={}, tables=Tables(trace)).save(
            tmp_path / name
        )
        places.append(run.folder or tmp_path)
    outcome = compare_files(places[0], places[1], [])
    assert (outcome.overall.total, outcome.overall.lost) == (2, 1)
    assert outcome.slices[0].name == "task=0"


# Output ---------------------------------------------------------------------------------------------


def test_outputs_carry_the_verdict_and_escape_names() -> None:
    old, new = made_up(300, harm=0.3)
    old["light"] = [f"<b>|{value}" for value in old["light"]]
    old["text"] = ["<script>alert(1)</script>"] * 300
    outcome = compare_files(old, new, [parse_rule("max-drop", "1pp"), parse_rule("max-flips", "90%")])
    cases = ElementTree.fromstring(junit(outcome))[0]
    assert [len(case) for case in cases] == [1, 0]
    assert "light=<b>\\|night" in markdown(outcome)
    text = page(outcome)
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert f"{outcome.overall.lost} samples, right before" in text
    assert json.dumps(outcome.as_json(), allow_nan=False)


# Bad input ------------------------------------------------------------------------------------------

GOOD: Rows = {"id": [1, 2, 3], "correct": [1, 1, 0]}
BAD: list[tuple[Rows, Rows, str]] = [
    ({"id": [1, 1, 2, 2, 3], "correct": [1] * 5}, GOOD, "2 ids occur more than once: '1', '2'"),
    ({"id": [1, 2, 2, 3], "correct": [1] * 4}, GOOD, "1 id occurs more than once: '2'"),
    ({"id": [1, 2], "correct": [1, 1]}, GOOD, "1 id is only in new: '3'; leave it out with --common"),
    ({"id": [7, 8], "correct": [1, 1]}, GOOD, "no id in common: '7', '8' and '1', '2'"),
    ({"correct": [1]}, GOOD, "no column 'id'"),
    ({"id": [1, 2, 3]}, GOOD, "no column 'correct'"),
    ({"id": [1, 2, 3], "label": [1, 2, 3]}, GOOD, "no column 'prediction'"),
    ({"id": [1, None, 3], "correct": [1, 1, 1]}, GOOD, "1 sample has no id"),
    ({"id": [1, 2, 3], "correct": [1, 2, 0]}, GOOD, "row 2: correct must be 0 or 1, got 2"),
    ({"id": [1, 2, 3], "correct": [1, None, 0]}, GOOD, "row 2: correct must be 0 or 1, got None"),
    ({"id": [], "correct": []}, GOOD, "no rows"),
    (
        {"id": [1, 2, 3], "label": [0, None, 1], "prediction": [0, 0, 1]},
        GOOD,
        "1 sample has no label",
    ),
    (
        {"id": [1, 2, 3], "label": ["a", "b", "a"], "prediction": [0, 1, 0]},
        GOOD,
        "predictions and labels have no word in common",
    ),
    ({**GOOD, "kind": ["x", "y", "z"]}, GOOD, "3 slices have a single sample"),
    (
        {**GOOD, "kind": ["x", "x", "x"]},
        {**GOOD, "kind": ["x", "x", "y"]},
        "'kind' differs between old and new",
    ),
    (
        {"id": [1, 2, 3], "label": ["a", "b", "a"], "prediction": ["a", "b", "a"]},
        {"id": [1, 2, 3], "label": [0, 1, 0], "prediction": [0, 1, 0]},
        "labels have different vocabularies",
    ),
    ({**GOOD, "new": ["x", "x", "x"]}, GOOD, "a slice cannot be called 'new'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_bad_tables_are_refused(old: Rows, new: Rows, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        compare_files(old, new, [])


def test_only_ten_ids_are_listed() -> None:
    old: Rows = {"id": list(range(50)), "correct": [1] * 50}
    with pytest.raises(InputError, match=r"30 ids are only in old: .* and 20 more"):
        compare_files(old, {"id": list(range(20)), "correct": [1] * 20}, [])
    assert compare_files(old, {"id": [49, 3], "correct": [0, 1]}, [], common=True).overall.lost == 1


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        ("max-drop", "1%", "write 1pp"),
        ("max-drop", "-1pp", "from 0 to 1"),
        ("max-drop", "nan", "from 0 to 1"),
        ("max-drop", "0", "0:harm"),
        ("max-flips", "many", "such as 1%"),
        ("max-flips", "1%:sure", ":safe or :harm"),
    ],
)
def test_bad_limits_are_refused(quantity: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rule(quantity, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "id\n", "not a table", "id,correct\n1,1\n1"])
def test_broken_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "old.csv"
    file.write_text(content)
    with pytest.raises(InputError, match=re.escape(str(file))):
        read_predictions(file)
    for name in ("old.npz", "old.parquet", "old.jsonl", "old.txt"):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
            read_predictions(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_predictions(tmp_path / "nowhere.csv")


# History --------------------------------------------------------------------------------------------


def write_versions(folder: Path, versions: dict[str, list[int]]) -> None:
    for number, (name, right) in enumerate(versions.items()):
        columns: Rows = {"id": list(range(len(right))), "correct": list(right)}
        if number == 0:
            columns["kind"] = ["a", "a", "b", "b"]
        pl.DataFrame(columns).sample(fraction=1, shuffle=True, seed=number).write_csv(folder / f"{name}.csv")


def test_history_follows_samples_through_versions(tmp_path: Path) -> None:
    write_versions(tmp_path, {"v9": [1, 1, 1, 0], "v10": [1, 0, 0, 1], "v11": [1, 1, 0, 1]})
    history = read_history(versions_in(tmp_path))
    assert history.versions == ("v9", "v10", "v11")
    accuracy = {name: history.accuracy[:, column].tolist() for column, name in enumerate(history.slices)}
    assert accuracy == {
        "all samples": [0.75, 0.5, 0.75],
        "kind=a": [1.0, 0.5, 1.0],
        "kind=b": [0.5, 0.5, 0.5],
    }
    fates = history.fates().select("id", "lost in", "back in", "losses").rows()
    assert sorted(fates) == [("1", "v10", "v11", 1), ("2", "v10", None, 1)]
    summary = history.as_json()
    assert (summary["always_right"], summary["never_right"], summary["lost"]) == (1, 0, [2, 0])
    text = history_page(history)
    assert "2 samples were right once and wrong later: 1 of them are wrong now, 1 came back." in text


def test_history_refuses_what_does_not_match(tmp_path: Path) -> None:
    write_versions(tmp_path, {"v1": [1, 1, 1, 0], "v2": [1, 0, 0]})
    with pytest.raises(InputError, match=r"1 id is only in .*v1\.csv: '3'"):
        read_history(versions_in(tmp_path))
    assert len(read_history(versions_in(tmp_path), common=True, min_samples=1).right) == 3
    (tmp_path / "v2.csv").unlink()
    with pytest.raises(InputError, match="has one version: a history needs at least two"):
        versions_in(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        versions_in(tmp_path / "nowhere")


def test_history_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_versions(tmp_path, {"v1": [1, 1, 1, 0], "v2": [1, 0, 0, 0]})
    page_file = tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["history", str(tmp_path), "-o", str(page_file)])
    out, err = capsys.readouterr()
    assert ended.value.code == 0
    assert "2 samples that were right once are wrong in v2" in out
    assert f"wrote {page_file}" in err.replace("\n", "")
    assert page_file.stat().st_size > 1000


def recorded(folder: Path, right: list[bool], *, ids: list[str], dark: list[bool]) -> Path:
    recorder = engram.Recorder()
    recorder.record(
        1,
        "pets",
        right,
        ids=ids,
        labels=["cat" if place % 2 else "dog" for place in map(int, ids)],
        slices={"dark": dark},
    )
    recorder.save(folder)
    return folder


def test_runs_are_joined_by_the_ids_of_their_samples(tmp_path: Path) -> None:
    numbers = [str(number) for number in range(100)]
    right = [int(number) < 90 for number in numbers]
    dark = [int(number) < 20 for number in numbers]
    old = recorded(tmp_path / "old", right, ids=numbers, dark=dark)
    worse = [fine and int(number) >= 10 for fine, number in zip(right, numbers, strict=True)]
    new = recorded(tmp_path / "new", worse[::-1], ids=numbers[::-1], dark=dark[::-1])
    outcome = engram.gate(old, new)
    assert (outcome.overall.lost, outcome.overall.gained) == (10, 0)
    by_name = {change.name: change.lost for change in outcome.slices}
    assert by_name == {"task=pets": 10, "dark": 10, "class=cat": 5, "class=dog": 5}


def test_runs_with_other_samples_are_refused(tmp_path: Path) -> None:
    numbers = [str(number) for number in range(40)]
    old = recorded(tmp_path / "old", [True] * 40, ids=numbers, dark=[False] * 40)
    new = recorded(tmp_path / "new", [True] * 39, ids=numbers[1:], dark=[False] * 39)
    with pytest.raises(InputError, match=r"1 id is only in .*old: 'pets:0'; leave it out with --common"):
        engram.gate(old, new)
    assert engram.gate(old, new, common=True).overall.total == 39


def test_runs_without_samples_are_joined_by_place(tmp_path: Path) -> None:
    for name, updates in (("old", 5), ("new", 8)):
        engram.run("split-digits", "er", updates=updates).save(tmp_path / name)
    joined = engram.gate(tmp_path / "old", tmp_path / "new")
    # As an earlier version wrote it.
    loaded = engram.Run.load(tmp_path / "old")
    earlier = replace(loaded, tables=Tables(loaded.trace))
    assert engram.gate(earlier, tmp_path / "new").overall == joined.overall
    other = replace(earlier, test_data=tuple(replace(t, samples=3) for t in loaded.test_data))
    with pytest.raises(InputError, match="the test data of task 0 differ"):
        engram.gate(other, tmp_path / "new")


def test_a_history_without_a_drop_names_none(tmp_path: Path) -> None:
    from engram.results.gate.history import read_history
    from engram.results.gate.history_page import page

    for name, right in (("v1", 0), ("v2", 1)):
        rows = "".join(f"{number},{right},{'day' if number % 2 else 'night'}\n" for number in range(20))
        (tmp_path / f"{name}.csv").write_text(f"id,correct,light\n{rows}")
    text = page(read_history([tmp_path / "v1.csv", tmp_path / "v2.csv"]))
    assert "+100.00" not in text


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("1pp", "accuracy rose by at least 1.98pp (95 % confidence), observed a rise of 3.00pp"),
        ("1pp:harm", "no drop is shown: accuracy may have risen by as much as 4.53pp"),
    ],
)
def test_a_model_that_improved_is_said_in_plain_words(limit: str, reason: str) -> None:
    old = {"id": range(500), "correct": [1] * 480 + [0] * 20}
    new = {"id": range(500), "correct": [1] * 495 + [0] * 5}
    [judgement] = engram.gate(old, new, max_drop=limit).judgements
    assert judgement.passed
    assert judgement.reason.startswith(reason)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """One would decide, and the other would be a slice, or be ignored."""
    file = tmp_path / "new.csv"
    file.write_text("step,learning,task,accuracy,accuracy\n1,0,0,.5,.9\n")
    with pytest.raises(InputError, match="has 2 columns 'accuracy': every name must occur once"):
        read_accuracies(file)
    with pytest.raises(InputError, match="has 2 columns 'accuracy'"):
        own_file(file, Reading(label="task"))
    file.write_text("id,correct, correct\n1,1,0\n2,1,0\n")
    with pytest.raises(InputError, match="has 2 columns 'correct': every name must occur once"):
        read_predictions(file)


def test_answers_that_contradict_their_labels_are_refused() -> None:
    answers = {"id": [1, 2, 3], "label": ["a", "b", None], "prediction": ["a", "a", "a"]}
    with pytest.raises(InputError, match="new, row 2: correct is 1, but label is 'b' and prediction is 'a'"):
        read_answers({**answers, "correct": [1, 1, 1]}, "new")
    with pytest.raises(InputError, match="new, row 1: correct is 0, but label is 'a' and prediction is 'a'"):
        read_answers({**answers, "correct": [0, 0, 1]}, "new")
    assert read_answers({**answers, "correct": [1, 0, 1]}, "new").frame["correct"].to_list() == [1, 0, 1]
    numbers = {"id": [1, 2], "label": ["3", "4"], "prediction": [3.0, 5.0], "correct": [1, 0]}
    assert read_answers(numbers, "new").frame["correct"].to_list() == [True, False]


@pytest.mark.parametrize(
    ("label", "prediction", "correct"),
    [
        ([2**53, 2**53 + 1], [2**53, 2**53], [1, 0]),
        ([True, False], [1, 1], [1, 0]),
        (["True", "False"], ["true", "true"], [1, 0]),
        (["01", "1e3"], ["1", "1000"], [1, 0]),
        ([float("nan"), 1.0], [3.0, 1.0], [1, 1]),
        (["Paris", "Rome"], ["It is Paris.", "Milan"], [1, 0]),
        ([3.1, 2.5], [3.12, 3.5], [1, 0]),
        ([1, 0], [[0.1, 0.9], [0.3, 0.7]], [1, 0]),
    ],
)
def test_answers_that_are_right_in_another_way_contradict_nothing(
    label: list[object], prediction: list[object], correct: list[int]
) -> None:
    table = {"id": [1, 2], "label": label, "prediction": prediction, "correct": correct}
    assert read_answers(table, "new").frame["correct"].to_list() == correct


def test_bytes_that_are_no_text_are_refused_beside_correct() -> None:
    table = {"id": [1], "label": [b"\xff"], "prediction": [b"\xff"], "correct": [1]}
    with pytest.raises(InputError, match="the column 'label' must have text or numbers"):
        read_answers(table, "new")


def test_spaces_and_decimal_points_make_no_other_class() -> None:
    """There is no column `correct` that could contradict."""
    table = {"id": [1, 2, 3], "label": ["cat", "2", "dog"], "prediction": [" cat", "2.0", "cat"]}
    assert read_answers(table, "new").frame["correct"].to_list() == [True, True, False]


def test_a_number_that_is_nan_is_no_label_and_no_id() -> None:
    nan = [float("nan"), 1.0]
    with pytest.raises(InputError, match="1 sample has no label"):
        read_answers({"id": [1, 2], "label": nan, "prediction": nan}, "new")
    with pytest.raises(InputError, match="1 sample has no id"):
        read_answers({"id": nan, "correct": [1, 1]}, "new")


def test_a_score_is_for_files_of_lm_eval(tmp_path: Path) -> None:
    table = {"id": [1, 2], "correct": [1, 0]}
    with pytest.raises(InputError, match=r"score chooses a metric of lm-eval's .* leave score out"):
        compare_files(table, table, [parse_rule("max-drop", "1pp")], score="acc")
