"""All tables and figures, and which of text and code is followed where they differ."""

from __future__ import annotations

from collections.abc import Sequence

from engram.papers.paper004.figures import page, shown
from engram.papers.paper004.interpretations import CODE, DATASETS, FOLLOWED, SMALL, SMALL_CODE, TEXT
from engram.papers.paper004.tables import accuracies, facts, flags_agree, of_type, small_accuracies
from engram.papers.published import PAPERS
from engram.papers.values import Artefact

_FOLLOWED = (
    "DP10-10: the second task is permuted, as the paper says; in the released code it is the first task once "
    "more, and the published numbers look like that (`code`)",
    "the rate of the second task is chosen by accuracy on D2, as Algorithm 1 and the code do; the text says "
    "D1 ∪ D2 (`text`)",
    "the second task goes on from the last weights of the first, as in the code; the text says from the best "
    "over time (`text`)",
    "EWC learns with Adam, as in the code; the text says momentum .99 for all but IMM (`text`). Its strength "
    "is 1/ε2 with a factor ½, its initial weights have deviation and biases .1, as in the code",
    "EWC is tested on all test samples; the released code asks one batch of 100 over and over, which raises "
    "the best",
    "IMM goes on from the weights of the first task at the same rate, as in the code; the text "
    "re-initialises and tries the rates of the second task (`text`). Dropout is off in tests; in the code it "
    "stays on with two hidden layers",
    "D-CONV drops .5 after the dense layer; the text says input and hidden layers (`text`), the code drops "
    ".2 there (`code`)",
    "LWTA: a layer of size S has 2 S units, as in the code",
    "all choices are made on test data, as published",
    "pixels of MNIST are in [0, 1], all others in [−1, 1], as in the code",
)
_SMALL_NOTE = (
    "The reading `small` is a cut of the search: MNIST, Fashion-MNIST and Devanagari; streams D5-5a, d, f, "
    "D9-1a, b and DP10-10, whose lowest value stands for the type; hidden layers of 200 alone (two and three "
    "of them, both rates) instead of 36 topologies; 30 measuring points a task instead of 90, 10 for CONV "
    "and D-CONV, which are learned on D5-5a and D9-1b alone. `small-code` is DP10-10 of it without the "
    "permutation."
)
_DATA_NOTE = (
    "MNIST has the last 55,000 of its training images, as published. Devanagari has the first ten characters "
    "of its own split (published: the ten largest, a tenth of them for tests), EMNIST its digits in their "
    "own order (published: by frequency)."
)
_SURFACES = "The paper draws these curves as surfaces in three dimensions; here each data set has a panel."
_ALL = tuple(DATASETS)
_IMM_SETS = ("CIFAR10", "Devanagari", "FashionMNIST", "MADBase", "MNIST", "SVHN")
_HERE = ("Devanagari", "MNIST", "FashionMNIST")


def _table(number: str, title: str) -> Artefact:
    others = {
        "text": accuracies(number, TEXT),
        "code": accuracies(number, CODE),
        "small": small_accuracies(number),
    }
    if coded := of_type(small_accuracies(number, SMALL_CODE), "DP10-10"):
        others["small-code"] = coded
    return Artefact(
        f"004-table{number}",
        title,
        accuracies(number),
        _FOLLOWED,
        others,
        note=f"{_DATA_NOTE} {_SMALL_NOTE}",
        statements=flags_agree if number in ("3", "4") else None,
    )


def _figure(
    number: int,
    title: str,
    panels: Sequence[tuple[str, str, str]],
    small: Sequence[tuple[str, str, str]],
    *,
    note: str = "",
) -> Artefact:
    """A figure: a model, a stream and a data set per panel, for the full and the small reading."""
    return Artefact(
        f"004-figure{number}",
        title,
        shown(panels, FOLLOWED),
        _FOLLOWED,
        {"text": shown(panels, TEXT), "code": shown(panels, CODE), "small": shown(small, SMALL)},
        page(f"{PAPERS['004']}, figure {number}: {title}"),
        f"{note} {_SMALL_NOTE}" if note else _SMALL_NOTE,
    )


def _surfaces(
    number: int,
    title: str,
    model: str,
    code: str,
    *,
    benchmarks: Sequence[str] = _ALL,
    small_code: str = "",
    note: str = "",
) -> Artefact:
    """A figure of one model on one stream of several data sets."""
    return _figure(
        number,
        title,
        [(model, code, benchmark) for benchmark in benchmarks],
        [(model, small_code or code, benchmark) for benchmark in _HERE],
        note=f"{_SURFACES} {note}" if note else _SURFACES,
    )


_APPENDIX_MODELS = ("FC", "D-FC", "CONV", "D-CONV", "LWTA", "EWC", "wtIMM")


def _appendix(benchmarks: Sequence[str]) -> list[tuple[str, str, str]]:
    """The plots of appendix B; IMM was not computed on EMNIST."""
    over_time = [(model, "D9-1b", benchmark) for model in _APPENDIX_MODELS for benchmark in benchmarks]
    return [
        *(panel for panel in over_time if panel != ("wtIMM", "D9-1b", "EMNIST")),
        *(("EWC", "D5-5d", benchmark) for benchmark in benchmarks),
    ]


ARTEFACTS = (
    Artefact(
        "004-table1",
        "Nine data sets: samples and class imbalance",
        tuple(facts(benchmark) for benchmark in DATASETS),
        note=_DATA_NOTE,
    ),
    _table(
        "3", "Best and last accuracy of six models after sequential learning, and catastrophic forgetting"
    ),
    _table("4", "Accuracy of merged networks (IMM) at their best balance"),
    _table("5", "Baseline and Ω of six models"),
    _surfaces(2, "FC on DP10-10", "FC", "DP10-10"),
    _surfaces(
        3,
        "D-FC on D5-5",
        "D-FC",
        "D5-5a",
        note="The paper does not say which stream of the type it shows: this is D5-5a.",
    ),
    _figure(
        4,
        "EWC: best and last accuracy",
        [("EWC", "D9-1c", "EMNIST"), ("EWC", "D9-1a", "EMNIST"), ("EWC", "D9-1b", "Devanagari")],
        [("EWC", "D9-1b", "MNIST"), ("EWC", "D9-1a", "MNIST"), ("EWC", "D9-1b", "Devanagari")],
        note="In the small reading MNIST stands for EMNIST, and D9-1b for D9-1c.",
    ),
    _surfaces(5, "EWC on D5-5d", "EWC", "D5-5d"),
    _figure(
        6,
        "IMM on D5-5f of Devanagari: both networks, and the merged one over α",
        [("wtIMM", "D5-5f", "Devanagari")],
        [("wtIMM", "D5-5f", "Devanagari")],
    ),
    _surfaces(
        7,
        "IMM on D5-5b",
        "wtIMM",
        "D5-5b",
        benchmarks=_IMM_SETS,
        small_code="D5-5a",
        note="The small reading shows D5-5a.",
    ),
    _surfaces(
        8,
        "IMM on D9-1c",
        "wtIMM",
        "D9-1c",
        benchmarks=_IMM_SETS,
        small_code="D9-1b",
        note="The small reading shows D9-1b.",
    ),
    _figure(
        9,
        "All models on D9-1b and EWC on D5-5d, over time",
        _appendix(("EMNIST", "MNIST", "Devanagari")),
        _appendix(("MNIST", "Devanagari")),
        note="The plots of the paper's appendix B, which have no number there.",
    ),
)
