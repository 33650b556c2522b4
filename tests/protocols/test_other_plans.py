"""Forward transfer, online and queue with made-up numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.protocols.made_up import Recorder, failed, with_curve

from engram.core.errors import InputError
from engram.core.folder import Reading
from engram.engine.probing import probe_name, tuned_name
from engram.engine.recipe import experiment
from engram.protocols.drive import drive, finished
from engram.protocols.forward_transfer import TUNED_LRS, forward_transfer, spearman
from engram.protocols.online import online
from engram.protocols.queue import queue, reported_tasks
from engram.record.experiment import Experiment, TransferSpec
from engram.record.run import Run
from engram.record.tables import Tables


def bases(method: str = "er", seeds: int = 1) -> list[Experiment]:
    return [experiment("split-digits", method, setting="task", seed=seed) for seed in range(seeds)]


def transferred(planned: Experiment) -> Run:
    """ER forgets less and transfers better; fine-tuning is best with lr .001 and 50 epochs."""
    good = 0.1 * (planned.method == "er") + 0.01 * planned.seed
    metrics = {"AvgFgt": -0.3 + good, "AvgAcc": 0.7, "AvgLAcc": planned.optimizer.lr}
    readings: list[Reading] = []
    probe = planned.evaluation.transfer
    for task in range(1, 5) if probe else ():
        assert probe is not None
        readings += [(task, task - 1, task, "FDiv", 10.0 * task)]
        readings += [(task, task - 1, task, probe_name(k), 0.5 + good + 0.01 * k) for k in probe.shots]
        for lr in probe.tuned_lrs:
            for epochs in probe.tuned_epochs:
                right = lr == 0.001 and epochs == 50
                for on, value in (("validation", 0.9 if right else 0.8), ("test", 0.6 if right else 0.99)):
                    readings += [
                        (task, task - 1, task, tuned_name(k, lr=lr, epochs=epochs, on=on), value)
                        for k in probe.shots
                    ]
    return Run(planned=planned, finished=True, stored=metrics, tables=Tables(readings=readings))


def test_averages_over_tasks_and_correlations_over_methods_and_runs() -> None:
    groups = {"er": bases("er", 3), "finetune": bases("finetune", 3)}
    outcome = drive(forward_transfer(groups, probe=TransferSpec(shots=(5, 10))), Recorder(transferred))
    er = outcome.methods["er"].runs[1]
    assert er.linear == pytest.approx({5: 0.66, 10: 0.71}) and er.diversity == 25.0
    assert er.matrix == {"AvgFgt": pytest.approx(-0.19), "AvgAcc": 0.7, "AvgLAcc": 0.05}
    correlation = outcome.correlations["AvgFgt"][5]
    assert correlation.rho == pytest.approx(1.0) and correlation.n == 6
    assert math.isnan(outcome.correlations["AvgFDiv"][5].rho), "it never changes"
    assert outcome.as_json()["methods"]["er"]["AvgFwt"]["5"] == pytest.approx(0.66)


def test_fields_are_chosen_by_learning_accuracy_on_validation_data() -> None:
    execute = Recorder(transferred)
    probe = TransferSpec(shots=(5,))
    outcome = drive(forward_transfer({"er": bases()}, {"lr": [0.1, 0.2]}, probe=probe), execute)
    search, _, probed = execute.rounds
    assert {planned.evaluation.on for planned in search} == {"validation"}
    assert probed[0].optimizer.lr == 0.2 and probed[0].evaluation.transfer == probe
    assert outcome.as_json()["choice"] == {"lr": 0.2} and len(outcome.as_json()["candidates"]) == 2


def test_fine_tuning_is_chosen_on_validation_and_reported_on_test() -> None:
    execute = Recorder(transferred)
    probe = TransferSpec(shots=(5, 10), tuned_lrs=TUNED_LRS)
    outcome = drive(forward_transfer({"er": bases()}, probe=probe), execute)
    assert execute.rounds[0][0].scenario.held_out == 0.2
    assert outcome.methods["er"].tuned_choice == {5: (0.001, 50), 10: (0.001, 50)}
    assert outcome.methods["er"].runs[0].tuned == pytest.approx({5: 0.6, 10: 0.6})
    assert outcome.as_json()["finetuning"]["5"] == {"lr": 0.001, "epochs": 50}


def test_p_values_are_those_of_the_paper() -> None:
    """Thirty points with ρ = .30 have p = .11, with .16 p = .40; twenty-five with .46 have p = .02."""
    draw = np.random.default_rng(0)
    for n, rho, p in ((30, 0.30, 0.11), (30, 0.16, 0.40), (25, 0.46, 0.02)):
        ranks = np.arange(n)
        orders = (draw.permutation(n) for _ in range(100_000))
        order = next(drawn for drawn in orders if abs(np.corrcoef(ranks, drawn)[0, 1] - rho) < 0.003)
        correlation = spearman(ranks.tolist(), order.tolist())
        assert correlation.rho == pytest.approx(rho, abs=0.003)
        assert correlation.p == pytest.approx(p, abs=0.006)


def test_few_runs_have_exact_p_values() -> None:
    """Of n! orders only the same and the reverse one correlate fully; ties make others as strong."""
    for n in (3, 4, 7, 9):
        correlation = spearman(list(range(n)), list(range(n, 0, -1)))
        assert correlation.rho == pytest.approx(-1) and correlation.p == pytest.approx(2 / math.factorial(n))
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]).p == pytest.approx(8 / 24), "as tables have it"
    assert spearman([1, 1, 2, 2], [1, 1, 2, 2]).p == pytest.approx(8 / 24)
    assert spearman(list(range(10)), list(range(10))).p == pytest.approx(2 / math.factorial(10))


def test_too_few_runs_have_no_p_value() -> None:
    assert math.isnan(spearman([1, 2], [1, 2]).p) and spearman([1, math.nan], [1, 2]).n == 1


def test_online_shows_every_sample_once_and_averages_curves() -> None:
    def make(planned: Experiment) -> Run:
        curve = [0.9, 0.5 + 0.1 * planned.seed]
        undefined = [math.nan, 0.2]
        by_task = {"AA": curve, "RAA": curve, "AF": undefined, "RAF": undefined}
        return Run(planned=planned, finished=True, stored={"AA": planned.optimizer.lr}, by_task=by_task)

    execute = Recorder(make)
    outcome = drive(online(bases(seeds=2), {"lr": [0.1, 0.3]}), execute)
    assert all(planned.scenario.passes == 1 for experiments in execute.rounds for planned in experiments)
    assert outcome.search.choice == {"lr": 0.3}
    assert outcome.curves["AA"] == pytest.approx([0.9, 0.55])
    assert math.isnan(outcome.curves["RAF"][0]) and outcome.final["RAF"] == 0.2
    assert outcome.spreads["AA"][1] == pytest.approx(0.1 / math.sqrt(2))


def test_online_tells_the_matrix_of_each_run() -> None:
    def make(planned: Experiment) -> Run:
        known = [(k + 1, k, {task: 0.9 if task == k else 0.4 for task in range(k + 1)}) for k in range(5)]
        by_task = {name: [0.5] * 5 for name in ("AA", "AF", "RAA", "RAF")}
        return replace(with_curve(planned, known), stored={"AA": 0.5}, by_task=by_task)

    outcome = drive(online(bases(seeds=2)), Recorder(make)).as_json()
    assert list(outcome["matrix"]) == outcome["runs"] and len(outcome["runs"]) == 2
    for rows in outcome["matrix"].values():
        assert rows[2][:3] == [0.4, 0.4, 0.9] and math.isnan(rows[2][3]) and len(rows) == 5


@pytest.mark.parametrize("name", ["epochs", "updates"])
def test_online_has_no_passes_to_try(name: str) -> None:
    execute = Recorder(transferred)
    with pytest.raises(InputError, match=f"leave {name} out of the grid"):
        drive(online(bases(), {name: [3, 7]}), execute)
    assert not execute.rounds


def test_queue_reports_every_tenth_task_the_best_and_the_worst() -> None:
    def make(planned: Experiment) -> Run:
        strength = planned.settings["strength"]
        if strength == 5:
            return failed(planned, "loss became nan")
        final = {1: 0.4, 10: 0.8, 100: 0.2}[int(strength)] + 0.02 * planned.seed
        by_task = {"AA": [1.0, 0.9, 0.8, 0.7, final]}
        return Run(planned=planned, finished=True, stored={"AA": final}, by_task=by_task)

    execute = Recorder(make)
    outcome = drive(queue(bases("ewc", 2), {"strength": [1, 5, 10, 100]}, every=2), execute)
    assert outcome.tasks == (1, 3, 5) and len(execute.rounds) == 1
    result = outcome.as_json()
    assert result["best"]["fields"] == {"strength": 10} and result["worst"]["fields"] == {"strength": 100}
    assert result["best"]["averages"] == pytest.approx([1.0, 0.8, 0.81])
    assert result["candidates"][1]["averages"] == [] and result["candidates"][1]["failures"]


def test_reported_tasks() -> None:
    assert reported_tasks(5) == (1, 5) and reported_tasks(11) == (1, 11) and reported_tasks(1) == (1,)
    with pytest.raises(InputError, match="every must be at least 1 task, got 0"):
        reported_tasks(5, every=0)


def test_a_plan_that_needs_a_run_says_why_it_has_none() -> None:
    with pytest.raises(InputError, match="failed and the protocol cannot continue: out of luck"):
        finished(failed(bases()[0], "out of luck"))


def test_nothing_to_run_is_refused() -> None:
    for plan in (online([]), queue([])):
        with pytest.raises(InputError, match="needs at least one experiment"):
            drive(plan, Recorder(transferred))
    with pytest.raises(InputError, match="needs at least one experiment for each method"):
        drive(forward_transfer({}), Recorder(transferred))
