"""Causal selection with made-up accuracies: which data each choice may use."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.protocols.made_up import Recorder, failed, with_curve

from engram.core.errors import InputError
from engram.engine.probing import balance_name
from engram.engine.recipe import experiment
from engram.protocols.causal import CausalOptions, causal, worst_of
from engram.protocols.drive import drive
from engram.protocols.pooled import forgetting_threshold
from engram.record.card import Selected
from engram.record.experiment import Experiment, PhaseSpec
from engram.record.failure import FailureKind
from engram.record.run import Run
from engram.record.tables import Tables
from engram.scenarios import prefix

RATES = CausalOptions(later_rates=(1e-3, 1e-4))


def base(method: str = "finetune", scenario: str = "slt-D5-5a-digits") -> Experiment:
    return experiment(scenario, method)


def second_rate(planned: Experiment) -> float | None:
    return planned.of_phase(1).lr


def made_up(planned: Experiment) -> Run:
    """D1 is learned best at rate .01; a high second rate learns D2 well and forgets, a low one keeps more."""
    if len(planned.scenario.phases) == 1 and len(planned.scenario.phases[0]) == 2:
        return with_curve(
            planned, [(10, 1, {0: 0.5, 1: 0.7}), (20, 1, {0: 0.9, 1: 0.9}), (30, 1, {0: 0.8, 1: 0.8})]
        )
    top = 0.9 if planned.optimizer.lr == 0.01 else 0.8
    first = [(10, 0, {0: top}), (20, 0, {0: top - 0.1})]
    fast = [(30, 1, {0: 0.4, 1: 0.6}), (40, 1, {0: 0.0, 1: 0.9})]
    slow = [(30, 1, {0: 0.7, 1: 0.3}), (40, 1, {0: 0.6, 1: 0.5})]
    second = {1e-3: fast, 1e-4: slow, None: slow}
    later = second[second_rate(planned)] if len(planned.scenario.phases) == 2 else []
    return with_curve(planned, [*first, *later])


def test_algorithm_1() -> None:
    execute = Recorder(made_up)
    outcome = drive(causal([base()], {"lr": [0.001, 0.01]}, options=RATES), execute)
    assert [c.score for c in outcome.candidates] == [0.8, 0.9]
    assert outcome.choice == {"lr": 0.01, "later_lr": [1e-3]}
    assert [c.score for c in outcome.rates[0]] == [0.9, 0.5]
    assert (outcome.best, outcome.last, outcome.baseline) == pytest.approx((0.5, 0.45, 0.9))
    assert outcome.omega_all == pytest.approx(0.5 / 0.9)
    assert not outcome.forgets
    selection, trials, final = execute.rounds
    assert all(planned.scenario.phases == ((0,),) for planned in selection)
    assert all(planned.scenario.n_units == 10 for planned in selection)
    assert [second_rate(planned) for planned in trials] == [1e-3, 1e-4]
    assert final[0] == trials[0], "the chosen run is the trial itself, not another one"
    assert final[1].scenario.phases == ((0, 1),) and final[1].by_phase == () and final[1].optimizer.lr == 0.01


def ending(planned: Experiment, kind: FailureKind, *, measured: bool) -> Run:
    """As `made_up`, but the run of both tasks at once ends after its second evaluation, or before any."""
    run = made_up(planned)
    if len(planned.scenario.phases) == 1 and len(planned.scenario.phases[0]) == 2:
        until = [(10, 1, {0: 0.5, 1: 0.7}), (20, 1, {0: 0.6, 1: 0.8})] if measured else []
        return failed(planned, "it ended early", kind=kind, trace=with_curve(planned, until).trace)
    return run


def test_a_baseline_that_diverges_is_what_it_reached_before() -> None:
    execute = Recorder(partial(ending, kind=FailureKind.DIVERGED, measured=True))
    outcome = drive(causal([base()], {"lr": [0.01]}, options=RATES), execute)
    assert (outcome.best, outcome.last, outcome.baseline) == pytest.approx((0.5, 0.45, 0.7))


@pytest.mark.parametrize(
    ("kind", "measured"),
    [
        (FailureKind.DIVERGED, False),
        *((kind, True) for kind in FailureKind if kind is not FailureKind.DIVERGED),
    ],
)
def test_a_baseline_of_which_nothing_is_known_ends_the_protocol(kind: FailureKind, measured: bool) -> None:
    execute = Recorder(partial(ending, kind=kind, measured=measured))
    with pytest.raises(InputError, match="cannot continue: it ended early"):
        drive(causal([base()], {"lr": [0.01]}, options=RATES), execute)


def test_the_second_rate_may_be_chosen_by_both_tasks_together() -> None:
    options = replace(RATES, choose_by="union")
    outcome = drive(causal([base()], {"lr": [0.01]}, options=options), Recorder(made_up))
    assert outcome.choice["later_lr"] == [1e-4]
    assert (outcome.best, outcome.last) == pytest.approx((0.55, 0.55))


def test_the_second_task_may_start_from_the_best_weights_of_the_first() -> None:
    execute = Recorder(made_up)
    drive(causal([base()], {"lr": [0.01]}, options=replace(RATES, start="best")), execute)
    assert [planned.by_phase for planned in execute.rounds[1]] == [
        (PhaseSpec(updates=10), PhaseSpec(lr=1e-3)),
        (PhaseSpec(updates=10), PhaseSpec(lr=1e-4)),
    ]


@pytest.mark.parametrize(
    "planned",
    [
        experiment("slt-D5-5a-digits", "finetune", schedule="cosine"),
        experiment("slt-D5-5a-digits", "lp-ft"),
        replace(
            experiment("split-digits", "packnet", setting="task"),
            scenario=prefix(experiment("split-digits", "packnet", setting="task").scenario, 2),
        ),
    ],
    ids=lambda planned: planned.method,
)
def test_a_task_is_learned_again_as_it_was_where_its_length_matters(planned: Experiment) -> None:
    execute = Recorder(made_up)
    drive(causal([planned], {"lr": [0.01]}, options=replace(RATES, start="best")), execute)
    assert [run.by_phase for run in execute.rounds[1]] == [
        (PhaseSpec(stop=10), PhaseSpec(lr=1e-3)),
        (PhaseSpec(stop=10), PhaseSpec(lr=1e-4)),
    ]


def test_where_a_task_stops_is_a_choice() -> None:
    options = replace(RATES, start="best", later_rates=())
    outcome = drive(causal([base()], {"lr": [0.01]}, options=options), Recorder(made_up))
    assert outcome.choices == (Selected("where task 1 stops", 2, ("test",), later=False),)
    told = outcome.as_json()["selection"]["selection on test data"]
    assert told == {"answer": "yes", "figure": "where task 1 stops chosen among 2 on test data"}
    on_validation = replace(options, on="validation")
    outcome = drive(causal([base()], {"lr": [0.01]}, options=on_validation), Recorder(made_up))
    assert outcome.choices[0].parts == ("validation",)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("finetune", CausalOptions(later_rates=(0.1, -1.0)), "lr must be above 0 and finite, got -1"),
        ("finetune", CausalOptions(later_rates=(float("nan"),)), "lr must be above 0 and finite, got nan"),
        ("finetune", CausalOptions(tie_strength=True), "unknown field 'strength'"),
        ("gdumb", CausalOptions(), "one learning rate for all tasks"),
    ],
)
def test_rates_that_later_tasks_cannot_use_are_refused_first(
    method: str, options: CausalOptions, words: str
) -> None:
    execute = Recorder(made_up)
    with pytest.raises(InputError, match=words):
        drive(causal([base(method)], {"lr": [0.01]}, options=options), execute)
    assert not execute.rounds


def test_validation_data_choose_and_test_data_report() -> None:
    execute = Recorder(made_up)
    options = replace(RATES, on="validation", held_out=0.1)
    drive(causal([base()], {"lr": [0.001, 0.01]}, options=options), execute)
    selection, trials, final = execute.rounds
    assert {planned.evaluation.on for planned in selection + trials} == {"validation"}
    assert {planned.evaluation.on for planned in final} == {"test"}
    assert {planned.scenario.held_out for planned in selection + trials + final} == {0.1}


def test_the_strength_of_ewc_may_follow_the_second_rate() -> None:
    execute = Recorder(made_up)
    drive(causal([base("ewc")], {"lr": [0.01]}, options=replace(RATES, tie_strength=True)), execute)
    assert [planned.settings["strength"] for planned in execute.rounds[1]] == pytest.approx([500, 5000])


def test_several_seeds_choose_by_their_mean() -> None:
    execute = Recorder(made_up)
    bases = [experiment("slt-D5-5a-digits", "finetune", seed=seed) for seed in (0, 1)]
    outcome = drive(causal(bases, {"lr": [0.001, 0.01]}, options=RATES), execute)
    assert [len(experiments) for experiments in execute.rounds] == [4, 4, 4]
    assert outcome.candidates[0].scores == (0.8, 0.8) and len(outcome.runs) == 2
    assert outcome.best == pytest.approx(0.5)


def test_any_number_of_tasks_and_never_a_later_one() -> None:
    def make(planned: Experiment) -> Run:
        phases = planned.scenario.phases
        if len(phases) == 1 and len(phases[0]) == 3:
            return with_curve(planned, [(1, 2, {0: 0.8, 1: 0.8, 2: 0.8})])
        curve = []
        for number in range(len(phases)):
            rate = planned.of_phase(number).lr or 1e-4
            old = 0.4 if rate == 1e-3 else 0.6
            # The second task is learned best at the high rate, the third at the low one.
            new = 0.9 if (rate == 1e-3) == (number == 1) else 0.5
            for later, shift in ((1, 0.0), (2, -0.1)):
                accuracies = dict.fromkeys(range(number), old + shift) | {number: new + shift}
                curve.append((10 * number + later, number, accuracies))
        return with_curve(planned, curve)

    stream = replace(
        base(scenario="split-digits"), scenario=prefix(base(scenario="split-digits").scenario, 3)
    )
    execute = Recorder(make)
    outcome = drive(causal([stream], {}, options=replace(RATES, start="best")), execute)
    assert [
        sorted({len(planned.scenario.phases) for planned in experiments}) for experiments in execute.rounds
    ] == [
        [1],
        [2],
        [3],
        [1, 3],
    ]
    assert outcome.chosen_rates == (1e-3, 1e-4)
    assert execute.rounds[3][0].by_phase == (
        PhaseSpec(updates=1),
        PhaseSpec(lr=1e-3, updates=9),
        PhaseSpec(lr=1e-4),
    )
    assert outcome.runs[0].so_far == pytest.approx(((0.4 + 0.9) / 2, (0.6 + 0.6 + 0.9) / 3))
    assert outcome.omega_all == pytest.approx((0.65 / 0.8 + 0.7 / 0.8) / 2)


def test_merged_networks_are_judged_by_the_best_balance() -> None:
    def make(planned: Experiment) -> Run:
        result = made_up(planned)
        if not planned.evaluation.balances:
            return result
        readings = tuple((40, 1, None, balance_name(a / 100), 0.3 + 0.4 * (a == 37)) for a in range(101))
        return replace(result, tables=Tables(result.trace, readings=readings))

    execute = Recorder(make)
    outcome = drive(
        causal([base("imm-mean")], {"lr": [0.01]}, options=CausalOptions(later_rates=())), execute
    )
    assert outcome.choice == {"lr": 0.01, "later_lr": [None]}
    assert outcome.best == pytest.approx(0.7) and outcome.last == pytest.approx(0.55)
    assert len(outcome.runs[0].balances) == 101
    assert max(outcome.runs[0].balances, key=lambda point: point[1])[0] == 0.37
    assert [planned.evaluation.balances for planned in execute.rounds[-1]] == [True, False]


def test_cells_of_tables_are_minima_taken_apart() -> None:
    """The reference's example: best .49, .46, .50 and last .10, .45, .30 make the cell .46 / .10."""
    codes = {"D9-1a": (0.49, 0.10), "D9-1b": (0.46, 0.45), "D9-1c": (0.50, 0.30)}

    def make(planned: Experiment) -> Run:
        high, low = codes[planned.scenario.name.removeprefix("slt-").removesuffix("-digits")]
        if len(planned.scenario.phases[0]) == 2:
            return with_curve(planned, [(1, 1, {0: 0.5, 1: 0.5})])
        points = [(1, 0, {0: 0.9})]
        points += (
            [(2, 1, {0: high, 1: high}), (3, 1, {0: low, 1: low})]
            if len(planned.scenario.phases) == 2
            else []
        )
        return with_curve(planned, points)

    bases = {f"slt-{code}-digits": [base(scenario=f"slt-{code}-digits")] for code in codes}
    outcome = drive(worst_of(bases, {}, options=RATES), Recorder(make))
    assert (outcome.best, outcome.last) == pytest.approx((0.46, 0.10))
    assert outcome.forgets and outcome.as_json()["omega_all"] == pytest.approx(0.92)


def test_forgetting_is_below_the_limits_of_the_paper() -> None:
    assert forgetting_threshold("slt-D5-5c-mnist", [1, 1]) == 0.5
    assert forgetting_threshold("slt-DP10-10-fashion-mnist", [1, 1]) == 0.5
    assert forgetting_threshold("split-digits", [20, 20, 10]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (lambda: CausalOptions(choose_by="old"), "unknown way to choose a rate 'old'"),  # type: ignore[arg-type]
        (lambda: CausalOptions(start="first"), "unknown start 'first'"),  # type: ignore[arg-type]
        (lambda: CausalOptions(on="train"), "unknown data to select on 'train'"),  # type: ignore[arg-type]
        (lambda: CausalOptions(later_rates=(), tie_strength=True), "needs two tasks, and rates"),
    ],
)
def test_bad_options(options: Callable[[], CausalOptions], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drive(causal([base("ewc")], {}, options=options()), Recorder(made_up))


def test_one_task_is_too_few() -> None:
    one = replace(base(), scenario=prefix(base().scenario, 1))
    with pytest.raises(InputError, match="needs at least two tasks"):
        drive(causal([one], {}), Recorder(made_up))
