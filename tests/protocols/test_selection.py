"""The data that selection read is measured on the candidates' runs and shown in the protocol's card."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.protocols.made_up import Recorder, with_curve, with_metrics

from engram.engine.recipe import experiment
from engram.engine.where import Where
from engram.executors.serial import Serial
from engram.protocols.causal import CausalOptions, causal, worst_of
from engram.protocols.drive import drive
from engram.protocols.forward_transfer import forward_transfer
from engram.protocols.grid import grid
from engram.protocols.online import online
from engram.protocols.queue import queue
from engram.record.card import Card, Constraint, ForbiddenRead, selection_facts
from engram.record.experiment import Experiment, TransferSpec
from engram.record.run import Run
from engram.results.card import fact_lines


def bases(method: str = "finetune", scenario: str = "split-digits", every: int = 10**6) -> list[Experiment]:
    return [experiment(scenario, method, updates=6, evaluation={"every": every, "subset": 20})]


def selection(outcome: Any) -> list[str]:
    lines = {line.name: line.answer for line in fact_lines(Card.of_json(outcome["card"]))}
    return [lines[name] for name in ("selection on test data", "selection on later tasks")]


def causality(outcome: Any) -> str:
    return Card.of_json(outcome["card"]).constraint("causality").verdict


@pytest.mark.parametrize(("on", "touched"), [("test", "yes"), ("validation", "no")])
def test_a_grid_sees_every_task(on: Literal["test", "validation"], touched: str, tmp_path: Path) -> None:
    outcome = drive(grid(bases(), {"lr": [0.1, 0.01]}, on=on), Serial(Where(out=tmp_path))).as_json()
    assert selection(outcome) == [touched, "yes"]
    assert causality(outcome) == "broken"
    assert outcome["selection"]["selection on test data"]["figure"] == f"fields chosen among 2 on {on} data"


def test_a_single_candidate_is_not_a_choice(tmp_path: Path) -> None:
    outcome = drive(grid(bases(), {"lr": [0.1]}), Serial(Where(out=tmp_path))).as_json()
    assert selection(outcome) == ["none", "none"]
    assert causality(outcome) == "held"


def test_causal_selection_touches_test_data_but_no_later_task(tmp_path: Path) -> None:
    plan = causal(
        bases("finetune", "slt-D5-5a-digits", every=2),
        {"lr": [0.1, 0.01]},
        options=CausalOptions(later_rates=(0.1, 0.01)),
    )
    outcome = drive(plan, Serial(Where(out=tmp_path))).as_json()
    assert selection(outcome) == ["yes", "no"]
    assert causality(outcome) == "held"
    assert "the rate of task 2 chosen among 2" in outcome["selection"]["selection on test data"]["figure"]


def test_the_balance_of_merged_networks_is_a_choice(tmp_path: Path) -> None:
    plan = causal(bases("imm-mean", "slt-D5-5a-digits", every=2), {}, options=CausalOptions(later_rates=()))
    outcome = drive(plan, Serial(Where(out=tmp_path))).as_json()
    assert outcome["selection"]["selection on test data"] == {
        "answer": "yes",
        "figure": "the balance chosen among 101 on test data",
    }


def test_the_other_protocols_have_cards(tmp_path: Path) -> None:
    execute = Serial(Where(out=tmp_path))
    fields: dict[str, Sequence[float]] = {"lr": [0.1, 0.01]}
    assert selection(drive(queue(bases(), fields), execute).as_json()) == ["yes", "yes"]
    assert selection(drive(online(bases()), execute).as_json()) == ["none", "none"]
    probe = TransferSpec(shots=(1,), tuned_lrs=(0.01,), tuned_epochs=(1, 2))
    outcome = drive(forward_transfer({"finetune": bases()}, probe=probe), execute).as_json()
    assert selection(outcome) == ["no", "no"]
    assert "the probe's fine-tuning chosen among 2 on validation data" in str(outcome["selection"])


def test_what_any_seed_or_stream_read_is_in_the_card() -> None:
    """Whichever of them is the first or the worst."""

    def peeks_with_seed_1(planned: Experiment) -> Run:
        wrong = {ForbiddenRead("test", (0,)): 2} if planned.seed == 1 else {}
        constraint = Constraint("causality", "broken" if wrong else "held")
        card = Card(selection_facts(()), (constraint,), forbidden=wrong)
        curve = [(step, tasks[-1], dict.fromkeys(range(5), 0.5)) for step, tasks in _steps(planned)]
        measured = {"ACC": 0.5, "AA": 0.5}
        return replace(with_curve(planned, curve), stored=measured, by_task={"AA": [0.5] * 5}, card=card)

    seeds = [replace(bases()[0], seed=seed) for seed in (0, 1)]
    pair = [replace(bases(scenario="slt-D5-5a-digits")[0], seed=seed) for seed in (0, 1)]
    options = CausalOptions(later_rates=())
    plans = (
        grid(seeds, {}),
        queue(seeds),
        causal(pair, {}, options=options),
        worst_of({"a": pair[:1], "b": pair[1:]}, {}, options=options),
    )
    for plan in plans:
        outcome: Any = drive(plan, Recorder(peeks_with_seed_1))
        card = Card.of_json(outcome.as_json()["card"])
        assert card.constraint("causality").verdict == "broken"
        assert card.forbidden == {ForbiddenRead("test", (0,)): 2}


def _steps(planned: Experiment) -> list[tuple[int, tuple[int, ...]]]:
    return [(step, tuple(tasks)) for step, tasks in enumerate(planned.scenario.phases, start=1)]


def test_runs_without_cards_are_judged_by_what_was_asked_for() -> None:
    made_up = Recorder(lambda planned: with_metrics(planned, {"ACC": planned.optimizer.lr}))
    outcome = drive(grid(bases(), {"lr": [0.1, 0.01]}, on="validation"), made_up).as_json()
    assert "card" not in outcome
    assert [line["answer"] for line in outcome["selection"].values()] == ["no", "yes"]
