"""What the papers say in words, judged with made-up results: each statement can hold, and can fail to."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from tests.papers.made_up import execute

from engram.papers.catalogue import artefact, artefacts
from engram.papers.paper000.figures import gem_falls_deeper
from engram.papers.paper001 import says_of_accuracy, says_of_forgetting
from engram.papers.paper002 import in_order
from engram.papers.paper003.figures import TransferComparison, correlate
from engram.papers.paper004.tables import flags_agree
from engram.papers.published import Cell, cells
from engram.papers.reproduce import chosen_pieces, record, reproduce, statements
from engram.papers.values import Statement


def verdicts(statements: list[Statement]) -> list[bool]:
    return [statement.holds for statement in statements]


def outcome(**curves: list[float]) -> Any:
    result = SimpleNamespace(after_each_task=lambda name: [value / 100 for value in curves[name]])
    return SimpleNamespace(search=SimpleNamespace(results=[result]))


def test_accuracies_of_online_streams() -> None:
    outcomes = {
        "CIFAR100/finetune": outcome(AA=[40, 20, 10], RAA=[30, 4, -4]),
        "CIFAR100/ER": outcome(AA=[40, 30, 20], RAA=[30, 14, 24]),
        "CIFAR100/GDumb": outcome(AA=[20, 20, 15], RAA=[10, 10, 10]),
    }
    assert verdicts(says_of_accuracy(outcomes)) == [True, True, True]
    outcomes["CIFAR100/finetune"] = outcome(AA=[40, 20, 41], RAA=[30, 24, -4])
    outcomes["CIFAR100/ER"] = outcome(AA=[60, 50, 40, 30, 30, 20], RAA=[30, 24, 14, 10, 9, 7])
    assert verdicts(says_of_accuracy(outcomes)) == [False, False, False]
    outcomes["CIFAR100/ER"] = outcome(AA=[60, 50, 40], RAA=[30, 14, 14.1])
    assert verdicts(says_of_accuracy(outcomes))[2] is False, "nearly flat"
    del outcomes["CIFAR100/GDumb"]
    assert says_of_accuracy(outcomes) == []


def test_forgetting_in_online_streams() -> None:
    unknown = math.nan
    outcomes = {
        "CIFAR100/finetune": outcome(AF=[unknown, 20, 22], RAF=[unknown, 10, 50]),
        "CIFAR100/ER": outcome(AF=[unknown, 20, 21], RAF=[unknown, 10, 40]),
        "CIFAR100/GDumb": outcome(AF=[unknown, 5, 5], RAF=[unknown, 5, 15]),
    }
    assert verdicts(says_of_forgetting(outcomes)) == [True, True, True]
    outcomes["CIFAR100/ER"] = outcome(AF=[unknown, 10, 30], RAF=[unknown, 20, 25])
    assert verdicts(says_of_forgetting(outcomes)) == [False, False, False]


def test_order_of_methods() -> None:
    table = [cell for cell in cells("002", "3") if cell.scenario == "domain"]
    as_printed = {cell.method: {cell: [cell.mean]} for cell in table}
    [statement] = in_order(as_printed)
    assert statement.holds and "14 methods, Spearman's ρ 1.00" in statement.figures
    low, high = table[0], max(table, key=lambda cell: cell.mean)
    [statement] = in_order({**as_printed, high.method: {high: [low.mean - 1]}})
    assert not statement.holds and f"{low.method} and {high.method}" in statement.figures
    assert in_order({low.method: {low: [1.0]}}) == []


def test_forgetting_and_transfer() -> None:
    forgetting = [-float(k) for k in range(12)]
    correlations = correlate(
        {"here": TransferComparison({"FT": (forgetting, {5: forgetting, 10: forgetting[::-1]})})}
    )
    assert verdicts(correlations) == [True, False]
    assert "ρ = 1.00" in correlations[0].figures and "12 runs" in correlations[0].figures


def test_flags_of_catastrophic_forgetting() -> None:
    best = [cell for cell in cells("004", "3") if cell.metric == "q best"]
    judged = flags_agree({"all": {cell: [cell.mean] for cell in best}})
    assert [(statement.holds, statement.says.partition(":")[0]) for statement in judged] == [
        (True, "D5-5 and D9-1"),
        (True, "DP10-10"),
    ]
    never: dict[Cell, list[float]] = {cell: [1.0] for cell in best if cell.scenario == "D5-5"}
    [disagreement] = flags_agree({"all": never})
    assert not disagreement.holds and "not on CIFAR10 D5-5 FC" in disagreement.figures


@pytest.mark.parametrize(("gem", "holds"), [(0.5, True), (0.8, False)])
def test_depth_of_the_gap(gem: float, holds: bool) -> None:
    def runs(value: float) -> Any:
        return (SimpleNamespace(metric=lambda _: value),)

    assert verdicts(gem_falls_deeper({"MNIST/GEM": runs(gem), "MNIST/ER": runs(0.7)})) == [holds]
    assert gem_falls_deeper({"MNIST/GEM": runs(gem)}) == []
    assert gem_falls_deeper({"MNIST/GEM": runs(gem), "MNIST/ER": ()}) == []


def test_statements_are_recorded_at_full_scale_alone() -> None:
    wanted = artefact("002-table2")
    outcomes = reproduce(chosen_pieces(wanted, cells="task/(Adam|SGD|EWC)"), execute, seeds=1)
    [statement] = statements(wanted, outcomes)
    assert record(wanted, outcomes, scale="full")["statements"][0]["says"] == statement.says
    assert record(wanted, outcomes, scale="quick")["statements"] == []
    assert {reproduced.name for reproduced in artefacts().values() if reproduced.statements} >= {
        *("000-figure3", "001-figure3", "001-figure4", "002-table3"),
        *("003-figure1", "003-figure3", "004-table3", "004-table4"),
    }
