"""What each metric means, where it comes from, and what others compute under the same name.

The examples are worked out by the functions themselves whenever they are shown, so they cannot go stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from engram.core.errors import unknown_name
from engram.metrics import curve as curves
from engram.metrics import matrix
from engram.metrics.arrays import Matrix, mean_of_known
from engram.metrics.curve import Curve
from engram.metrics.diversity import feature_diversity

STABILITY_GAP: Final = "De Lange et al., identifying the stability gap"
NEW_METRICS: Final = "Michel et al., new metrics for analyzing continual learners"
FORWARD: Final = "Chen et al., forgetting and forward transfer"
APPLICATION: Final = "Pfülb & Gepperth, application-oriented study"
GEM: Final = "Lopez-Paz & Ranzato, gradient episodic memory (GEM)"
AGEM: Final = "Chaudhry et al., averaged gradient episodic memory (A-GEM)"


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example.

    Attributes:
        cells: The numbers that go in.
        working: The formula with these numbers in place.
        value: What the function returns for them.
    """

    cells: str
    working: str
    value: float


@dataclass(frozen=True, slots=True)
class Definition:
    """What a metric means.

    Attributes:
        name: As in the papers, and as in files and JSON.
        title: What it is called in full.
        meaning: One sentence.
        formula: The formula.
        source: Paper and equation.
        divisor: What sums are divided by.
        direction: Which sign or size is good.
        undefined: When it is NaN.
        example: Works the example out.
        notes: Edge cases and options.
        elsewhere: What other tools compute under the same name.
        family: The name that several metrics share, if any.
        aliases: Other names that people use for it.
    """

    name: str
    title: str
    meaning: str
    formula: str
    source: str
    divisor: str
    direction: str
    undefined: str
    example: Callable[[], Example]
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    family: str = ""
    aliases: tuple[str, ...] = ()

    def short(self) -> str:
        """One line for a tooltip.

        Example:
            >>> find("FORG")[0].short()
            'FORG, forgetting: The mean accuracy that ... Positive is forgetting, negative is backward ...'
        """
        return f"{self.name}, {self.title}: {self.meaning} {self.direction}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the numbers that go by the same name.

    Attributes:
        who: Which metric of ours, and which tools.
        how: How it is computed.
        value: The number.
    """

    who: str
    how: str
    value: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One name, many numbers: the same matrix through several definitions.

    Attributes:
        name: The name they share.
        cells: The matrix.
        variants: The numbers.
    """

    name: str
    cells: str
    variants: tuple[Variant, ...]


def find(name: str) -> tuple[Definition, ...]:
    """The metrics that go by a name: one for a metric's own name, several for one that they share.

    Windows may be any: `WF25` is found as `WF`. Case does not matter.

    Raises:
        InputError: Nobody knows the name; near ones are suggested.

    Example:
        >>> [definition.name for definition in find("forgetting")]
        ['FORG', 'AF', 'AvgFgt', 'BWT']
        >>> find("wf25")[0].name
        'WF'
    """
    wanted = _plain(name)
    own = [definition for definition in DEFINITIONS if _plain(definition.name) == wanted]
    if own:
        return tuple(own)
    windowed = re.fullmatch(r"(wf|wp|lca)(\d+|inf)", wanted)
    if windowed:
        return find(windowed[1])
    shared = [d for d in DEFINITIONS if wanted in map(_plain, (d.family, *d.aliases))]
    if not shared:
        raise unknown_name("metric", name, names())
    return tuple(shared)


def names() -> tuple[str, ...]:
    """Every name that `find` knows, own names first."""
    own = [definition.name for definition in DEFINITIONS]
    others = [name for d in DEFINITIONS for name in (d.family, *d.aliases) if name]
    return tuple(dict.fromkeys(own + others))


def compare(family: str) -> Comparison | None:
    """What goes by one name, side by side on one matrix; None where nothing is shared.

    Example:
        >>> [round(variant.value, 4) for variant in compare("forgetting").variants]
        [0.13, 0.1367, 0.1433, 0.1075, 0.0975, -0.085, -0.13]
    """
    variants = _FAMILIES.get(_plain(family))
    acc = worked_matrix()[:4, :4]
    return Comparison(family, _table(acc), tuple(variants(acc))) if variants else None


def worked_matrix() -> Matrix:
    """The accuracy matrix of the examples: five tasks."""
    return matrix.accuracy_matrix(
        [
            [0.98],
            [0.91, 0.90],
            [0.85, 0.92, 0.95],
            [0.70, 0.94, 0.80, 0.96],
            [0.75, 0.60, 0.85, 0.90, 0.93],
        ]
    )


def worked_curve() -> Curve:
    """The evaluation history of the examples: three tasks, four updates each, and one evaluation before."""
    first = [0.10, 0.50, 0.80, 0.90, 0.95, 0.40, 0.55, 0.85, 0.90, 0.30, 0.60, 0.70, 0.88]
    second = [0.20, 0.70, 0.90, 0.92, 0.65, 0.50, 0.75, 0.80]
    third = [0.35, 0.75, 0.60, 0.97]
    columns = [
        np.concatenate([np.full(13 - len(series), np.nan), series]) for series in (first, second, third)
    ]
    return Curve(
        step=np.arange(13), learning=np.repeat([0, 1, 2], [5, 4, 4]), accuracy=np.column_stack(columns)
    )


def _plain(name: str) -> str:
    return re.sub(r"[\s_^-]+", "", name).casefold().replace("ω", "omega")


def _number(value: float) -> str:
    return f"{value:.2f}".removeprefix("0") if 0 <= value < 1 else f"{value:g}"


def _table(cells: Matrix) -> str:
    return "\n".join(" ".join("   " if np.isnan(v) else _number(v) for v in row).rstrip() for row in cells)


def _mean_of(terms: Iterable[str], divisor: int) -> str:
    return f"({' + '.join(terms)}) / {divisor}"


def _accuracies() -> Example:
    acc = worked_matrix()
    return Example(
        _table(acc), _mean_of(map(_number, acc[-1]), 5), matrix.final(matrix.average_accuracy(acc), acc)
    )


def _pooled() -> Example:
    acc = worked_matrix()[:2, :2]
    total = np.array([[100.0, np.nan], [100.0, 300.0]])
    return Example(
        f"{_table(acc)}\n100 samples of the first task, 300 of the second",
        "(91 + 270) / (100 + 300)",
        float(matrix.pooled_accuracy(acc * total, total)[-1]),
    )


def _forgotten() -> Example:
    acc = worked_matrix()
    lost = (f"({_number(acc[j, j])} − {_number(acc[4, j])})" for j in range(4))
    return Example(_table(acc), _mean_of(lost, 4), matrix.final(matrix.forgetting(acc), acc))


def _fallen() -> Example:
    acc = worked_matrix()
    lost = (f"({_number(float(np.nanmax(acc[:4, j])))} − {_number(acc[4, j])})" for j in range(4))
    return Example(_table(acc), _mean_of(lost, 4), matrix.final(matrix.average_forgetting(acc), acc))


def _average_change() -> Example:
    acc = worked_matrix()
    changes = (f"{value:.4g}".replace("-", "−") for value in matrix.signed_forgetting(acc)[1:])
    return Example(_table(acc), _mean_of(changes, 4), matrix.average_signed_forgetting(acc))


def _just_learned() -> Example:
    acc = worked_matrix()
    return Example(
        _table(acc), _mean_of(map(_number, np.diag(acc)), 5), matrix.average_learning_accuracy(acc)
    )


def _transferred_back() -> Example:
    acc = worked_matrix()
    gained = (f"({_number(acc[4, j])} − {_number(acc[j, j])})" for j in range(4))
    return Example(_table(acc), _mean_of(gained, 4), matrix.backward_transfer(acc))


def _transferred_forward() -> Example:
    acc = np.array([[0.90, 0.30], [0.60, 0.80]])
    initial = np.array([0.10, 0.10])
    return Example(
        f"{_table(acc)}\nat initialisation: .10 .10", "(.30 − .10) / 1", matrix.forward_transfer(acc, initial)
    )


def _rescaled_accuracy() -> Example:
    acc, classes = worked_matrix(), [2, 4, 6, 8, 10]
    return Example(
        f"{_table(acc)}\ntwo new classes a task; after the third task",
        "6 / 10 · (.85 + .92 + .95) / 3",
        float(matrix.rescaled_average_accuracy(acc, classes)[2]),
    )


def _rescaled_forgetting() -> Example:
    acc, classes = worked_matrix(), [2, 4, 6, 8, 10]
    by_chance = matrix.random_forgetting(classes)
    return Example(
        f"{_table(acc)}\ntwo new classes a task; after the third task",
        f"{by_chance[4]:.6f} / {by_chance[2]:.6f} · ((.98 − .85) + (.90 − .92)) / 2",
        float(matrix.rescaled_average_forgetting(acc, classes)[2]),
    )


def _series() -> str:
    lines = (
        f"task {task}: " + " ".join("   " if np.isnan(v) else _number(v) for v in series)
        for task, series in enumerate(worked_curve().accuracy.T, start=1)
    )
    return "\n".join([*lines, "one column an evaluation; the tasks end at the 5th, 9th and 13th"])


def _lowest() -> Example:
    return Example(_series(), "(.30 + .50) / 2", curves.min_accuracy(worked_curve()).final)


def _worst_case() -> Example:
    return Example(_series(), "1/3 · .97 + 2/3 · .40", curves.worst_case_accuracy(worked_curve()).final)


def _drops() -> Example:
    return Example(
        f"{_series()}\nwindow of 3",
        "((.90 − .30) + (.92 − .50) + (.75 − .60)) / 3",
        curves.windowed_forgetting(worked_curve(), window=3).final,
    )


def _rises() -> Example:
    return Example(
        f"{_series()}\nwindow of 3",
        "((.80 − .10) + (.90 − .20) + (.75 − .35)) / 3",
        curves.windowed_plasticity(worked_curve(), window=3).final,
    )


def _first_evaluations() -> Example:
    return Example(
        f"{_series()}\nβ = 2",
        "((.10 + .50) / 2 + (.20 + .70) / 2 + (.35 + .75) / 2) / 3",
        curves.learning_curve_area(worked_curve(), beta=2).final,
    )


def _now() -> Example:
    return Example(_series(), ".97", curves.current_accuracy(worked_curve()).final)


def _diversity() -> Example:
    psi = np.array(
        [
            [1, 0, 0.5],
            [0.8, 0.1, 0.4],
            [1.2, -0.1, 0.6],
            [0, 1, -0.5],
            [0.1, 0.9, -0.4],
            [-0.1, 1.1, -0.6],
            [0, 0.7, -0.3],
        ]
    )
    rows = "\n".join(" ".join(f"{value:4.1f}" for value in row) for row in psi)
    return Example(
        f"{rows}\nthe first three samples are of one class, the other four of another; ε = 0.5",
        "4.147740 − 3/7 · 2.872434 − 4/7 · 2.720292",
        feature_diversity(psi, [0, 0, 0, 1, 1, 1, 1]),
    )


def _relative() -> Example:
    return Example(
        "best accuracy on both tasks .30, joint training .50", ".30 / .50", matrix.omega_all(0.30, 0.50)
    )


def _forgetting_variants(acc: Matrix) -> Iterable[Variant]:
    last, tasks = acc[-1], len(acc)
    best = np.nanmax(acc, axis=0)
    earlier = (best - last)[:-1]
    yield Variant(
        "FORG; Avalanche", "just learned − now, mean of T − 1", matrix.final(matrix.forgetting(acc), acc)
    )
    yield Variant(
        "AF; FACIL, Renate",
        "best earlier − now, mean of T − 1",
        matrix.final(matrix.average_forgetting(acc), acc),
    )
    yield Variant("AF with clamp; Mammoth, PyCIL", "best ever − now, mean of T − 1", mean_of_known(earlier))
    yield Variant("(other tools)", "best ever − now, summed and divided by T", float(earlier.sum()) / tasks)
    yield Variant(
        "GEM's code, sign turned",
        "just learned − now, summed and divided by T",
        float((np.diag(acc) - last).sum()) / tasks,
    )
    yield Variant(
        "AvgFgt", "now − just learned, after every task, then averaged", matrix.average_signed_forgetting(acc)
    )
    yield Variant(
        "BWT; Mammoth's backward transfer", "now − just learned, mean of T − 1", matrix.backward_transfer(acc)
    )


def _transfer_variants(acc: Matrix) -> Iterable[Variant]:
    change = acc - np.diag(acc)
    pairs = change[np.tril_indices(len(acc), -1)]
    yield Variant("BWT; Mammoth", "now − just learned, mean of T − 1", matrix.backward_transfer(acc))
    yield Variant(
        "GEM's code", "now − just learned, summed and divided by T", float(change[-1].sum()) / len(acc)
    )
    yield Variant(
        "Díaz-Rodríguez et al.",
        "after every later task − just learned, mean of all pairs",
        float(pairs.mean()),
    )
    yield Variant(
        "AvgFgt", "now − just learned, after every task, then averaged", matrix.average_signed_forgetting(acc)
    )


def _accuracy_variants(acc: Matrix) -> Iterable[Variant]:
    after_each = matrix.average_accuracy(acc)
    seen = acc[np.tril_indices(len(acc))]
    yield Variant("ACC, AA, AvgAcc", "mean of all tasks at the end", matrix.final(after_each, acc))
    yield Variant(
        "average incremental accuracy", "the same after every task, then averaged", mean_of_known(after_each)
    )
    yield Variant("Díaz-Rodríguez et al.; continuum's A", "mean of all cells", float(seen.mean()))
    yield Variant(
        "AvgLAcc", "mean of each task just after it was learned", matrix.average_learning_accuracy(acc)
    )


_FAMILIES: Final = {
    "forgetting": _forgetting_variants,
    "backwardtransfer": _transfer_variants,
    "averageaccuracy": _accuracy_variants,
}

_TWO_TASKS: Final = "undefined until a second task is learned and the first is evaluated again"
_NO_ACCURACIES: Final = "undefined: nothing was evaluated after a task was learned"
_NO_EVALUATIONS: Final = "undefined: nothing was evaluated"

DEFINITIONS: Final[tuple[Definition, ...]] = (
    Definition(
        name="ACC",
        title="average accuracy",
        meaning="The mean accuracy of the tasks learned so far, measured after each task.",
        formula="ACC_k = (1/k) Σ_{j≤k} acc[k, j]",
        source=f"{STABILITY_GAP}, section 3.2.3",
        divisor="k, the tasks learned so far; every task counts the same",
        direction="Higher is better.",
        undefined=_NO_ACCURACIES,
        example=_accuracies,
        notes=(
            "Tasks not yet learned do not count, even where they were evaluated.",
            "The published numbers of class-incremental streams are pooled over samples: see ACC-pooled.",
        ),
        family="average accuracy",
        aliases=("accuracy",),
    ),
    Definition(
        name="ACC-pooled",
        title="accuracy over samples",
        meaning="All right answers on the tasks learned so far, divided by all questions.",
        formula="Σ_{j≤k} correct[k, j] / Σ_{j≤k} total[k, j]",
        source=f"{STABILITY_GAP}, its code (stream accuracy of class-incremental streams)",
        divisor="the samples of the tasks learned so far",
        direction="Higher is better.",
        undefined=_NO_ACCURACIES,
        example=_pooled,
        notes=("Equals ACC where all tasks have equally many samples.",),
        family="average accuracy",
    ),
    Definition(
        name="AA",
        title="average accuracy",
        meaning="The mean accuracy of the tasks learned so far, after each task; the same number as ACC.",
        formula="AA_k = (1/k) Σ_{j≤k} a_{k,j}",
        source=f"{NEW_METRICS}, Definition 3.1, Eq. 1",
        divisor="k, the tasks learned so far",
        direction="Higher is better.",
        undefined=_NO_ACCURACIES,
        example=_accuracies,
        family="average accuracy",
    ),
    Definition(
        name="AvgAcc",
        title="average accuracy at the end",
        meaning="The mean accuracy of all tasks after the last one; the final value of ACC.",
        formula="AvgAcc = (1/N) Σ_j acc[N, j]",
        source=f"{FORWARD}, appendix B.2",
        divisor="N, all tasks",
        direction="Higher is better.",
        undefined=_NO_ACCURACIES,
        example=_accuracies,
        family="average accuracy",
    ),
    Definition(
        name="AvgLAcc",
        title="average learning accuracy",
        meaning="The mean of every task's accuracy just after it was learned: plasticity.",
        formula="AvgLAcc = (1/N) Σ_j acc[j, j]",
        source=f"{FORWARD}, appendix B.2",
        divisor="N, all tasks",
        direction="Higher is better.",
        undefined="undefined: no task was evaluated just after it was learned",
        example=_just_learned,
        aliases=("learning accuracy", "plasticity"),
    ),
    Definition(
        name="FORG",
        title="forgetting",
        meaning="The mean accuracy that earlier tasks have lost since each was learned.",
        formula="FORG_k = (1/(k−1)) Σ_{j<k} (acc[j, j] − acc[k, j])",
        source=f"{STABILITY_GAP}, section 3.2.1",
        divisor="k − 1, the earlier tasks",
        direction="Positive is forgetting, negative is backward transfer.",
        undefined=_TWO_TASKS,
        example=_forgotten,
        notes=("FORG = −BWT after the last task, and −Fgt after each.",),
        elsewhere=("Avalanche's StreamForgetting is this number, but 0 after the first task.",),
        family="forgetting",
    ),
    Definition(
        name="AF",
        title="average forgetting",
        meaning="How far, on average, earlier tasks have fallen below the best they ever were.",
        formula="AF_k = (1/(k−1)) Σ_{j<k} (max_{j≤l<k} a_{l,j} − a_{k,j})",
        source=f"{NEW_METRICS}, Definition 3.2, Eq. 2",
        divisor="k − 1, the earlier tasks",
        direction="Lower is better; negative where tasks are better than ever.",
        undefined=_TWO_TASKS,
        example=_fallen,
        notes=(
            "AF ≥ FORG, because the best is at least what was just learned.",
            "With clamp=True a task that is better than ever counts 0.",
        ),
        elsewhere=("Mammoth and PyCIL include the last row in the maximum: the clamped number.",),
        family="forgetting",
    ),
    Definition(
        name="AvgFgt",
        title="average forgetting over the stream",
        meaning="The mean change of earlier tasks since each was learned, averaged over every task's end.",
        formula="AvgFgt = (1/(N−1)) Σ_{i≥2} Fgt_i,  Fgt_i = (1/(i−1)) Σ_{j<i} (acc[i, j] − acc[j, j])",
        source=f"{FORWARD}, Eq. 1",
        divisor="N − 1, all tasks but the first; within each, i − 1",
        direction="Higher is better: negative is forgetting, the opposite of FORG and AF.",
        undefined=_TWO_TASKS,
        example=_average_change,
        notes=("By task it shows Fgt after each task, which is −FORG.",),
        family="forgetting",
        aliases=("Fgt",),
    ),
    Definition(
        name="BWT",
        title="backward transfer",
        meaning="How much later learning changed the earlier tasks, on average, after the whole stream.",
        formula="BWT = (1/(T−1)) Σ_{j<T} (acc[T, j] − acc[j, j])",
        source=f"{GEM}, Eq. 3",
        divisor="T − 1, all tasks but the last, as in the paper",
        direction="Higher is better: negative is forgetting.",
        undefined=_TWO_TASKS,
        example=_transferred_back,
        elsewhere=(
            "GEM's published code divides by T.",
            "Díaz-Rodríguez et al. average over all pairs of a task and a later one.",
        ),
        family="backward transfer",
        aliases=("forgetting",),
    ),
    Definition(
        name="FWT",
        title="forward transfer",
        meaning="How much earlier learning helps a task before it is learned, against a random network.",
        formula="FWT = (1/(T−1)) Σ_{i≥2} (acc[i−1, i] − initial[i])",
        source=f"{GEM}, Eq. 4",
        divisor="T − 1, all tasks but the first",
        direction="Higher is better.",
        undefined="undefined: needs accuracies at initialisation and of each task before it is learned",
        example=_transferred_forward,
        elsewhere=(
            "Where each task has its own output units, the next task's are still random: FWT is noise.",
            "Chen et al. mean another number by it: a new head trained on k examples a class.",
        ),
        aliases=("forward transfer",),
    ),
    Definition(
        name="RAA",
        title="rescaled average accuracy",
        meaning="Average accuracy relative to chance, so that values after few and many classes compare.",
        formula="RAA_k = (C_k / C_K) · AA_k, with C_k the classes seen after task k",
        source=f"{NEW_METRICS}, Eq. 5",
        divisor="as AA",
        direction="Higher is better; after the last task it equals AA.",
        undefined=_NO_ACCURACIES,
        example=_rescaled_accuracy,
        notes=("Needs the number of classes of each task.",),
    ),
    Definition(
        name="RAF",
        title="rescaled average forgetting",
        meaning="Average forgetting relative to that of a random classifier, which cannot forget.",
        formula=(
            "RAF_k = min_q AF_q(Rand) / AF_k(Rand) · AF_k, AF_k(Rand) = (1/(k−1)) Σ_{j<k} 1/C_j − 1/C_k"
        ),
        source=f"{NEW_METRICS}, Definitions 4.1 and 4.2; Eq. 6 for equal class counts",
        divisor="as AF",
        direction="Lower is better; with equal class counts it equals AF after the last task.",
        undefined="undefined: needs two tasks learned in turn and evaluated, the second with new classes",
        example=_rescaled_forgetting,
        notes=(
            "Needs the number of classes of each task.",
            "With unequal counts the smallest AF(Rand) need not be the last; the final RAF is then not AF.",
        ),
    ),
    Definition(
        name="min-ACC",
        title="average minimum accuracy",
        meaning="The lowest accuracy that earlier tasks have had since they were learned, on average.",
        formula="min-ACC_t = (1/(k−1)) Σ_{i<k} min_{e_i < n ≤ t} A_i(n), with e_i the end of task i",
        source=f"{STABILITY_GAP}, Eq. 2, with the range of its code",
        divisor="k − 1, the earlier tasks",
        direction="Higher is better.",
        undefined="undefined until a task is evaluated while a later one is learned",
        example=_lowest,
        notes=(
            "The value at a task's own end does not count; span='inclusive' counts it.",
            "As printed, the range begins with the task's own learning: span='printed'.",
            "Tasks that were never learned on their own are skipped.",
        ),
        aliases=("stability gap",),
    ),
    Definition(
        name="WC-ACC",
        title="worst-case accuracy",
        meaning="The accuracy of the current task now, averaged with the lowest that earlier tasks have had.",
        formula="WC-ACC_t = (1/k) · A_k(t) + (1 − 1/k) · min-ACC_t",
        source=f"{STABILITY_GAP}, Eq. 6",
        divisor="k, the tasks learned so far",
        direction="Higher is better.",
        undefined="undefined at an evaluation that leaves out the task being learned",
        example=_worst_case,
        notes=(
            "While the first task is learned it is that task's accuracy.",
            "At a task's end it is at most ACC, if both look at the same samples.",
        ),
        aliases=("worst case", "stability gap"),
    ),
    Definition(
        name="WF",
        title="windowed forgetting",
        meaning="The largest drop that each task has had within a window of w evaluations, on average.",
        formula="WF^w_t = (1/N) Σ_i max (A_i(m) − A_i(n)) over m < n ≤ t with n − m ≤ w − 1, at least 0",
        source=f"{STABILITY_GAP}, Eq. 3 and 4",
        divisor="N, the tasks evaluated so far, the current one included",
        direction="Lower is better.",
        undefined=_NO_EVALUATIONS,
        example=_drops,
        notes=(
            "WF10 and WF100 have windows of 10 and 100; WFinf looks at the whole history.",
            "The window counts evaluations, not updates, and is not cut at task switches.",
            "An evaluation before the first update counts, and so do those of tasks not yet learned.",
            "A curve that only rises has 0; the printed formula would go below.",
        ),
        elsewhere=("A test subset redrawn at every update adds its own noise: drops that no model had.",),
        aliases=("windowed forgetting", "stability gap"),
    ),
    Definition(
        name="WP",
        title="windowed plasticity",
        meaning="The largest rise that each task has had within a window of w evaluations, on average.",
        formula="WP^w_t = (1/N) Σ_i max (A_i(n) − A_i(m)) over m < n ≤ t with n − m ≤ w − 1, at least 0",
        source=f"{STABILITY_GAP}, Eq. 5",
        divisor="N, the tasks evaluated so far, the current one included",
        direction="Higher is more plastic.",
        undefined=_NO_EVALUATIONS,
        example=_rises,
        notes=("WP10 and WP100 have windows of 10 and 100; WPinf looks at the whole history.",),
        elsewhere=(
            "The released code misses rises that start low near the end: mode='refcode' imitates it.",
        ),
        aliases=("windowed plasticity", "plasticity"),
    ),
    Definition(
        name="LCA",
        title="learning-curve area",
        meaning="How good a task is, on average, over its first β evaluations while it is learned.",
        formula="LCA_β = (1/T) Σ_i (1/β) Σ_{b=1..β} A_i(b-th evaluation while learning i)",
        source=f"{AGEM}, as in the code of {STABILITY_GAP}",
        divisor="β within a task, then the tasks that have β evaluations",
        direction="Higher is faster learning.",
        undefined="undefined: no task was evaluated β times while it was learned",
        example=_first_evaluations,
        notes=("LCA10 has β = 10.",),
        elsewhere=("A-GEM divides by β + 1: it counts the accuracy before the task's first update too.",),
        aliases=("learning curve area", "plasticity"),
    ),
    Definition(
        name="current-ACC",
        title="current-task accuracy",
        meaning="The accuracy of the task being learned, now.",
        formula="A_k(t) while learning task k",
        source=f"{STABILITY_GAP}, section 3.2.2",
        divisor="none; the mean where several tasks are learned together",
        direction="Higher is better.",
        undefined="undefined at an evaluation that leaves out the task being learned",
        example=_now,
        aliases=("current accuracy", "plasticity"),
    ),
    Definition(
        name="FDiv",
        title="feature diversity",
        meaning="The volume that the features of all classes span beyond what each class spans on its own.",
        formula=("log det(I + α ΨᵀΨ) − Σ_c (m_c/m) log det(I + α_c Ψ_cᵀΨ_c), α = D/(m ε²), α_c = D/(m_c ε²)"),
        source=f"{FORWARD}, section 2 and Eq. 3, with the class weights that the printed formula lacks",
        divisor="none; AvgFDiv is the mean over all tasks but the first",
        direction="Higher is more diverse; never negative.",
        undefined="undefined without features",
        example=_diversity,
        notes=(
            "As printed, without weights, it can never be positive: weighted=False.",
            "The rate reduction that it builds on has a factor of one half: half=True.",
        ),
        aliases=("feature diversity", "AvgFDiv"),
    ),
    Definition(
        name="Ω_all",
        title="accuracy relative to joint training",
        meaning="The accuracy on all classes so far, relative to a network that learned everything at once.",
        formula="Ω_all = (1/(T−1)) Σ_{i≥2} α_all,i / α_ideal; with two tasks: best accuracy on both / joint",
        source=f"Kemker et al.; {APPLICATION}, Table 5",
        divisor="T − 1, all tasks but the first",
        direction="Higher is better; it can exceed 1.",
        undefined="undefined where joint training has accuracy 0 or is not known",
        example=_relative,
        notes=(
            "The same study's CF flag: best accuracy on both tasks below .5 (D5-5, DP10-10) or .9 (D9-1).",
        ),
        aliases=("omega", "omega all", "CF"),
    ),
)
