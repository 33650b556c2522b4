"""The functions that return scenarios. None of them loads anything.

Output units are numbered by arrival. In the task setting each task has its own units, its head; in the
class setting each new class has its own unit; in the domain setting all tasks share their units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError, unknown_name
from engram.scenarios.algebra import concat
from engram.scenarios.preparation import (
    SIGNED_RANGE,
    UNIT_RANGE,
    common_format,
    grey_images,
    usual_normalisation,
    usual_steps,
)
from engram.scenarios.settings import setting_of
from engram.scenarios.values import (
    ClassSetting,
    DomainSetting,
    Permute,
    Rotate,
    Scenario,
    Setting,
    SettingName,
    Source,
    Task,
    Transform,
)


def split(
    dataset: str,
    classes_per_task: int | Sequence[int] = 2,
    *,
    setting: Setting | SettingName,
    order: Sequence[int] | None = None,
    seed: int | None = None,
    transforms: Sequence[Transform] | None = None,
) -> Scenario:
    """Some classes at a time.

    In the domain setting the labels of every task are counted from 0, so that one head answers all.

    Args:
        dataset: Whose classes are split.
        classes_per_task: How many classes a task has, a divisor of the number of classes; or the size of
            every task, as in `(2, 2, 3, 3)`.
        setting: What may be known.
        order: The classes, in the order in which they arrive (default: all, in the data set's order).
        seed: Draws an order instead.
        transforms: How images are prepared (default: the data set's usual normalisation).

    Example:
        >>> stream = split("mnist", 2, setting="domain")
        >>> [task.source.classes for task in stream.tasks]
        [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
        >>> stream.tasks[1].units, split("mnist", 2, setting="class").tasks[1].units
        ((0, 1), (2, 3))
        >>> split("mnist", 3, setting="class")
        Traceback (most recent call last):
        engram.core.errors.InputError: classes_per_task must divide the 10 classes of mnist, or be ..., got 3
    """
    known = setting_of(setting, what="split")
    classes = _ordered_classes(dataset, order, seed)
    sizes = _task_sizes(dataset, len(classes), classes_per_task)
    steps = usual_steps(dataset) if transforms is None else tuple(transforms)
    ends = list(accumulate(sizes))
    groups = [classes[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    tasks = tuple(
        Task(Source(dataset, group), units, steps, name=f"{dataset} {_listed(group)}")
        for group, units in zip(groups, _units(known, sizes), strict=True)
    )
    return Scenario(f"split-{dataset}", tasks, known)


def permuted(
    dataset: str,
    n_tasks: int,
    *,
    setting: Setting | SettingName,
    seed: int,
    identity_first: bool = False,
    transforms: Sequence[Transform] | None = None,
) -> Scenario:
    """All classes in every task; each task permutes the pixels in its own way.

    The pixels are permuted after all other preparation but before the normalisation. More tasks with the
    same seed begin with the same permutations.

    Args:
        dataset: Whose images are permuted.
        n_tasks: How many tasks.
        setting: What may be known. In the class setting the same class in two tasks counts as two classes.
        seed: Draws the permutations.
        identity_first: Whether the first task has the pixels as they are (Hsu et al.); else it is
            permuted as well (De Lange et al.).
        transforms: How images are prepared (default: the data set's usual normalisation).

    Example:
        >>> stream = permuted("mnist", 3, setting="class", seed=0, identity_first=True)
        >>> [task.name for task in stream.tasks], stream.n_units
        (['as it is', 'permutation 2', 'permutation 3'], 30)
    """
    if n_tasks < 1:
        raise InputError(f"n_tasks must be at least 1, got {n_tasks}")
    # generate_state(n) begins with generate_state(m) for every m < n: that is what makes prefixes agree.
    seeds = np.random.SeedSequence(seed).generate_state(n_tasks)
    variants: dict[str, tuple[Transform, ...]] = {
        f"permutation {number}": (Permute(int(drawn)),) for number, drawn in enumerate(seeds, start=1)
    }
    if identity_first:
        del variants["permutation 1"]
        variants = {"as it is": (), **variants}
    return _varied("permuted", dataset, variants, setting=setting, transforms=transforms)


def rotated(
    dataset: str,
    angles: Iterable[float],
    *,
    setting: Setting | SettingName,
    transforms: Sequence[Transform] | None = None,
) -> Scenario:
    """All classes in every task; each task rotates the images by its own angle.

    Args:
        dataset: Whose images are turned.
        angles: In degrees, counter-clockwise, one per task; no two may be the same.
        setting: What may be known. In the class setting the same class in two tasks counts as two classes.
        transforms: How images are prepared (default: the data set's usual normalisation).

    Example:
        >>> [task.name for task in rotated("mnist", (0, 9, 18), setting="domain").tasks]
        ['0°', '9°', '18°']
    """
    degrees = [float(angle) for angle in angles]
    if not degrees or len(set(degrees)) < len(degrees):
        raise InputError(f"angles must be one or more, all different, got {degrees}")
    variants: dict[str, tuple[Transform, ...]] = {
        f"{angle:g}°": (Rotate(angle),) if angle else () for angle in degrees
    }
    return _varied("rotated", dataset, variants, setting=setting, transforms=transforms)


def superclasses(
    *,
    setting: Setting | SettingName,
    seed: int | None = None,
    transforms: Sequence[Transform] | None = None,
) -> Scenario:
    """CIFAR-100 in five tasks, each with one fine class of every one of the 20 superclasses (Chen et al.).

    In the domain setting the answer is the superclass. Which fine class comes when is not published: it is
    the order of the fine labels here, or drawn by `seed`.

    Example:
        >>> stream = superclasses(setting="domain")
        >>> len(stream.tasks), stream.n_units
        (5, 20)
        >>> stream.tasks[0].source.classes[:3]  # beaver, aquarium fish, orchid
        (4, 1, 54)
    """
    known = setting_of(setting, what="superclasses")
    members = DATASETS["cifar100"].superclasses
    fine = np.array(
        [[label for label, row in enumerate(members) if row == superclass] for superclass in range(20)]
    )
    if seed is not None:
        fine = np.random.default_rng(seed).permuted(fine, axis=1)
    steps = (usual_normalisation("cifar100"),) if transforms is None else tuple(transforms)
    groups = [tuple(int(label) for label in column) for column in fine.T]
    tasks = tuple(
        Task(Source("cifar100", group), units, steps, name=f"fine classes {number}")
        for number, (group, units) in enumerate(
            zip(groups, _units(known, [len(group) for group in groups]), strict=True), start=1
        )
    )
    return Scenario("cifar100-superclasses", tasks, known)


def domains(
    datasets: Sequence[str],
    *,
    setting: Setting | SettingName = "domain",
    size: int | None = None,
    classes: Sequence[int] | None = None,
    transforms: Sequence[Transform] | None = None,
) -> Scenario:
    """Several data sets with the same classes, one after the other.

    Args:
        datasets: Their names, in order.
        setting: `domain` (they share their output units) or `task` (each has a head). In the class setting
            it would be another scenario, a `queue`.
        size: Height and width that all images are resized to (default: the greatest of the data sets).
        classes: The labels to use (default: all).
        transforms: How the images of all data sets are prepared (default: resized to one shape, each with its
            usual normalisation).

    Example:
        >>> stream = domains(("mnist", "svhn", "usps"), size=32)
        >>> [[step.kind for step in task.transforms] for task in stream.tasks]
        [['resize', 'colour', 'normalise'], ['normalise'], ['resize', 'colour', 'normalise']]
        >>> stream.n_units
        10
    """
    known = setting_of(setting, what="domains", allowed=("domain", "task"))
    if not datasets:
        raise InputError("domains needs data sets: give at least one name")
    if transforms is None:
        prepared = common_format(datasets, size=size)
    elif size is None:
        prepared = [tuple(transforms)] * len(datasets)
    else:
        raise InputError("domains takes a size or transforms, not both: put Resize among the transforms")
    labels = tuple(classes) if classes is not None else _shared_classes(datasets)
    heads = _units(known, [len(labels)] * len(datasets))
    tasks = tuple(
        Task(Source(name, labels), units, steps, name=name)
        for name, units, steps in zip(datasets, heads, prepared, strict=True)
    )
    return Scenario("domains", tasks, known)


QUEUE_DATASETS = ("mnist", "fashion-mnist", "emnist-letters", "svhn", "cifar100")
"""Whose 156 classes make the 78 tasks of Hsu et al., in the order in which the paper names them."""


def queue(
    datasets: Sequence[str] = QUEUE_DATASETS,
    *,
    setting: Setting | SettingName = "task",
    classes_per_task: int = 2,
    size: int = 28,
) -> Scenario:
    """A long queue of small tasks: the splits of several data sets, one after the other.

    All images become grey, `size` by `size` pixels, in [0, 1]. By default these are the 78 tasks of Hsu
    et al., who publish neither their order nor how images are converted: here it is the order in which they
    name the data sets, ITU-R 601 luma and bilinear scaling.

    Example:
        >>> stream = queue()
        >>> len(stream.tasks), stream.n_units, stream.tasks[-1].name
        (78, 156, 'cifar100 98/99')
    """
    parts = (
        split(name, classes_per_task, setting=setting, transforms=grey_images(name, size=size))
        for name in datasets
    )
    stream = concat(*parts)
    return Scenario("queue", stream.tasks, stream.setting)


_D1_OF_D5_5 = {
    "a": (0, 1, 2, 3, 4),
    "b": (0, 2, 4, 6, 8),
    "c": (3, 4, 6, 8, 9),
    "d": (0, 2, 5, 6, 7),
    "e": (0, 1, 3, 4, 5),
    "f": (0, 3, 4, 8, 9),
    "g": (0, 5, 6, 7, 8),
    "h": (0, 2, 3, 6, 8),
}
_D2_OF_D9_1 = {"a": 9, "b": 0, "c": 1}
_TEN = tuple(range(10))
_SECOND_TASK: dict[str, tuple[int, ...]] = {
    **{f"D5-5{letter}": tuple(c for c in _TEN if c not in first) for letter, first in _D1_OF_D5_5.items()},
    **{f"D9-1{letter}": (last,) for letter, last in _D2_OF_D9_1.items()},
    "DP10-10": _TEN,
}
SLT_CODES = tuple(_SECOND_TASK)
"""The twelve sequential learning tasks of Pfülb & Gepperth."""


def slt(code: str, dataset: str, *, permute: bool = True) -> Scenario:
    """A sequential learning task of Pfülb & Gepperth: two tasks, one readout of ten units.

    `D5-5a` to `D5-5h` learn five classes and then the other five, `D9-1a` to `D9-1c` nine and then the
    tenth; all ten compete from the start. `DP10-10` learns all ten and then all ten with permuted pixels,
    in the domain setting. Labels keep their numbers.

    Of a data set with more than ten classes the first ten are used (the paper takes the most frequent).
    Classes of `svhn` are counted as the paper does: digit 1 is 0, digit 0 is 9. Pixels of `mnist` are in
    [0, 1], all others in [−1, 1], and its first 5,000 training images are left out: TensorFlow's tutorial
    keeps them for validation.

    The released code never switches the permutation of `DP10-10` on: `permute=False` is for the comparison
    with the published numbers.

    Example:
        >>> [task.source.classes for task in slt("D5-5b", "mnist").tasks]
        [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9)]
        >>> slt("D5-5x", "mnist")
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown sequential learning task 'D5-5x'; did you mean 'D5-5a', ...
    """
    if code not in _SECOND_TASK:
        raise unknown_name("sequential learning task", code, SLT_CODES)
    if DATASETS[dataset].classes < len(_TEN):
        raise InputError(f"data set {dataset!r} has {DATASETS[dataset].classes} classes: {code} needs ten")
    second = _SECOND_TASK[code]
    first = tuple(unit for unit in _TEN if unit not in second) or _TEN
    scale = UNIT_RANGE if dataset == "mnist" else SIGNED_RANGE
    unused = 5000 if dataset == "mnist" else 0
    permutes = code == "DP10-10"
    # The paper's seed: one fixed permutation, whatever the seed of the run.
    changed: tuple[Transform, ...] = (Permute(1),) if permutes and permute else ()
    return Scenario(
        f"slt-{code}-{dataset}",
        (
            Task(Source(dataset, _labels(dataset, first), unused), first, (scale,), name="D1"),
            Task(Source(dataset, _labels(dataset, second), unused), second, (*changed, scale), name="D2"),
        ),
        DomainSetting() if permutes else ClassSetting(classes_known=True),
    )


def _labels(dataset: str, units: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((unit + 1) % 10 for unit in units) if dataset == "svhn" else units


def _varied(
    what: str,
    dataset: str,
    variants: Mapping[str, tuple[Transform, ...]],
    *,
    setting: Setting | SettingName,
    transforms: Sequence[Transform] | None,
) -> Scenario:
    """All classes of a data set in every task, each task with its own change before the last step."""
    known = setting_of(setting, what=what)
    classes = tuple(range(DATASETS[dataset].classes))
    steps = usual_steps(dataset) if transforms is None else tuple(transforms)
    heads = _units(known, [len(classes)] * len(variants))
    tasks = tuple(
        Task(Source(dataset, classes), units, (*steps[:-1], *change, *steps[-1:]), name=name)
        for (name, change), units in zip(variants.items(), heads, strict=True)
    )
    return Scenario(f"{what}-{dataset}", tasks, known)


def _units(setting: Setting, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    if isinstance(setting, DomainSetting):
        return [tuple(range(size)) for size in sizes]
    return [tuple(range(end - size, end)) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def _ordered_classes(dataset: str, order: Sequence[int] | None, seed: int | None) -> tuple[int, ...]:
    known = DATASETS[dataset].classes
    if order is None:
        numbers = np.arange(known) if seed is None else np.random.default_rng(seed).permutation(known)
        return tuple(int(number) for number in numbers)
    if seed is not None:
        raise InputError("a class order and a seed for one contradict each other: give only one of them")
    unknown = [label for label in order if not 0 <= label < known]
    if unknown:
        raise InputError(f"{dataset} has no class {unknown[0]}: its classes are 0 to {known - 1}")
    if len(set(order)) < len(order):
        raise InputError(f"class order {tuple(order)} names a class twice: name each once")
    return tuple(order)


def _task_sizes(dataset: str, n_classes: int, classes_per_task: int | Sequence[int]) -> list[int]:
    if isinstance(classes_per_task, int):
        if classes_per_task < 1 or n_classes % classes_per_task or not n_classes:
            raise InputError(
                f"classes_per_task must divide the {n_classes} classes of {dataset}, or be the size of every "
                f"task, got {classes_per_task}"
            )
        return [classes_per_task] * (n_classes // classes_per_task)
    sizes = list(classes_per_task)
    if not sizes or min(sizes) < 1 or sum(sizes) != n_classes:
        raise InputError(
            f"task sizes must be at least 1 and add up to the {n_classes} classes of {dataset}, got {sizes}"
        )
    return sizes


def _shared_classes(datasets: Sequence[str]) -> tuple[int, ...]:
    counts = {DATASETS[name].classes for name in datasets}
    if len(counts) > 1:
        raise InputError(
            f"{', '.join(datasets)} do not have the same number of classes {sorted(counts)}: pass `classes`"
        )
    return tuple(range(counts.pop()))


def _listed(classes: tuple[int, ...]) -> str:
    if len(classes) <= 5:
        return "/".join(map(str, classes))
    return f"{classes[0]}/{classes[1]}/…/{classes[-1]}"
