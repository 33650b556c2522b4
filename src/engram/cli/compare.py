"""`engram compare`: which of some methods is better, as far as the seeds can tell."""

from __future__ import annotations

import math
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Plugin, RunPlaces, load_own
from engram.core.collection import without_collection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engram.metrics.comparison import Pair, Ranking
    from engram.results.compare import RunComparison

MOST_PAIRS = 45
"""With more pairs than this, the table has only those with the best method."""


@without_collection()
def compare(
    runs: RunPlaces,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric; may be repeated: the first one is the primary metric, the others are exploratory "
            "(default: ACC, FORG, min-ACC, WC-ACC and a plugin's)."
        ),
    ] = None,
    test: Annotated[
        str, typer.Option(help="sign-flip (assumes symmetric differences) or t (assumes normal ones).")
    ] = "sign-flip",
    baseline: Annotated[
        str, typer.Option(metavar="METHOD", help="Compare every other method with this one only.")
    ] = "",
    more_seeds: Annotated[
        str,
        typer.Option(
            metavar="N,M",
            help="A plan, made before the first look: compare with N seeds and again with M in total, at "
            "levels that together are 5 %.",
        ),
    ] = "",
    together: Annotated[
        bool, typer.Option("--together", help="Correct for all metrics together: none is exploratory.")
    ] = False,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Add BCa bootstrap intervals; they need 10 seeds.")
    ] = False,
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare methods on the same scenario, paired by seed: ranking, tests, effect sizes.

    Runs that differ only in the seed are one method. Methods that share a letter cannot be told apart.
    Several scenarios are compared one by one.
    """
    from engram.cli.options import one_of
    from engram.cli.output import incomplete_as_json, name_incomplete, print_json, stderr
    from engram.results.compare import CompareOptions, compare_by_scenario
    from engram.results.runs import find_runs

    options: CompareOptions = {
        "test": one_of("test", test, ("sign-flip", "t")),  # type: ignore[typeddict-item]
        "baseline": baseline,
        "more_seeds": _looks(more_seeds),
        "together": together,
        "bootstrap": bootstrap,
    }
    load_own(plugin)
    finished = find_runs(runs)
    name_incomplete(finished)
    comparisons, problems = compare_by_scenario(finished, metrics=metric or (), **options)
    comparisons = _with_looks(comparisons, runs)
    for title, problem in problems.items():
        stderr.print(f"left out: {title}: {problem}", markup=False, soft_wrap=True)
    incomplete = incomplete_as_json(finished)
    if json and len(comparisons) == 1 and not problems:
        print_json({**comparisons[0].as_json(), "incomplete": incomplete})
    elif json:
        listed = [compared.as_json() for compared in comparisons]
        print_json({"scenarios": listed, "left_out": problems, "incomplete": incomplete})
    else:
        _print_all(comparisons)


def _looks(text: str) -> tuple[int, ...]:
    """The numbers of seeds of a plan."""
    from engram.core.errors import InputError

    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise InputError(
            f"--more-seeds must be ascending numbers of seeds, such as 6,12, got {text!r}"
        ) from None


def _with_looks(comparisons: Sequence[RunComparison], paths: Sequence[str]) -> list[RunComparison]:
    """The comparisons with the earlier looks that they extend; each is added to the log beside the runs."""
    from dataclasses import replace

    from engram.cli.output import stderr
    from engram.results.looks import extended, log_folders, read_looks, record_look

    folders = log_folders(paths)
    earlier = read_looks(folders)
    completed = []
    for compared in comparisons:
        look = compared.look()
        completed.append(compared if look is None else replace(compared, extended=extended(earlier, look)))
        kept = [record_look(folder, look) for folder in folders] if look is not None else [True]
        if compared.plan and not all(kept):
            stderr.print(
                f"this look is not recorded, because {_listed(folders)} cannot be written", markup=False
            )
    return completed


def _print_all(comparisons: Sequence[RunComparison]) -> None:
    for number, compared in enumerate(comparisons):
        if number:
            _say("")
        _print_tables(compared)
    for line in _rules(comparisons):
        _say(line)


def _say(text: str) -> None:
    from engram.cli.output import stdout
    from engram.cli.tables import wrapped

    stdout.print("\n".join(wrapped(text, stdout.width)), markup=False, soft_wrap=True)


def _print_tables(compared: RunComparison) -> None:
    from engram.metrics.scores import shown_times

    where = f"{compared.title}, " if compared.title else ""
    _say(f"{where}{_count(len(compared.seeds), 'seed')}: {_listed(compared.seeds)}")
    for line in _cautions(compared):
        _say(line)
    for name, seeds in compared.left_out.items():
        _say(f"left out, because not every method has them: {name}, seeds {_listed(seeds)}")
    for field, values in compared.differences.items():
        _say(f"differs as well: {field} ({_listed(f'{name} {value}' for name, value in values.items())})")
    for note in compared.notes:
        _say(f"note: {note}")
    for metric, ranking in compared.rankings.items():
        better = "higher" if ranking.higher_is_better else "lower"
        role = {"primary": "; primary metric", "exploratory": "; exploratory"}.get(ranking.role, "")
        several = role if len(compared.rankings) > 1 else ""
        times = shown_times(metric)
        unit = ", in percent" if times != 1 else ""
        _say(f"\n{metric}{unit}: {better} is better; {_count(ranking.n, 'seed')}{several}")
        _print_ranking(ranking, times)
        _print_pairs(ranking, times)
    for metric, why in compared.undefined.items():
        _say(f"\n{metric} is left out: {why}")


def _cautions(compared: RunComparison) -> Iterable[str]:
    """What must be known before the tables are read."""
    few: dict[str, list[str]] = {}
    for metric, ranking in compared.rankings.items():
        if ranking.too_few:
            few.setdefault(ranking.too_few, []).append(metric)
    for why, metrics in few.items():
        of = "" if len(metrics) == len(compared.rankings) else f" for {_listed(metrics)}"
        yield f"too few seeds{of}: {why}{_fewer_with_baseline(compared.rankings[metrics[0]])}"
    if compared.plan:
        level = compared.rankings[compared.primary].level
        yield (
            f"planned looks with {_listed(compared.plan)} seeds: the level of this one is {level:.3g}, that "
            "of all of them 0.05"
        )
    if compared.extended:
        before = sorted({len(look.seeds) for look in compared.extended})
        plan = ",".join(map(str, [*before, len(compared.seeds)]))
        unplanned = " outside of this plan" if compared.plan else ""
        yield (
            f"extended after a look: this comparison was looked at before with {_listed(before)} "
            f"seeds{unplanned}. Testing again with more seeds finds differences that are not there more "
            "often than the level says (about 8 % instead of 5 % for two looks, 10 % for three): confirm "
            f"the finding on new seeds, or plan the looks beforehand (--more-seeds {plan})"
        )


def _fewer_with_baseline(ranking: Ranking) -> str:
    """How many seeds would do if all methods were compared with one; empty if that changes nothing."""
    from engram.metrics.paired import fewest_seeds

    others = len(ranking.standings) - 1
    if ranking.baseline or ranking.test != "sign-flip" or others < 2:
        return ""
    families = ranking.tests // len(ranking.pairs)
    enough = fewest_seeds(tests=families * others, level=ranking.level)
    fewer = enough < fewest_seeds(tests=ranking.tests, level=ranking.level)
    return f" ({enough} with --baseline METHOD, which tests {others} pairs)" if fewer else ""


def _print_ranking(ranking: Ranking, times: float) -> None:
    from engram.cli.tables import Column, print_table

    letters = bool(ranking.groups) and ranking.role != "exploratory"
    bootstrap = ranking.standings[0].bootstrap95 is not None
    numbers = ("mean", "SD", "95 % interval", *["95 % bootstrap"] * bootstrap, *["group"] * letters)
    print_table(
        [Column("method"), *(Column(title, right=True) for title in numbers)],
        [
            [
                f"{standing.name} (baseline)" if standing.name == ranking.baseline else standing.name,
                _number(times * standing.over.mean),
                _number(times * standing.over.sd),
                _interval(standing.over.ci95, times),
                *[_interval(standing.bootstrap95, times)] * bootstrap,
                *[" ".join(map(_letter, standing.groups))] * letters,
            ]
            for standing in ranking.standings
        ],
    )


def _print_pairs(ranking: Ranking, times: float) -> None:
    from engram.cli.tables import Column, print_table

    best = ranking.standings[0].name
    many = len(ranking.pairs) > MOST_PAIRS and not ranking.baseline
    pairs = [pair for pair in ranking.pairs if not many or best in (pair.first, pair.second)]
    numbers = ("difference, 95 % t interval", "d_z", "wins", "p", "p Holm", "more seeds")
    print_table(
        [Column("pair"), *(Column(title, right=True) for title in numbers)],
        [
            [
                f"{pair.first} − {pair.second}",
                f"{times * pair.difference:+.2f}"
                + (f" ({_interval(pair.ci95, times)})" if math.isfinite(pair.sd) else ""),
                f"{pair.d_z:.2f}" if math.isfinite(pair.d_z) else "–",
                f"{pair.wins}/{ranking.n}",
                _p(pair.p),
                _p(pair.p_holm),
                _more_seeds(pair, ranking),
            ]
            for pair in pairs
        ],
    )
    if many:
        _say(
            f"the {len(pairs):,} pairs with {best} are shown, of {len(ranking.pairs):,}: --json has all of "
            "them, --baseline METHOD tests only those with one method"
        )


def _more_seeds(pair: Pair, ranking: Ranking) -> str:
    if pair.told_apart:
        return f"below {ranking.level:.2g}" if ranking.role == "exploratory" else "told apart"
    if math.isnan(pair.more_seeds):
        return "?"
    return f"{pair.more_seeds:,}" if math.isfinite(pair.more_seeds) else "∞"


def _rules(comparisons: Sequence[RunComparison]) -> Iterable[str]:
    """What the tables mean, below them."""
    from engram.metrics.paired import DRAWS

    rankings = [ranking for compared in comparisons for ranking in compared.rankings.values()]
    ranking = rankings[0]
    exact = all(pair.exact for one in rankings for pair in one.pairs)
    signs = "exact" if exact else f"{DRAWS:,} random signs, seed 0"
    how = {
        "sign-flip": f"sign-flip permutation test, {signs}, two-sided, which assumes differences that are "
        "symmetric about 0 if the methods are equally good: rare collapses of one method break that",
        "t": "paired t test, two-sided, which assumes normal differences; no SD is below what "
        "the number of test samples allows",
    }[ranking.test]
    together = "all metrics together" if ranking.role == "corrected" else "each metric"
    against = "with the baseline " if ranking.baseline else ""
    tests = _listed(dict.fromkeys(_count(one.tests, "test") for one in rankings))
    yield f"\np: {how}. Holm's correction over the pairs {against}of {together} ({tests})."
    if any(one.role == "exploratory" for one in rankings):
        yield (
            "The first metric is the primary one. The others are exploratory: looking for a difference in "
            "four metrics finds one that is not there in about 15 % of cases; --together corrects for all."
        )
    if any(one.groups and one.role != "exploratory" for one in rankings):
        yield (
            "Methods share a letter exactly if they cannot be told apart (p Holm above "
            f"{ranking.level:.3g}); that does not show that they are equal."
        )
    yield from _columns(ranking)


def _columns(ranking: Ranking) -> Iterable[str]:
    yield (
        f"More seeds: for 80 % power at {100 * ranking.level:.3g} %"
        f"{f' / {ranking.tests} tests' if ranking.tests > 1 else ''}, if differences are normal and the "
        "effect is the one seen (d_z with Hedges' correction); a rough guide, and ? for fewer than three "
        "seeds."
    )
    bootstrap = " Bootstrap: BCa, seed 0." if ranking.standings[0].bootstrap95 is not None else ""
    yield (
        f"SD: divisor n − 1.{bootstrap} d_z: mean difference / SD of the differences. Intervals of "
        "accuracies are computed on the logit scale, so that they stay between 0 and 100; they are not "
        "corrected for the number of pairs."
    )
    test = "sign-flip" if ranking.test == "sign-flip" else "t-test"
    yield f"`engram explain NAME` has more about: interval, {test}, holm, exploratory, looks."


def _letter(group: int) -> str:
    return ascii_lowercase[group % 26] * (1 + group // 26)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "–"


def _interval(edges: tuple[float, float] | None, times: float) -> str:
    known = edges and all(map(math.isfinite, edges))
    return " … ".join(_number(times * edge) for edge in edges) if edges and known else "–"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
