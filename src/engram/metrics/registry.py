"""What a metric is: one function, with what it means said at its decorator and in its docstring.

Everything that speaks of metrics derives from here: which are computed of a run (`engram.metrics.summary`),
the streaming pairs, `engram list metrics`, `engram explain`, the direction in comparisons and grids, and the
columns of tables and reports.
"""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

from engram.core.errors import InputError, unknown_name
from engram.core.registry import Registry
from engram.metrics.docstrings import Definition, read_definition

if TYPE_CHECKING:
    from engram.metrics.arrays import Vector
    from engram.metrics.curve import Mode, Span
    from engram.metrics.history import History
    from engram.metrics.streaming import Stream

    Returned: TypeAlias = float | Vector | History
    """One number; one number per task; or a value per task at every evaluation."""

F = TypeVar("F", bound=Callable[..., Any])

WINDOWS: Final[tuple[int | None, ...]] = (10, 100, None)
"""The windows that are reported by default; None is the whole history."""

_COUNTS: Final = "needs the number of samples: correct and total instead of accuracy"
NEEDS: Final[Mapping[str, str]] = {
    "matrix": "needs accuracies",
    "curve": "needs evaluations while learning goes on; a matrix has only task ends",
    "bits": "needs a trace with bits, which say which samples were right",
    "correct": _COUNTS,
    "samples": _COUNTS,
    "classes": "needs the number of classes of each task",
    "initial": "needs the accuracies at initialisation, and those of each task just before it is learned",
    "features": "needs the network's features",
    "labels": "needs the network's features",
    "quality": "needs the accuracy on all classes so far",
    "joint": "needs the accuracy of joint training",
}
"""What a metric can ask for, and what is said where that is not known."""

_FIRST: Final = ("matrix", "curve", "bits", "correct", "features", "quality")
_TASK_ENDS: Final = ("matrix", "correct", "samples", "classes")
_HISTORY: Final = (*_TASK_ENDS, "curve", "bits", "initial")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: a pure function, and what it means.

    Attributes:
        name: As in the papers, in files and in JSON.
        title: The full name.
        higher_is_better: Which direction is good.
        source: Paper and equation.
        needs: What the function is given, in this order; see `metric`.
        function: The pure function.
        definition: What its docstring says: meaning, formula, divisor, notes.
        family: The name that several metrics share, if any.
        aliases: Other names that people use for it.
        average: Whether a vector has one value of each task, whose mean is the metric.
        by_task: The values per task of a metric whose function returns one number.
        named_by: The option that is part of the name (`window` for WF10), if any.
        stream: The streaming twin: a class, or where it is as `"module:Class"`.

    Example:
        >>> forgetting = METRICS["FORG"]
        >>> forgetting.title, forgetting.higher_is_better, forgetting.needs
        ('forgetting', False, ('matrix',))
        >>> forgetting.definition.meaning
        'The mean accuracy that earlier tasks have lost since each was learned.'
    """

    name: str
    title: str
    higher_is_better: bool
    source: str
    needs: tuple[str, ...]
    function: Callable[..., Returned]
    definition: Definition
    family: str = ""
    aliases: tuple[str, ...] = ()
    average: bool = False
    by_task: Callable[..., Vector] | None = None
    named_by: str = ""
    stream: type[Stream] | str | None = None
    options: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        keywords = inspect.signature(self.function).parameters.values()
        names = tuple(part.name for part in keywords if part.kind is inspect.Parameter.KEYWORD_ONLY)
        object.__setattr__(self, "options", names)
        # The registry asks a thing's module whose it is.
        object.__setattr__(self, "__module__", self.function.__module__)

    @property
    def is_ours(self) -> bool:
        """Whether it comes with engram, not from a plugin."""
        return self.function.__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def direction(self) -> str:
        """Which direction is good, in words."""
        usual = f"{'Higher' if self.higher_is_better else 'Lower'} is better."
        return f"{usual} {self.definition.direction}".strip()

    @property
    def undefined(self) -> str:
        """Why it is NaN, where it is."""
        return self.definition.undefined or "undefined: the function returned NaN"

    @property
    def of_history(self) -> bool:
        """Whether it can be computed from accuracies alone, that is, from a trace."""
        return set(self.needs) <= set(_HISTORY)

    @property
    def task_ends_suffice(self) -> bool:
        """Whether evaluations at the ends of tasks are all it needs."""
        return set(self.needs) <= set(_TASK_ENDS)

    @property
    def where(self) -> str:
        """The file and line of its function."""
        try:
            file, line = inspect.getsourcefile(self.function), inspect.getsourcelines(self.function)[1]
        except (OSError, TypeError):
            return self.function.__module__
        return _place(file or self.function.__module__, line)

    def short(self) -> str:
        """One line for a tooltip.

        Example:
            >>> METRICS["AF"].short()
            'AF, average forgetting: How far, on average, ... Lower is better. Negative where tasks are ...'
        """
        return f"{self.name}, {self.title}: {self.definition.meaning} {self.direction}"

    def __call__(self, *arguments: Any, **options: Any) -> Returned:
        """What the function returns; whatever goes wrong in a user's function is one line.

        Raises:
            InputError: A user's function raised an exception; its file and line are named.
        """
        returned: Returned = self.guarded(self.function, *arguments, **options)
        return returned

    def guarded(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call one of the metric's functions; a user's exception becomes one line that says where it was."""
        if self.is_ours:
            return function(*arguments, **options)
        try:
            with warnings.catch_warnings():
                # NaN stands for "not evaluated" and "undefined", so NumPy's warnings about it are noise.
                warnings.simplefilter("ignore", RuntimeWarning)
                return function(*arguments, **options)
        except Exception as error:
            # The deepest line of the user's own file says more than one of a library.
            frames = traceback.extract_tb(error.__traceback__)[1:]
            own = [frame for frame in frames if frame.filename == inspect.getsourcefile(function)]
            place = _place(own[-1].filename, own[-1].lineno or 0) if own else self.where
            reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
            raise InputError(f"metric {self.name!r} failed in {place}: {reason}") from error

    def refuse(self, reason: str) -> NoReturn:
        """Raise because of what the function returned.

        Raises:
            InputError: Always; metric, file and line are named.
        """
        raise InputError(f"metric {self.name!r} in {self.where} {reason}")

    def stream_class(self) -> type[Stream] | None:
        """The class of its streaming twin, if it has one of its own.

        Example:
            >>> METRICS["min-ACC"].stream_class().__name__, METRICS["ACC"].stream_class()
            ('MinAccuracy', None)
        """
        if not isinstance(self.stream, str):
            return self.stream
        module, _, name = self.stream.partition(":")
        stream: type[Stream] = getattr(import_module(module), name)
        return stream


@dataclass(frozen=True, slots=True)
class Options:
    """Options that several metrics share.

    Attributes:
        windows: The windows of WF and WP; None is the whole history.
        beta: How many evaluations the learning-curve area looks at.
        span: Which evaluations count for min-ACC.
        mode: How WF and WP look for the largest change.
        clamp: Whether a task that improved counts 0 in AF and RAF.
    """

    windows: Sequence[int | None] = WINDOWS
    beta: int = 10
    span: Span = "after"
    mode: Mode = "exact"
    clamp: bool = False

    def variants(self, metric: Metric) -> dict[str, dict[str, Any]]:
        """The names under which a metric is computed, each with the options of its function.

        Example:
            >>> Options(windows=(10, None)).variants(METRICS["WF"])
            {'WF10': {'mode': 'exact', 'window': 10}, 'WFinf': {'mode': 'exact', 'window': None}}
        """
        shared = {"beta": self.beta, "span": self.span, "mode": self.mode, "clamp": self.clamp}
        # A user's function may mean something else by the same word, unless it is named by it.
        meant = metric.options if metric.is_ours else (metric.named_by,)
        options = {name: value for name, value in shared.items() if name in meant}
        if metric.named_by == "window":
            windows = {"inf" if window is None else str(window): window for window in self.windows}
            return {f"{metric.name}{text}": {**options, "window": window} for text, window in windows.items()}
        if metric.named_by == "beta":
            return {f"{metric.name}{self.beta}": options}
        return {metric.name: options}


METRICS: Final[Registry[Metric]] = Registry(
    "metric",
    home="engram.metrics",
    group="engram.metrics",
    decorator="@engram.metric('name', higher_is_better=…, source=…)",
)
"""Every metric by its name; importing `engram.metrics` fills it, and plugins add theirs."""


def metric(
    name: str,
    *,
    higher_is_better: bool,
    source: str = "",
    needs: str | Sequence[str] = (),
    title: str = "",
    meaning: str = "",
    formula: str = "",
    family: str = "",
    aliases: Sequence[str] = (),
    average: bool = False,
    by_task: Callable[..., Vector] | None = None,
    named_by: str = "",
    stream: type[Stream] | str | None = None,
) -> Callable[[F], F]:
    """Make a pure function a metric, which every command then knows.

    The function is given the accuracy matrix `acc[learned, evaluated]` (NaN: not evaluated), unless `needs`
    names something else:

    - `curve`: a `Curve`, the accuracy of every task at every evaluation, instead of the matrix;
    - `bits`: a `Trace`, which says which samples were right, instead of the matrix;
    - `matrix`: the matrix, beside one of these two;
    - `classes`: how many classes were seen after each task, in total, as a further argument;
    - `samples`: how many samples each cell of the matrix stands for, as a further argument;
    - `initial`: the accuracy of each task before the first update, as a further argument.

    It returns a number, or one number per task (its value after learning each task, the last being the
    metric; with `average` the value of each task, the mean being the metric), or a `History`, the value of
    each task at every evaluation. NaN stands for undefined.

    Its docstring is its definition: the first paragraph says what it means; lines that begin with `Formula:`,
    `Divisor:`, `Direction:`, `NaN:`, `Elsewhere:` or `Worked:` are shown by `engram explain`, and so are
    further paragraphs.

    Args:
        name: As in files and JSON.
        higher_is_better: Which direction is good.
        source: Paper and equation.
        needs: What the function is given: one name, or several in the order of its arguments.
        title: The full name; the function's unless given.
        meaning: One sentence, where it is not the docstring's first paragraph.
        formula: The formula, where it is not the docstring's.
        family: The name that several metrics share.
        aliases: Other names that people use for it.
        average: Whether a vector has one value of each task, whose mean is the metric.
        by_task: A function of the same arguments for the values per task, where the metric's own returns one
            number.
        named_by: `window` or `beta`, where the function takes such an option and the name says it (WF10).
        stream: Its streaming twin, a subclass of `engram.metrics.streaming.Stream`.

    Raises:
        InputError: The name is taken, or the function does not take what `needs` names.

    Example:
        >>> @metric("dips", higher_is_better=False, needs="bitz")
        ... def dips(trace): ...
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown need of metric 'dips' 'bitz'; did you mean 'bits'? ...
    """

    def register(function: F) -> F:
        definition = read_definition(inspect.getdoc(function) or "", meaning=meaning, formula=formula)
        plain_name = getattr(function, "__name__", name).replace("_", " ")
        described = Metric(
            name=name,
            title=title or plain_name,
            higher_is_better=higher_is_better,
            source=source,
            needs=_needs(name, (needs,) if isinstance(needs, str) else tuple(needs)),
            function=function,
            definition=definition,
            family=family,
            aliases=tuple(aliases),
            average=average,
            by_task=by_task,
            named_by=named_by,
            stream=stream,
        )
        _check(described)
        METRICS.add_own(name, described)
        return function

    return register


def find(name: str) -> tuple[Metric, ...]:
    """The metrics that go by a name: one for a metric's own name, several for one that they share.

    Windows may be any: `WF25` is found as `WF`. Case does not matter.

    Raises:
        InputError: There is no such metric; near ones are suggested.

    Example:
        >>> [metric.name for metric in find("forgetting")]
        ['FORG', 'AF', 'AvgFgt', 'BWT']
        >>> find("wf25")[0].name
        'WF'
    """
    metrics = all_metrics()
    wanted = _plain(name)
    for metric in metrics:
        own = _plain(metric.name)
        if own == wanted or (metric.named_by and re.fullmatch(rf"{re.escape(own)}(\d+|inf)", wanted)):
            return (metric,)
    shared = [metric for metric in metrics if wanted in map(_plain, (metric.family, *metric.aliases))]
    if not shared:
        raise unknown_name("metric", name, names())
    return tuple(shared)


def all_metrics() -> tuple[Metric, ...]:
    """Every registered metric.

    Example:
        >>> [metric.name for metric in all_metrics()][:4]
        ['ACC', 'AA', 'FORG', 'AF']
    """
    return tuple(METRICS.loaded()[0].values())


def names() -> tuple[str, ...]:
    """Every name that `find` knows, own names first.

    Example:
        >>> "forgetting" in names()
        True
    """
    metrics = all_metrics()
    others = [name for metric in metrics for name in (metric.family, *metric.aliases) if name]
    return tuple(dict.fromkeys([*(metric.name for metric in metrics), *others]))


def computed(options: Options | None = None) -> dict[str, Metric]:
    """The metrics that runs have, by the names under which they have them.

    Example:
        >>> [name for name, metric in computed().items() if not metric.higher_is_better]
        ['FORG', 'AF', 'RAF', 'WF10', 'WF100', 'WFinf']
    """
    chosen = options or Options()
    return {name: metric for metric in all_metrics() if metric.of_history for name in chosen.variants(metric)}


def users_metrics() -> tuple[str, ...]:
    """The metrics of plugins, by the names that runs have: tables show them beside the usual ones."""
    return tuple(name for name, metric in computed().items() if not metric.is_ours)


def computed_name(name: str) -> str:
    """A metric as results spell it, however it is typed.

    Raises:
        InputError: Runs have no such metric; near ones are suggested.

    Example:
        >>> computed_name("wc-acc")
        'WC-ACC'
    """
    known = computed()
    spelled = {spelling.lower(): spelling for spelling in known}
    if name.lower() not in spelled:
        raise unknown_name("metric", name, known)
    return spelled[name.lower()]


def higher_is_better(name: str) -> bool:
    """Which direction of a metric is good, as its decorator says.

    Raises:
        InputError: There is no such metric.

    Example:
        >>> higher_is_better("ACC"), higher_is_better("FORG"), higher_is_better("WF10")
        (True, False, False)
    """
    return find(name)[0].higher_is_better


def _needs(name: str, needs: tuple[str, ...]) -> tuple[str, ...]:
    for need in needs:
        if need not in NEEDS:
            raise unknown_name(f"need of metric {name!r}", need, NEEDS)
    return needs if any(need in _FIRST for need in needs) else ("matrix", *needs)


def _check(metric: Metric) -> None:
    """Refuse a metric that could not be found or called."""
    if not _plain(metric.name):
        metric.refuse("has no name: give one, as in @engram.metric('my-metric', higher_is_better=True)")
    for other in all_metrics():
        own, theirs = _plain(metric.name), _plain(other.name)
        windowed = other.named_by and re.fullmatch(rf"{re.escape(theirs)}(\d+|inf)", own)
        if metric.name != other.name and (own == theirs or windowed):
            metric.refuse(f"has a name that is read as {other.name}: choose another name")
    if metric.named_by and (
        metric.named_by not in ("window", "beta") or metric.named_by not in metric.options
    ):
        metric.refuse(
            f"is named by {metric.named_by!r}: that must be window or beta, and a keyword-only argument of it"
        )
    try:
        inspect.signature(metric.function).bind(*metric.needs)
    except TypeError:
        metric.refuse(
            f"cannot be called: it is given {', '.join(metric.needs)}, but its arguments are "
            f"{inspect.signature(metric.function)}; see `needs`"
        )


def _plain(name: str) -> str:
    return re.sub(r"[\s_^-]+", "", name).casefold().replace("ω", "omega")


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}, line {line}"
