"""`engram compare`: which of some methods is better, as far as the seeds can tell."""

from __future__ import annotations

import math
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Plugin, load_own

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engram.metrics.comparison import Pair, Ranking
    from engram.results.compare import RunComparison


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that hold some.", metavar="RUNS")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A metric; may be repeated (default: ACC, FORG, min-ACC, WC-ACC and a plugin's)."),
    ] = None,
    test: Annotated[
        str, typer.Option(help="sign-flip (assumes no shape) or t (assumes normal differences).")
    ] = "sign-flip",
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare methods on the same scenario, paired by seed: ranking, tests, effect sizes.

    Runs that differ only in the seed are one method. Methods that share a letter cannot be told apart.
    """
    from engram.cli.options import one_of
    from engram.cli.output import incomplete_as_json, name_incomplete, print_json
    from engram.results.compare import compare_runs
    from engram.results.runs import find_runs

    chosen = one_of("test", test, ("sign-flip", "t"))
    load_own(plugin)
    finished = find_runs(runs)
    name_incomplete(finished)
    compared = compare_runs(finished, metrics=metric or (), test=chosen)  # type: ignore[arg-type]
    if json:
        print_json({**compared.as_json(), "incomplete": incomplete_as_json(finished)})
    else:
        _print_tables(compared)


def _print_tables(compared: RunComparison) -> None:
    from engram.cli.output import stdout
    from engram.cli.tables import wrapped

    def say(text: str) -> None:
        stdout.print("\n".join(wrapped(text, stdout.width)), markup=False, soft_wrap=True)

    where = f"{compared.scenario} ({compared.setting}), " if compared.scenario else ""
    say(f"{where}{_count(len(compared.seeds), 'seed')}: {_listed(compared.seeds)}")
    for name, seeds in compared.left_out.items():
        say(f"left out, because not every method has them: {name}, seeds {_listed(seeds)}")
    for field, values in compared.differences.items():
        say(f"differs as well: {field} ({_listed(f'{name} {value}' for name, value in values.items())})")
    for note in compared.notes:
        say(f"note: {note}")
    for metric, ranking in compared.rankings.items():
        better = "higher" if ranking.higher_is_better else "lower"
        say(f"\n{metric}, in percent: {better} is better; {_count(ranking.n, 'seed')}")
        _print_ranking(ranking)
        _print_pairs(ranking)
        if ranking.too_few:
            say(f"too few seeds: {ranking.too_few}")
    for metric, why in compared.undefined.items():
        say(f"\n{metric} is left out: {why}")
    for line in _rules(compared):
        say(line)


def _print_ranking(ranking: Ranking) -> None:
    from engram.cli.tables import Column, print_table

    numbers = ("mean", "SD", "95 % t interval", "95 % bootstrap", "group")
    print_table(
        [Column("method"), *(Column(title, right=True) for title in numbers)],
        [
            [
                standing.name,
                _percent(standing.over.mean),
                _percent(standing.over.sd),
                _interval(standing.over.ci95),
                _interval(standing.bootstrap95),
                " ".join(map(_letter, standing.groups)),
            ]
            for standing in ranking.standings
        ],
    )


def _print_pairs(ranking: Ranking) -> None:
    from engram.cli.tables import Column, print_table

    numbers = ("difference, 95 % t interval", "d_z", "wins", "p", "p Holm", "more seeds")
    print_table(
        [Column("pair"), *(Column(title, right=True) for title in numbers)],
        [
            [
                f"{pair.first} − {pair.second}",
                f"{100 * pair.difference:+.2f}"
                + (f" ({_interval(pair.ci95)})" if math.isfinite(pair.sd) else ""),
                f"{pair.d_z:.2f}" if math.isfinite(pair.d_z) else "–",
                f"{pair.wins}/{ranking.n}",
                _p(pair.p),
                _p(pair.p_holm),
                _more_seeds(pair),
            ]
            for pair in ranking.pairs
        ],
    )


def _more_seeds(pair: Pair) -> str:
    if pair.told_apart:
        return "told apart"
    if math.isnan(pair.more_seeds):
        return "?"
    return f"{pair.more_seeds:,}" if math.isfinite(pair.more_seeds) else "∞"


def _rules(compared: RunComparison) -> Iterable[str]:
    """What the tables mean, below them."""
    from engram.metrics.paired import DRAWS

    ranking = next(iter(compared.rankings.values()))
    exact = all(pair.exact for one in compared.rankings.values() for pair in one.pairs)
    signs = "exact" if exact else f"{DRAWS:,} random signs, seed 0"
    how = {
        "sign-flip": f"sign-flip permutation test, {signs}, two-sided",
        "t": "paired t test, two-sided, which assumes normal differences",
    }[ranking.test]
    pairs = len(ranking.pairs)
    yield f"\np: {how}; Holm's correction over the {_count(pairs, 'pair')} of each metric, not over metrics."
    yield (
        f"Methods share a letter exactly if they cannot be told apart (p Holm above {ranking.level:g}); "
        "that does not show that they are equal."
    )
    yield (
        f"More seeds: for 80 % power at {100 * ranking.level:g} %"
        f"{f' / {pairs} pairs' if pairs > 1 else ''}, if differences are normal and the effect is the one "
        "seen (d_z with Hedges' correction); a rough guide, and ? for fewer than three seeds."
    )
    yield (
        "SD: divisor n − 1. Bootstrap: BCa, seed 0. d_z: mean difference / SD of the "
        "differences. Intervals are not corrected for the number of pairs."
    )


def _letter(group: int) -> str:
    return ascii_lowercase[group % 26] * (1 + group // 26)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _percent(value: float) -> str:
    return f"{100 * value:.2f}" if math.isfinite(value) else "–"


def _interval(edges: tuple[float, float]) -> str:
    return " … ".join(map(_percent, edges)) if all(map(math.isfinite, edges)) else "–"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
