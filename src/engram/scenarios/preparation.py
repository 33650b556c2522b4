"""How images are prepared: the normalisation that each data set usually gets, and common formats."""

from collections.abc import Iterable

from engram.core.dataset_info import DATASETS
from engram.core.errors import InputError
from engram.scenarios.values import Colour, Grey, Normalise, Resize, Transform

UNIT_RANGE = Normalise()
"""Pixels in [0, 1]."""

SIGNED_RANGE = Normalise(mean=(0.5,), std=(0.5,))
"""Pixels in [−1, 1]."""

_MNIST = Normalise(mean=(0.1307,), std=(0.3081,))
_CIFAR10 = Normalise(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
_IMAGENET = Normalise(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

# De Lange et al. normalise SVHN, Mini-ImageNet and Mini-DomainNet with the numbers of CIFAR-10, and USPS with
# those of MNIST; the comparison with their results needs the same.
_USUAL: dict[str, Normalise] = {
    "mnist": _MNIST,
    "usps": _MNIST,
    "fashion-mnist": Normalise(mean=(0.2860,), std=(0.3530,)),
    "kmnist": Normalise(mean=(0.1904,), std=(0.3475,)),
    "emnist-letters": Normalise(mean=(0.1722,), std=(0.3309,)),
    "svhn": _CIFAR10,
    "cifar10": _CIFAR10,
    "cifar100": Normalise(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
    "mini-imagenet": _CIFAR10,
    "mini-domainnet": _CIFAR10,
    "clear10": _IMAGENET,
    "clear100": _IMAGENET,
    "imagenet": _IMAGENET,
}


def usual_normalisation(dataset: str) -> Normalise:
    """The mean and deviation that a data set is usually normalised with; [0, 1] where there is none.

    A data set published in parts (`mini-domainnet-real`) has the numbers of the whole.

    Example:
        >>> usual_normalisation("mnist")
        Normalise(mean=(0.1307,), std=(0.3081,), kind='normalise')
        >>> usual_normalisation("mini-domainnet-real") == usual_normalisation("cifar10")
        True
        >>> usual_normalisation("digits")
        Normalise(mean=(0.0,), std=(1.0,), kind='normalise')
    """
    return _USUAL.get(DATASETS[dataset].part_of or dataset, UNIT_RANGE)


def usual_steps(dataset: str) -> tuple[Transform, ...]:
    """How the samples of a data set are prepared by default: images of bytes are normalised, others stay.

    Example:
        >>> [step.kind for step in usual_steps("mnist")]
        ['normalise']
    """
    info = DATASETS[dataset]
    return (usual_normalisation(dataset),) if info.inputs == "image" and info.bytes else ()


def statistics_of(step: Normalise, dataset: str) -> str | None:
    """The data set whose mean and deviation a normalisation uses; None where it only scales pixels.

    Unknown numbers count as those of the data set that they normalise.

    Example:
        >>> statistics_of(UNIT_RANGE, "mnist"), statistics_of(usual_normalisation("svhn"), "svhn")
        (None, 'cifar10')
    """
    if set(zip(step.mean, step.std, strict=False)) in ({(0.0, 1.0)}, {(0.5, 0.5)}):
        return None
    shared = {_MNIST: "mnist", _CIFAR10: "cifar10", _IMAGENET: "imagenet"}
    return shared.get(step) or DATASETS[dataset].part_of or dataset


def grey_images(dataset: str, *, size: int) -> tuple[Transform, ...]:
    """What turns a data set's images into grey ones of `size` by `size` pixels, in [0, 1].

    Example:
        >>> [step.kind for step in grey_images("svhn", size=28)]
        ['grey', 'resize', 'normalise']
        >>> [step.kind for step in grey_images("mnist", size=28)]
        ['normalise']
    """
    channels, _, _ = _image_shape(dataset)
    return (*((Grey(),) if channels > 1 else ()), *_resized(dataset, size), UNIT_RANGE)


def common_format(datasets: Iterable[str], *, size: int | None = None) -> list[tuple[Transform, ...]]:
    """For each data set, what gives its images the same shape as the others', with its usual normalisation.

    Grey images are repeated in three channels if any of the data sets is in colour.

    Args:
        datasets: Names of data sets.
        size: Height and width of the result (default: the greatest of the data sets).

    Example:
        >>> [[step.kind for step in steps] for steps in common_format(["mnist", "svhn"])]
        [['resize', 'colour', 'normalise'], ['normalise']]
    """
    names = list(datasets)
    if any(DATASETS[name].inputs != "image" for name in names):
        return _as_they_are(names, size=size)
    shapes = [_image_shape(name) for name in names]
    target = size or max(max(shape[1:]) for shape in shapes)
    colour = any(channels > 1 for channels, _, _ in shapes)
    return [
        (
            *_resized(name, target),
            *((Colour(),) if colour and channels == 1 else ()),
            *usual_steps(name),
        )
        for name, (channels, _, _) in zip(names, shapes, strict=True)
    ]


def _as_they_are(names: list[str], *, size: int | None) -> list[tuple[Transform, ...]]:
    """No preparation, for data sets that are not images; these must have one shape already."""
    infos = {name: DATASETS[name] for name in names}
    if len({(info.inputs, info.shape) for info in infos.values()}) > 1:
        listed = ", ".join(f"{name}: {info.inputs} of shape {info.shape}" for name, info in infos.items())
        raise InputError(f"the data sets of a scenario must have samples of one kind and shape, got {listed}")
    if size is not None:
        raise InputError(f"{names[0]} has no images to resize: leave size out")
    return [()] * len(names)


def _resized(dataset: str, size: int) -> tuple[Transform, ...]:
    return () if _image_shape(dataset)[1:] == (size, size) else (Resize(size),)


def _image_shape(dataset: str) -> tuple[int, int, int]:
    shape = DATASETS[dataset].shape
    if len(shape) != 3:
        raise InputError(f"data set {dataset!r} has samples of shape {shape}: choose one of images here")
    return shape[0], shape[1], shape[2]
