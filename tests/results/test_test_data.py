"""Runs on different test data are not put side by side silently."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engram.core.errors import InputError
from engram.core.trace import Trace
from engram.metrics.summary import summarise
from engram.record.run import Run
from engram.record.tables import Tables
from engram.record.test_data import TestData
from engram.results.compare import compare_runs
from engram.results.report import write_report
from engram.results.runs import Runs, group_runs
from engram.results.table import table_of
from engram.results.test_data import other_data_among, other_data_between

DIGITS = TestData(10, "labels", 10, "digits", "some")
OTHERS = replace(DIGITS, content="others")
FEWER = TestData(8, "fewer", 8, "digits", "some")


def a_run(label: str, seed: int, *data: TestData, draw: str = "") -> Run:
    trace = Trace()
    for step in (1, 2):
        for task in range(step):
            right = np.arange(10) < 5 + seed + task + 2 * (label == "b")
            trace.add(step=step, learning=step - 1, task=task, right=right)
    measured = summarise(trace)
    description = {"id": f"{label}-{seed}", "label": label, "seed": seed, "tasks": [draw or "one", "two"]}
    return Run(
        description=description,
        finished=True,
        stored=measured.final,
        by_task=measured.by_task,
        why=measured.why,
        test_data=data,
        tables=Tables(trace),
    )


def runs_of(label: str, *data: TestData, seeds: int = 3) -> list[Run]:
    return [a_run(label, seed, *data) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ((DIGITS, OTHERS), "task 1: as many samples, with other inputs"),
        ((FEWER, DIGITS), "task 0: 10 and 8 samples"),
        ((replace(DIGITS, labels="x"), DIGITS), "task 0: as many samples, with other labels"),
        ((DIGITS,), "2 and 1 tasks"),
    ],
)
def test_compare_refuses_other_test_data(other: tuple[TestData, ...], what: str) -> None:
    message = (
        f"a and b cannot be compared: with seed 0 they were evaluated on different test data .{what}; a-0"
    )
    with pytest.raises(InputError, match=message):
        compare_runs([*runs_of("a", DIGITS, DIGITS), *runs_of("b", *other)])


def test_compare_takes_the_same_test_data() -> None:
    compared = compare_runs([*runs_of("a", DIGITS, OTHERS), *runs_of("b", DIGITS, OTHERS)])
    assert compared.notes == ()


def test_compare_says_what_it_could_not_check() -> None:
    compared = compare_runs([*runs_of("a", DIGITS, OTHERS), *runs_of("b")])
    assert compared.notes == (
        "the test data of b are not recorded, so it could not be checked whether all methods were evaluated "
        "on the same",
    )
    assert compared.as_json()["notes"] == list(compared.notes)


def test_compare_notes_samples_that_were_drawn_apart() -> None:
    apart = replace(DIGITS, evaluated="other samples")
    compared = compare_runs([*runs_of("a", DIGITS, DIGITS), *runs_of("b", DIGITS, apart)])
    note = "a, b were evaluated on different samples of the same test sets, which adds noise"
    assert compared.notes == (f"{note} to their differences",)


def test_seeds_of_one_method_on_other_test_data_are_noted() -> None:
    def mixed(label: str) -> list[Run]:
        return [a_run(label, 0, DIGITS, DIGITS), a_run(label, 1, DIGITS, OTHERS)]

    compared = compare_runs([*mixed("a"), *mixed("b")])
    assert compared.notes[0].startswith(
        "a: seeds 0 and 1 were evaluated on different test data (task 1: as many"
    )
    assert other_data_among([a_run("a", 0, DIGITS), a_run("a", 1, OTHERS, draw="other classes")]) == ""


def test_the_report_says_which_experiments_cannot_be_compared(tmp_path: Path) -> None:
    runs = [*runs_of("a", DIGITS, DIGITS), *runs_of("b", DIGITS, OTHERS), *runs_of("c", DIGITS, DIGITS)]
    page = Runs(runs).report(tmp_path / "page.html").read_text()
    assert (
        "Not all experiments were evaluated on the same test data, so they cannot be compared: a, c; b."
        in page
    )
    alike = Runs(runs_of("a", DIGITS, DIGITS) + runs_of("c", DIGITS, DIGITS)).report(tmp_path / "alike.html")
    assert "the same test data" not in alike.read_text()


def test_the_report_says_that_seeds_differ(tmp_path: Path) -> None:
    write_report([a_run("a", 0, DIGITS, DIGITS), a_run("a", 1, DIGITS, OTHERS)], tmp_path / "page.html")
    assert "Seeds 0 and 1 were evaluated on different test data" in (tmp_path / "page.html").read_text()


def test_experiments_without_a_common_seed_are_judged_by_their_first_runs() -> None:
    groups = group_runs([a_run("a", 0, DIGITS, DIGITS), a_run("b", 1, OTHERS, DIGITS)])
    assert other_data_between(groups).endswith("cannot be compared: a; b.")


def test_a_table_says_that_its_rows_cannot_be_compared() -> None:
    other = table_of([*runs_of("a", DIGITS, DIGITS), *runs_of("b", DIGITS, OTHERS)], ["ACC"])
    [note] = other.notes
    assert note.startswith("Not all experiments were evaluated on the same test data")
    assert note in other.markdown()
    assert not table_of([*runs_of("a", DIGITS, DIGITS), *runs_of("b", DIGITS, DIGITS)], ["ACC"]).notes
