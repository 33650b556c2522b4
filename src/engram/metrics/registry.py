"""The registry of metrics: each is one function, described by its decorator and its docstring.

Everything about metrics derives from here: which are computed for a run (`engram.metrics.summary`), their
streaming counterparts, `engram list metrics`, `engram explain`, the direction in comparisons and grids, and
the columns of tables and reports.
"""

from __future__ import annotations

import inspect
import operator
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable

from engram.core.errors import InputError, unknown_name
from engram.core.registry import Registry
from engram.metrics.docstrings import Definition, read_definition

if TYPE_CHECKING:
    from engram.metrics.arrays import Vector
    from engram.metrics.curve import Mode, Span
    from engram.metrics.history import History
    from engram.metrics.intervals import Bounds
    from engram.metrics.streaming import StreamingMetric

    Returned: TypeAlias = float | Vector | History
    """One number; one number per task; or a value per task at every evaluation."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Keywords: TypeAlias = dict[str, Any]
"""Keyword arguments of a metric's function or of its streaming counterpart."""

WINDOWS: Final[tuple[int | None, ...]] = (10, 100, None)
"""The windows that are reported by default; None is the whole history."""

_COUNTS: Final = "needs the number of samples: correct and total instead of accuracy"
NEEDS: Final[Mapping[str, str]] = {
    "matrix": "needs accuracies",
    "curve": "needs evaluations during learning; a matrix has only task ends",
    "bits": "needs a trace with bits, which record the samples that were right",
    "right": "needs a trace that records which samples were right, the same samples at every evaluation",
    "correct": _COUNTS,
    "samples": _COUNTS,
    "classes": "needs the number of classes of each task",
    "choices": "needs the number of classes among which answers are sought",
    "initial": "needs the accuracies at initialisation, and those of each task just before it is learned",
    "unlearned": "needs tasks that were evaluated twice or more and never learned",
    "features": "needs the network's features",
    "labels": "needs the network's features",
    "quality": "needs the accuracy on all classes so far",
    "joint": "needs the accuracy of joint training",
}
"""The inputs that a metric can need, and the message where they are not available."""

_FIRST: Final = ("matrix", "curve", "bits", "right", "correct", "features", "quality")
_TASK_ENDS: Final = ("matrix", "correct", "samples", "classes")
_RESAMPLED: Final = ("matrix", "curve", "classes")
_HISTORY: Final = (*_TASK_ENDS, "curve", "bits", "right", "choices", "initial", "unlearned")


@runtime_checkable
class _Named(Protocol):
    """A function or class, which has a name; partial objects have none."""

    __name__: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: a pure function and its description.

    Attributes:
        name: The name, as in the papers, in files and in JSON.
        title: The full name.
        higher_is_better: Whether higher values are better.
        source: Paper and equation.
        needs: The inputs of the function, in order; see `metric`.
        function: The pure function.
        definition: The content of its docstring: meaning, formula, divisor, notes.
        family: The name that several metrics share, if any.
        aliases: Other names for it.
        average: Whether a returned vector has one value per task, whose mean is the metric.
        by_task: Computes the values per task of a metric whose function returns one number.
        named_by: The option that is part of the name (`window` for WF10), if any.
        stream: The streaming counterpart: a class, or its location as `"module:Class"`.
        extreme: The lowest and the highest possible value, for a minimum or maximum over evaluations.
        bounds: The lowest and the highest possible value; None where there are none.
        options: The keyword-only arguments of the function.

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
    stream: type[StreamingMetric] | str | None = None
    extreme: tuple[float, float] | None = None
    bounds: Bounds | None = None
    options: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        keywords = inspect.signature(self.function).parameters.values()
        names = tuple(part.name for part in keywords if part.kind is inspect.Parameter.KEYWORD_ONLY)
        object.__setattr__(self, "options", names)
        # The registry reads the module of an entry to tell engram's own from those of plugins.
        object.__setattr__(self, "__module__", self.function.__module__)

    @property
    def is_ours(self) -> bool:
        """Whether it is part of engram rather than of a plugin."""
        return self.function.__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def direction(self) -> str:
        """Whether higher or lower is better, as a sentence."""
        better = f"{'Higher' if self.higher_is_better else 'Lower'} is better."
        return f"{better} {self.definition.direction}".strip()

    @property
    def undefined(self) -> str:
        """When it is NaN."""
        return self.definition.undefined or "undefined: the function returned NaN"

    @property
    def of_history(self) -> bool:
        """Whether it can be computed from a trace alone."""
        return set(self.needs) <= set(_HISTORY)

    @property
    def task_ends_suffice(self) -> bool:
        """Whether evaluations at task ends are sufficient."""
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
            'AF, average forgetting: How far, on average, ... Lower is better. Negative if tasks are ...'
        """
        return f"{self.name}, {self.title}: {self.definition.meaning} {self.direction}"

    def __call__(self, *arguments: object, **options: object) -> Returned:
        """Call the function.

        Raises:
            InputError: The function of a plugin raised an exception; the message has its file and line.
        """
        return self.guarded(self.function, *arguments, **options)

    def guarded(self, function: Callable[..., T], *arguments: object, **options: object) -> T:
        """Call one of the metric's functions; an exception in a plugin becomes a one-line `InputError`."""
        if self.is_ours:
            return function(*arguments, **options)
        try:
            with warnings.catch_warnings():
                # NaN stands for "not evaluated" and "undefined", so NumPy's warnings about it are noise.
                warnings.simplefilter("ignore", RuntimeWarning)
                return function(*arguments, **options)
        except Exception as error:
            # The deepest line of the user's file is more helpful than a line of a library.
            frames = traceback.extract_tb(error.__traceback__)[1:]
            users = [frame for frame in frames if frame.filename == inspect.getsourcefile(function)]
            place = _place(users[-1].filename, users[-1].lineno or 0) if users else self.where
            reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
            raise InputError(f"metric {self.name!r} failed in {place}: {reason}") from error

    def refuse(self, reason: str) -> NoReturn:
        """Raise an error about this metric.

        Raises:
            InputError: Always; the message has the metric, file and line.
        """
        raise InputError(f"metric {self.name!r} in {self.where} {reason}")

    def stream_class(self) -> type[StreamingMetric] | None:
        """The class of its streaming counterpart, if it has one.

        Example:
            >>> METRICS["min-ACC"].stream_class().__name__, METRICS["ACC"].stream_class()
            ('MinAccuracy', None)
        """
        if not isinstance(self.stream, str):
            return self.stream
        module, _, name = self.stream.partition(":")
        stream: type[StreamingMetric] = getattr(import_module(module), name)
        return stream


@dataclass(frozen=True, slots=True)
class Options:
    """Options that several metrics share.

    Attributes:
        windows: The windows of WF and WP; None is the whole history.
        beta: The number of evaluations in the learning-curve area.
        span: Which evaluations count for min-ACC.
        mode: How WF and WP look for the largest change.
        clamp: Whether a task that improved counts 0 in AF and RAF.
    """

    windows: Sequence[int | None] = WINDOWS
    beta: int = 10
    span: Span = "after"
    mode: Mode = "exact"
    clamp: bool = False

    def variants(self, metric: Metric) -> dict[str, Keywords]:
        """The names under which a metric is computed, with the options of its function for each.

        Example:
            >>> Options(windows=(10, None)).variants(METRICS["WF"])
            {'WF10': {'mode': 'exact', 'window': 10}, 'WFinf': {'mode': 'exact', 'window': None}}
        """
        shared = {"beta": self.beta, "span": self.span, "mode": self.mode, "clamp": self.clamp}
        # An option of a plugin may mean something else by the same name, unless the metric is named by it.
        accepted = metric.options if metric.is_ours else (metric.named_by,)
        options = {name: value for name, value in shared.items() if name in accepted}
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
"""Every metric by its name; filled by importing `engram.metrics`, extended by plugins."""


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
    stream: type[StreamingMetric] | str | None = None,
    extreme: tuple[float, float] | None = None,
    bounds: Bounds | None = None,
) -> Callable[[F], F]:
    """Register a pure function as a metric, available to every command.

    By default the function takes the accuracy matrix `acc[learned, evaluated]` (NaN: not evaluated). `needs`
    selects other inputs:

    - `curve`: a `Curve`, the accuracy of each task at every evaluation, instead of the matrix;
    - `bits`: a `Trace`, which records the samples that were right, instead of the matrix;
    - `right`: a `SampleCurve`, which samples were right at every evaluation, instead of the matrix;
    - `matrix`: the matrix, in addition to one of these;
    - `classes`: the total number of classes seen after each task, as a further argument;
    - `choices`: the number of classes among which the answers are sought, `choices[learned, evaluated]`, as a
      further argument;
    - `samples`: the number of samples behind each cell of the matrix, as a further argument;
    - `initial`: the accuracy of each task before the first update, as a further argument.

    It returns a number; or one number per task (the value after learning each task, of which the last is the
    metric; with `average`, the value of each task, whose mean is the metric); or a `History`, the value of
    each task at every evaluation. NaN means undefined.

    The docstring is the definition of the metric: the first paragraph is its meaning; lines that begin with
    `Formula:`, `Divisor:`, `Direction:`, `NaN:`, `Elsewhere:` or `Worked:`, and further paragraphs, are shown
    by `engram explain`.

    Args:
        name: The name in files and JSON.
        higher_is_better: Whether higher values are better.
        source: Paper and equation.
        needs: The inputs of the function: one name, or several in the order of its arguments.
        title: The full name (default: the name of the function).
        meaning: One sentence (default: the first paragraph of the docstring).
        formula: The formula (default: that of the docstring).
        family: The name that several metrics share.
        aliases: Other names for it.
        average: Whether a returned vector has one value per task, whose mean is the metric.
        by_task: A function of the same arguments that computes the values per task, for a metric whose
            function returns one number.
        named_by: `window` or `beta`, for a function with this option whose value is part of the name (WF10).
        stream: Its streaming counterpart, a subclass of `engram.metrics.streaming.StreamingMetric`.
        extreme: For a metric that takes a minimum or maximum over evaluations, its lowest and its highest
            possible value. Measured on subsets it is biased: results then show a corrected value and an
            interval beside it; see `engram.metrics.extremes`.
        bounds: The lowest and the highest possible value, such as `(0, 1)`: intervals over seeds stay within.

    Raises:
        InputError: The name is taken, the arguments of the function do not match `needs`, or the lower bound
            is not below the upper one.

    Example:
        >>> @metric("dips", higher_is_better=False, needs="bitz")
        ... def dips(trace): ...
        Traceback (most recent call last):
        engram.core.errors.InputError: unknown need of metric 'dips' 'bitz'; did you mean 'bits'?
    """

    def register(function: F) -> F:
        definition = read_definition(inspect.getdoc(function) or "", meaning=meaning, formula=formula)
        function_name = function.__name__ if isinstance(function, _Named) else name
        described = Metric(
            name=name,
            title=title or function_name.replace("_", " "),
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
            extreme=extreme,
            bounds=bounds,
        )
        _check(described)
        METRICS.add_own(name, described)
        return function

    return register


def find(name: str) -> tuple[Metric, ...]:
    """The metrics with a name: one for the name of a metric, several for a name that metrics share.

    Any window is accepted: `WF25` finds `WF`. Case does not matter.

    Raises:
        InputError: There is no such metric; similar names are suggested.

    Example:
        >>> [metric.name for metric in find("forgetting")]
        ['FORG', 'AF', 'FORG-unlearned', 'AvgFgt', 'BWT']
        >>> find("wf25")[0].name
        'WF'
    """
    metrics = all_metrics()
    wanted = _plain(name)
    for metric in metrics:
        known = _plain(metric.name)
        if known == wanted or (metric.named_by and re.fullmatch(rf"{re.escape(known)}(\d+|inf)", wanted)):
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
    """Every name that `find` accepts, the names of metrics first.

    Example:
        >>> "forgetting" in names()
        True
    """
    metrics = all_metrics()
    others = [name for metric in metrics for name in (metric.family, *metric.aliases) if name]
    return tuple(dict.fromkeys([*(metric.name for metric in metrics), *others]))


def computed(options: Options | None = None) -> dict[str, Metric]:
    """The metrics that are computed for runs, by the names used in results.

    Example:
        >>> [name for name, metric in computed().items() if not metric.higher_is_better][:7]
        ['FORG', 'AF', 'FORG-unlearned', 'RAF', 'WF10', 'WF100', 'WFinf']
    """
    return dict(_up_to_date().names) if options is None else _variants(all_metrics(), options)


def expected_names() -> Mapping[str, None]:
    """The names of the metrics that a run should have, in their order, for quick look-up.

    Metrics of tasks that are never learned are not among them: few runs have such tasks.

    Example:
        >>> "ACC" in expected_names(), "FORG-unlearned" in expected_names()
        (True, False)
    """
    return _up_to_date().expected


class _Latest:
    """The metrics that were registered when their names were last asked for, and these names."""

    metrics: tuple[Metric, ...] = ()
    names: Mapping[str, Metric] = MappingProxyType({})
    expected: Mapping[str, None] = MappingProxyType({})


_latest = _Latest()


def _up_to_date() -> _Latest:
    """The names of metrics. Many runs ask for them, and plugins may register more metrics at any time."""
    metrics = all_metrics()
    if len(metrics) != len(_latest.metrics) or any(map(operator.is_not, metrics, _latest.metrics)):
        _latest.metrics, _latest.names = metrics, _variants(metrics, Options())
        _latest.expected = dict.fromkeys(
            name for name, metric in _latest.names.items() if "unlearned" not in metric.needs
        )
    return _latest


def _variants(metrics: Iterable[Metric], options: Options) -> dict[str, Metric]:
    return {name: metric for metric in metrics if metric.of_history for name in options.variants(metric)}


def users_metrics() -> tuple[str, ...]:
    """The metrics of plugins, by the names used in results; tables show them beside the default metrics."""
    return tuple(name for name, metric in computed().items() if not metric.is_ours)


def computed_name(name: str) -> str:
    """The name of a metric as results spell it, from any capitalisation.

    Raises:
        InputError: Runs have no such metric; similar names are suggested.

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
    """Whether higher values of a metric are better.

    Raises:
        InputError: There is no such metric.

    Example:
        >>> higher_is_better("ACC"), higher_is_better("FORG"), higher_is_better("WF10")
        (True, False, False)
    """
    return find(name)[0].higher_is_better


def bounds_of(name: str) -> Bounds | None:
    """The lowest and the highest possible value of a metric; None where there are none or it is not known.

    Example:
        >>> bounds_of("ACC"), bounds_of("FORG"), bounds_of("WF10"), bounds_of("of a plugin")
        ((0, 1), (-1, 1), (0, 1), None)
    """
    try:
        return find(name)[0].bounds
    except InputError:
        return None


def _needs(name: str, needs: tuple[str, ...]) -> tuple[str, ...]:
    for need in needs:
        if need not in NEEDS:
            raise unknown_name(f"need of metric {name!r}", need, NEEDS)
    return needs if any(need in _FIRST for need in needs) else ("matrix", *needs)


def _check(metric: Metric) -> None:
    """Refuse a metric whose name is ambiguous or whose function cannot be called."""
    if not _plain(metric.name):
        metric.refuse("has no name: pass one, as in @engram.metric('my-metric', higher_is_better=True)")
    for other in all_metrics():
        ours, theirs = _plain(metric.name), _plain(other.name)
        windowed = other.named_by and re.fullmatch(rf"{re.escape(theirs)}(\d+|inf)", ours)
        if metric.name != other.name and (ours == theirs or windowed):
            metric.refuse(f"has a name that is read as {other.name}: choose another name")
    if metric.named_by and (
        metric.named_by not in ("window", "beta") or metric.named_by not in metric.options
    ):
        metric.refuse(
            f"has named_by={metric.named_by!r}: it must be window or beta, and a keyword-only argument of "
            "the function"
        )
    if metric.extreme is not None:
        _check_extreme(metric, metric.extreme)
    if metric.bounds is not None and not metric.bounds[0] < metric.bounds[1]:
        metric.refuse(f"has bounds={metric.bounds}: the lowest value must be below the highest, as in (0, 1)")
    try:
        inspect.signature(metric.function).bind(*metric.needs)
    except TypeError:
        metric.refuse(
            f"cannot be called with {', '.join(metric.needs)}: its arguments are "
            f"{inspect.signature(metric.function)}; set `needs` to match"
        )


def _check_extreme(metric: Metric, extreme: tuple[float, float]) -> None:
    """Refuse an extreme that cannot be computed on a part of the samples."""
    if not set(metric.needs) <= set(_RESAMPLED):
        metric.refuse(f"has extreme={extreme}: it must need no more than {', '.join(_RESAMPLED)}")
    if len(extreme) != 2 or not extreme[0] < extreme[1]:
        metric.refuse(f"has extreme={extreme}: it must be the lowest and the highest possible value")


def _plain(name: str) -> str:
    return re.sub(r"[\s_^-]+", "", name).casefold().replace("ω", "omega")


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}, line {line}"
