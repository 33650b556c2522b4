"""What is known about a data set before it is loaded."""

from dataclasses import dataclass
from typing import Literal

from engram.core.registry import Registry

InputKind = Literal["image", "table", "tokens", "series", "volume"]
"""What one sample is: pixels, numbers in columns, numbers of words, numbers over time, or any block."""

INPUT_KINDS: tuple[InputKind, ...] = ("image", "table", "tokens", "series", "volume")


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The facts that scenarios and listings need.

    Attributes:
        name: Its registry name.
        title: What people call it.
        classes: How many classes it has when it is complete; a copy may have fewer.
        shape: Channels, height and width of its images (or the shape of one sample).
        train: How many training samples it has when it is complete; 0 where it depends on the copy.
        test: How many test samples it has when it is complete; 0 where it depends on the copy.
        class_names: What its classes are called, in the order of their numbers; empty where only a copy
            tells.
        superclasses: The number of the superclass that each class belongs to; empty where there are none.
        superclass_names: What its superclasses are called.
        part_of: The data set that this one is a part of (a domain, a year); empty for a whole one.
        digest: A hash of what it holds, for a user's own data set whose name does not have it already; part
            of the identity of experiments.
        inputs: What one sample is.
        bytes: Whether values are bytes, which are scaled to 0 to 1 (images by their usual normalisation);
            other values stay as they are.
        vocabulary: For tokens, one more than the largest; 0 for other inputs.
        note: How a user's own data were divided into training and test samples, where that was drawn.
    """

    name: str
    title: str
    classes: int
    shape: tuple[int, ...]
    train: int = 0
    test: int = 0
    class_names: tuple[str, ...] = ()
    superclasses: tuple[int, ...] = ()
    superclass_names: tuple[str, ...] = ()
    part_of: str = ""
    digest: str = ""
    inputs: InputKind = "image"
    bytes: bool = True
    vocabulary: int = 0
    note: str = ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DIGITS = tuple("0123456789")
_CAPITALS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
_FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_KUZUSHIJI = _words("o ki su tsu na ha ma ya re wo")
_CIFAR10 = _words("airplane automobile bird cat deer dog frog horse ship truck")
_CIFAR100 = _words(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
    dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
    leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
    otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
    road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
    """
)
_CIFAR100_SUPERCLASSES = _words(
    """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man_made_outdoor_things
    large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals non_insect_invertebrates
    people reptiles small_mammals trees vehicles_1 vehicles_2
    """
)
# fmt: off
_CIFAR100_SUPERCLASS_OF = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15,
    0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4,
    18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19,
    5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
# fmt: on

_MNIST_LIKE = (1, 28, 28)
_CIFAR_LIKE = (3, 32, 32)
_DOMAINS = (
    ("clipart", 12004, 5233),
    ("painting", 17145, 7436),
    ("real", 43893, 18888),
    ("sketch", 17316, 7506),
)
_YEARS = range(2005, 2015)


def _clear(classes: int) -> tuple[DatasetInfo, ...]:
    """CLEAR with this number of classes, whole and year by year."""
    whole = DatasetInfo(f"clear{classes}", f"CLEAR-{classes}", classes, (3, 224, 224))
    years = (
        DatasetInfo(
            f"{whole.name}-{year}", f"{whole.title}, {year}", classes, whole.shape, part_of=whole.name
        )
        for year in _YEARS
    )
    return (whole, *years)


_KNOWN = (
    DatasetInfo(
        "digits", "Optical recognition of handwritten digits", 10, (1, 8, 8), 1442, 355, class_names=_DIGITS
    ),
    DatasetInfo("mnist", "MNIST", 10, _MNIST_LIKE, 60000, 10000, class_names=_DIGITS),
    DatasetInfo("fashion-mnist", "Fashion-MNIST", 10, _MNIST_LIKE, 60000, 10000, class_names=_FASHION),
    DatasetInfo("kmnist", "Kuzushiji-MNIST", 10, _MNIST_LIKE, 60000, 10000, class_names=_KUZUSHIJI),
    DatasetInfo("emnist-letters", "EMNIST letters", 26, _MNIST_LIKE, 124800, 20800, class_names=_LETTERS),
    DatasetInfo(
        "emnist",
        "EMNIST, by class",
        62,
        _MNIST_LIKE,
        697932,
        116323,
        class_names=_DIGITS + _CAPITALS + _LETTERS,
    ),
    DatasetInfo("svhn", "Street View House Numbers", 10, _CIFAR_LIKE, 73257, 26032, class_names=_DIGITS),
    DatasetInfo("cifar10", "CIFAR-10", 10, _CIFAR_LIKE, 50000, 10000, class_names=_CIFAR10),
    DatasetInfo(
        "cifar100",
        "CIFAR-100",
        100,
        _CIFAR_LIKE,
        50000,
        10000,
        class_names=_CIFAR100,
        superclasses=_CIFAR100_SUPERCLASS_OF,
        superclass_names=_CIFAR100_SUPERCLASSES,
    ),
    DatasetInfo("tiny-imagenet", "Tiny ImageNet", 200, (3, 64, 64), 100000, 10000),
    DatasetInfo("mini-imagenet", "Mini-ImageNet", 100, (3, 84, 84), 50000, 10000),
    DatasetInfo("mini-domainnet", "Mini-DomainNet, all domains", 126, (3, 96, 96), 90358, 39063),
    *(
        DatasetInfo(
            f"mini-domainnet-{domain}",
            f"Mini-DomainNet, {domain}",
            126,
            (3, 96, 96),
            train,
            test,
            part_of="mini-domainnet",
        )
        for domain, train, test in _DOMAINS
    ),
    *_clear(10),
    *_clear(100),
    DatasetInfo("imagenet", "ImageNet-1k", 1000, (3, 224, 224), 1281167, 50000),
    DatasetInfo("notmnist", "notMNIST", 10, _MNIST_LIKE, 529114, 18724, class_names=_CAPITALS[:10]),
    DatasetInfo("fruits-360", "Fruits-360, its ten largest classes", 10, (3, 100, 100), 6148, 2052),
    DatasetInfo("devanagari", "Devanagari handwritten characters", 46, (1, 32, 32), 78200, 13800),
    DatasetInfo("madbase", "MADBase", 10, _MNIST_LIKE, 60000, 10000, class_names=_DIGITS),
    DatasetInfo("usps", "USPS", 10, (1, 16, 16), 7291, 2007, class_names=_DIGITS),
)

DATASETS: Registry[DatasetInfo] = Registry(
    "data set",
    {info.name: info for info in _KNOWN},
    group="engram.datasets",
    decorator="@engram.dataset('name')",
    accept="engram.datasets.register:accept_dataset",
)
