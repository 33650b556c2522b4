"""The observer that keeps weights: those at the end of a run, or those after every task."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.core.files import is_file
from engram.core.schema import as_fields
from engram.datasets.transforms import prepared_shape
from engram.engine.observers import Step, Watcher
from engram.evaluation.guard import same_randomness
from engram.methods import traits_of
from engram.methods.state import State
from engram.models.kept import Kept, save_weights
from engram.models.network import Network
from engram.models.weights import sha256_of
from engram.record.experiment import Experiment
from engram.record.run import REPAIR, Run
from engram.record.weights import FINAL, task_file
from engram.scenarios.values import Scenario

Save = Literal["final", "tasks"]


class WeightKeeper(Watcher):
    """Keeps the weights of a run in its folder; the run itself is not changed.

    What is kept is the network that answers: a method that merges networks keeps the merged one. A run that
    resumes writes the same files again, or finds them there.

    Args:
        folder: The folder of the run.
        experiment: The experiment.
        save: Whether to keep the weights at the end, or after every task.
    """

    def __init__(self, folder: Path, experiment: Experiment, save: Save) -> None:
        self.folder, self.experiment, self.save = folder, experiment, save
        self.phases = len(experiment.scenario.phases)

    @property
    def files(self) -> list[str]:
        """The files that a finished run has."""
        return [FINAL] if self.save == "final" else [task_file(n) for n in range(1, self.phases + 1)]

    def task_ended(self, step: Step) -> None:
        """Keep the weights after a task, or at the end."""
        last = step.step == step.steps
        phase = self.phases if last else self._phase_of(step)
        if step.method is None or (self.save == "final" and not last):
            return
        with same_randomness():
            network = step.method.predictor()
        if not isinstance(network, Network):
            raise InputError(
                f"method {self.experiment.method} answers with {type(network).__name__}, not with one "
                "network, so its weights cannot be kept: leave save_weights out"
            )
        path = self.folder / (FINAL if self.save == "final" else task_file(phase))
        save_weights(path, network.state_dict(), about(self.experiment, phase=phase))

    def _phase_of(self, step: Step) -> int:
        """How many phases have ended."""
        phases = self.experiment.scenario.phases
        return 1 + next(number for number, tasks in enumerate(phases) if tasks[-1] == step.learning)

    def lacks(self, state: State) -> bool:
        """Whether a checkpoint comes after the end of a task whose weights are not there."""
        learned = int(state["place"]["phase"])
        needed = self.files[:learned] if self.save == "tasks" else []
        return any(not is_file(self.folder / name) for name in needed)

    def checksums(self) -> dict[str, str]:
        """The hash of every file.

        Raises:
            InputError: One is missing.
        """
        return {name: sha256_of(self.folder / name) for name in self.files}

    def check_finished(self, run: Run) -> None:
        """Refuse a finished run that kept other weights than those that are wanted.

        Raises:
            InputError: It did.
        """
        if missing := [name for name in self.files if name not in run.weights]:
            raise InputError(f"the run {run.folder} is finished and did not keep {missing[0]}: {REPAIR}")


def check_keeps(experiment: Experiment) -> None:
    """Refuse to keep the weights of a method that answers with several networks, before anything is run.

    Raises:
        InputError: It does.
    """
    if not traits_of(experiment.method).one_network:
        raise InputError(
            f"method {experiment.method} answers with more than the weights of one network, which cannot be "
            "kept: leave save_weights out"
        )
    tasks = [phase[-1] for phase in experiment.scenario.phases]
    if len(set(tasks)) < len(tasks):
        raise InputError(
            f"{experiment.scenario.name} learns a task more than once, so its weights after a task have no "
            "name: leave save_weights out"
        )


def about(experiment: Experiment, *, phase: int) -> Kept:
    """What a file of weights says about itself."""
    scenario = experiment.scenario
    steps = {task.transforms for task in scenario.tasks}
    source = scenario.tasks[0].source.dataset
    return Kept(
        experiment=experiment.id,
        model=experiment.model.as_fields(),
        shape=prepared_shape(DATASETS[source].shape, scenario.tasks[0].transforms),
        n_units=scenario.n_units,
        phase=phase,
        phases=len(scenario.phases),
        classes=_classes(scenario),
        transforms=tuple(as_fields(step) for step in steps.pop()) if len(steps) == 1 else None,
    )


def _classes(scenario: Scenario) -> tuple[str, ...]:
    """The class that each output unit stands for; empty if one stands for several, or for none."""
    called: dict[int, set[str]] = {}
    for task in scenario.tasks:
        names = DATASETS[task.source.dataset].class_names
        for unit, label in zip(task.units, task.source.classes, strict=True):
            called.setdefault(unit, set()).add(names[label] if label < len(names) else str(label))
    units = [called.get(unit, set()) for unit in range(scenario.n_units)]
    return tuple(next(iter(names)) for names in units) if all(len(names) == 1 for names in units) else ()
