"""The scenarios of the papers, as the papers describe them."""

import json
from pathlib import Path
from typing import cast

import pytest

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.scenarios import (
    ClassSetting,
    Colour,
    DomainSetting,
    Grey,
    Normalise,
    Pad,
    Permute,
    Resize,
    Rotate,
    Scenario,
    SettingName,
    Source,
    Task,
    TaskSetting,
    domains,
    permuted,
    queue,
    rotated,
    slt,
    split,
    superclasses,
)

MNIST = Normalise((0.1307,), (0.3081,))
CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def units(scenario: Scenario) -> list[tuple[int, ...]]:
    return [task.units for task in scenario.tasks]


def classes(scenario: Scenario) -> list[tuple[int, ...]]:
    return [task.source.classes for task in scenario.tasks]


# Split ----------------------------------------------------------------------------------------------


def test_split_in_the_three_settings() -> None:
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    for setting in ("task", "domain", "class"):
        assert classes(split("mnist", setting=setting)) == pairs
    assert units(split("mnist", setting="task")) == pairs
    assert units(split("mnist", setting="class")) == pairs
    assert units(split("mnist", setting="domain")) == [(0, 1)] * 5


def test_unknown_number_of_classes_is_a_mask_over_the_units_seen() -> None:
    unknown = split("mnist", setting=ClassSetting())
    assert unknown.heads(0) == ((0, 1),)
    assert unknown.answers(1) == ((0, 1, 2, 3),) * 5
    known = split("mnist", setting=ClassSetting(classes_known=True))
    assert known.heads(0) == (tuple(range(10)),)
    free = split("mnist", setting=ClassSetting(mask_evaluation=False))
    assert free.heads(0) == ((0, 1),)
    assert free.answers(0) == (tuple(range(10)),) * 5


def test_a_given_order_arrives_in_that_order_with_units_by_arrival() -> None:
    stream = split("mnist", 2, setting="class", order=(9, 0, 5, 3))
    assert classes(stream) == [(9, 0), (5, 3)]
    assert units(stream) == [(0, 1), (2, 3)]


def test_a_seeded_order_is_repeatable_and_complete() -> None:
    one, same, other = (split("cifar100", 10, setting="class", seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert sorted(label for task in one.tasks for label in task.source.classes) == list(range(100))


def test_unequal_tasks_are_given_one_by_one() -> None:
    stream = split("digits", (2, 3, 5), setting="class")
    assert [len(task.units) for task in stream.tasks] == [2, 3, 5]
    assert stream.classes_seen == (2, 5, 10)
    assert units(split("digits", (2, 3, 5), setting="domain"))[2] == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: split("mnist", 3, setting="class"),
            "must divide the 10 classes of mnist, or be the size of every task, got 3",
        ),
        (
            lambda: split("mnist", 0, setting="class"),
            "classes_per_task must divide the 10 classes of mnist, .* got 0",
        ),
        (lambda: split("mnist", (5, 4), setting="class"), r"add up to the 10 classes of mnist, got \[5, 4\]"),
        (
            lambda: split("mnist", (11, -1), setting="class"),
            r"task sizes must be at least 1 and add up to the 10 classes of mnist, got \[11, -1\]",
        ),
        (lambda: split("mnits", setting="class"), "did you mean 'mnist'"),
        (
            lambda: split("mnist", setting=cast(SettingName, "clas")),
            "unknown setting .clas.; did you mean .class.",
        ),
        (lambda: split("mnist", setting="task", order=(0, 10)), "mnist has no class 10"),
        (lambda: split("mnist", setting="task", order=(0, 0)), "names a class twice"),
        (lambda: split("mnist", setting="task", order=()), "must divide the 0 classes of mnist"),
        (lambda: split("mnist", setting="task", order=(0, 1), seed=0), "contradict each other"),
        (lambda: permuted("mnist", 0, setting="task", seed=0), "n_tasks must be at least 1, got 0"),
        (
            lambda: rotated("mnist", (), setting="task"),
            r"angles must be one or more, all different, got \[\]",
        ),
        (lambda: rotated("mnist", (9, 9), setting="task"), r"all different, got \[9.0, 9.0\]"),
        (lambda: domains(("mnist", "svhn"), setting="class"), "choose domain or task"),
        (lambda: domains(()), "at least one name"),
        (lambda: domains(("mnist", "cifar100")), r"same number of classes \[10, 100\]"),
        (lambda: domains(("mnist",), size=8, transforms=(Resize(8),)), "not both"),
        (lambda: slt("D5-5z", "mnist"), "unknown sequential learning task 'D5-5z'; did you mean"),
        (lambda: slt("D5-5a", "mnits"), "unknown data set 'mnits'"),
        (lambda: Scenario("none", (), TaskSetting()), "has no tasks"),
        (lambda: Task(Source("mnist", (0, 1)), (0,)), "give every class one unit"),
        (lambda: Task(Source("mnist", (0,)), (-1,)), "counted from 0"),
        (lambda: Scenario("x", split("mnist", setting="task").tasks, TaskSetting(), ((7,),)), "no task 7"),
        (lambda: Scenario("x", split("mnist", setting="task").tasks, TaskSetting(), ((),)), "empty phase"),
        (
            lambda: Scenario("x", split("mnist", setting="task").tasks, TaskSetting(), passes=0),
            "passes of scenario 'x' must be at least 1, got 0",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(InputError, match=message) as refused:
        wrong()
    assert "\n" not in str(refused.value)


# Permuted and rotated -------------------------------------------------------------------------------


def test_permuted_tasks_of_hsu_begin_with_the_identity_and_pad_first() -> None:
    padded = (Pad(2), Normalise((0.1,), (0.2752,)))
    stream = permuted("mnist", 10, setting="class", seed=3, identity_first=True, transforms=padded)
    assert stream.tasks[0].transforms == padded
    for task in stream.tasks[1:]:
        assert [step.kind for step in task.transforms] == ["pad", "permute", "normalise"]
    assert stream.n_units == 100
    assert units(stream)[9] == tuple(range(90, 100))


def test_all_permutations_are_different() -> None:
    stream = permuted("mnist", 20, setting="domain", seed=0)
    drawn = [step.seed for task in stream.tasks for step in task.transforms if isinstance(step, Permute)]
    assert len(set(drawn)) == 20
    # NumPy's RandomState takes no greater seed.
    assert max(drawn) < 2**32


def test_rotated_tasks() -> None:
    stream = rotated("mnist", range(0, 180, 9), setting="domain")
    assert len(stream.tasks) == 20
    assert stream.tasks[0].transforms == (MNIST,)
    assert stream.tasks[19].transforms == (Rotate(171.0), MNIST)
    assert stream.n_units == 10


# Superclasses ---------------------------------------------------------------------------------------


def test_every_task_has_one_fine_class_of_each_superclass() -> None:
    coarse = DATASETS["cifar100"].superclasses
    for seed in (None, 0, 1):
        stream = superclasses(setting="domain", seed=seed)
        assert len(stream.tasks) == 5
        for task in stream.tasks:
            assert tuple(coarse[label] for label in task.source.classes) == task.units == tuple(range(20))
    assert superclasses(setting="class").n_units == superclasses(setting="task").n_units == 100
    assert superclasses(setting="task", seed=0) != superclasses(setting="task", seed=1)


def test_the_table_of_superclasses_is_that_of_the_data(real_data: Path) -> None:
    published = real_data / "cifar100" / "names.json"
    if not published.is_file():
        pytest.skip("needs cifar100/names.json in ENGRAM_DATA")
    coarse = json.loads(published.read_text())["coarse_of_class"]
    for task in superclasses(setting="domain").tasks:
        assert [coarse[label] for label in task.source.classes] == list(task.units)


# Several data sets ----------------------------------------------------------------------------------


def test_digits_of_three_data_sets_get_one_shape() -> None:
    stream = domains(("mnist", "svhn", "usps"), size=32)
    assert [task.transforms for task in stream.tasks] == [
        (Resize(32), Colour(), MNIST),
        (CIFAR10,),
        (Resize(32), Colour(), MNIST),
    ]
    assert stream.setting == DomainSetting()
    assert units(domains(("mnist", "svhn"), setting="task")) == [tuple(range(10)), tuple(range(10, 20))]


def test_the_queue_has_78_grey_tasks_in_the_order_of_the_paper() -> None:
    stream = queue()
    names = [task.source.dataset for task in stream.tasks]
    counts = {"mnist": 5, "fashion-mnist": 5, "emnist-letters": 13, "svhn": 5, "cifar100": 50}
    assert names == [name for name, count in counts.items() for _ in range(count)]
    assert stream.n_units == 156
    assert stream.heads(0)[77] == (154, 155)
    assert stream.tasks[0].transforms == (Normalise(),)
    assert stream.tasks[-1].transforms == (Grey(), Resize(28), Normalise())


# Sequential learning tasks --------------------------------------------------------------------------

PUBLISHED = {
    "D5-5a": "01234 56789",
    "D5-5b": "02468 13579",
    "D5-5c": "34689 01257",
    "D5-5d": "02567 13489",
    "D5-5e": "01345 26789",
    "D5-5f": "03489 12567",
    "D5-5g": "05678 12349",
    "D5-5h": "02368 14579",
    "D9-1a": "012345678 9",
    "D9-1b": "123456789 0",
    "D9-1c": "023456789 1",
    "DP10-10": "0123456789 0123456789",
}


@pytest.mark.parametrize(("code", "digits"), PUBLISHED.items())
def test_the_twelve_sequential_learning_tasks(code: str, digits: str) -> None:
    assert classes(slt(code, "mnist")) == [tuple(map(int, part)) for part in digits.split()]


def test_scaling_and_permutation_of_sequential_learning_tasks() -> None:
    signed = Normalise((0.5,), (0.5,))
    assert slt("D5-5a", "mnist").tasks[0].transforms == (Normalise(),)
    assert slt("D5-5a", "cifar10").tasks[0].transforms == (signed,)
    assert [task.transforms for task in slt("DP10-10", "cifar10").tasks] == [(signed,), (Permute(1), signed)]
    as_released = slt("DP10-10", "cifar10", permute=False)
    assert as_released.tasks[0].transforms == as_released.tasks[1].transforms
    assert slt("DP10-10", "mnist").setting == DomainSetting()
    assert slt("D9-1a", "mnist").setting == ClassSetting(classes_known=True)
    assert [slt("D5-5a", name).tasks[0].source.unused for name in ("mnist", "cifar10")] == [5000, 0]


def test_more_than_ten_classes_give_the_first_ten_and_svhn_counts_from_one() -> None:
    assert classes(slt("D5-5a", "emnist"))[1] == (5, 6, 7, 8, 9)
    house_numbers = slt("D9-1a", "svhn")
    assert classes(house_numbers) == [(1, 2, 3, 4, 5, 6, 7, 8, 9), (0,)]
    assert units(house_numbers) == [tuple(range(9)), (9,)]


@pytest.mark.parametrize("setting", ["task", "domain", "class"])
def test_nothing_is_loaded_to_describe_a_scenario(setting: SettingName) -> None:
    # These data sets are nowhere to be had on most machines.
    assert len(split("imagenet", 10, setting=setting).tasks) == 100
