"""`engram gate`: did a new model forget something that the old one knew?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engram.cli.options import Json, MinSamples, Score, Slices
from engram.core.errors import InputError

if TYPE_CHECKING:
    from engram.results.gate import Gate

_ROWS = 20


def gate(
    old: Annotated[Path, typer.Argument(help="The old model's predictions, run or weights.", metavar="OLD")],
    new: Annotated[Path, typer.Argument(help="The new model's predictions, run or weights.", metavar="NEW")],
    max_drop: Annotated[
        str | None,
        typer.Option(metavar="LIMIT", help="Largest drop of accuracy, such as 1pp (the default rule)."),
    ] = None,
    max_flips: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT", help="Largest share of samples that were right and are wrong, such as 1%."
        ),
    ] = None,
    max_worst_slice_drop: Annotated[
        str | None, typer.Option(metavar="LIMIT", help="Largest drop of any slice or class, such as 5pp.")
    ] = None,
    slices: Slices = None,
    min_samples: MinSamples = None,
    common: Annotated[
        bool, typer.Option("--common", help="Leave out samples that only one of the two has.")
    ] = False,
    score: Score = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE:FACTORY", help="The network of weights, if no run wrote them.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For weights, a TOML file that names slices and their data files."),
    ] = None,
    level: Annotated[float, typer.Option(help="One minus the confidence.")] = 0.05,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write Markdown.", metavar="FILE")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page with the samples that flipped.", metavar="FILE")
    ] = None,
    json: Json = False,
) -> None:
    """Compare two models sample by sample; exit 1 unless the new one is shown to keep the limits.

    OLD and NEW are prediction files (CSV, Parquet, JSONL, npz) with the columns id, and correct, or label and
    prediction; further columns are slices. They may be runs, or lm-eval's per-sample files, too. With --data,
    they are weights (safetensors, or a state dict of torch.save) of networks that answer now.

    A limit ends in :safe (fails unless it is shown that the model keeps it, the default) or :harm (fails only
    if it is shown that it does not).
    """
    from engram.cli.output import check_output, print_json
    from engram.results.gate.comparing import compare_files
    from engram.results.gate.judging import rules_of

    rules = rules_of(max_drop=max_drop, max_flips=max_flips, max_worst_slice_drop=max_worst_slice_drop)
    chosen = None if slices is None else [name.strip() for name in slices.split(",") if name.strip()]
    network = None if model is None else model.partition(":")[0]
    outputs = {"--junit": junit, "--markdown": markdown, "--html": html}
    for out in outputs.values():
        check_output(out, old, new, data, network)
    _refuse_same(outputs)
    first, second = _answers(old, new, data, model)
    outcome = compare_files(
        first, second, rules, slices=chosen, min_samples=min_samples, common=common, score=score, level=level
    )
    _write(outcome, junit=junit, markdown=markdown, html=html, images=new.parent)
    if json:
        print_json(outcome.as_json())
    else:
        _print(outcome)
    if not outcome.passed:
        raise typer.Exit(1)


def _refuse_same(outputs: Mapping[str, Path | None]) -> None:
    """Refuse two options that name one file, of which the second would replace what the first wrote.

    Example:
        >>> _refuse_same({"--junit": Path("gate"), "--markdown": None, "--html": Path("./gate")})
        Traceback (most recent call last):
        engram.core.errors.InputError: --junit and --html name the same file, gate: name two
    """
    from engram.core.files import is_stream

    named = [(option, out) for option, out in outputs.items() if out is not None and not is_stream(out)]
    for (option, one), (other, second) in combinations(named, 2):
        if os.path.realpath(one) == os.path.realpath(second):
            raise InputError(f"{option} and {other} name the same file, {one}: name two")


def _answers(old: Path, new: Path, data: Path | None, model: str | None) -> tuple[object, object]:
    """What is compared: files and runs as they are, or what networks with weights answer."""
    if data is None:
        if model is not None:
            raise InputError("model is for weights: name the data that they answer with --data FILE")
        weights = [path for path in (old, new) if path.suffix in (".safetensors", ".pt", ".pth")]
        if weights:
            raise InputError(f"{weights[0]} has weights: name the data that they answer with --data FILE")
        return old, new
    from engram.engine.gating import answers_of_weights, read_slices

    slices = read_slices(data)
    return answers_of_weights(old, slices, model), answers_of_weights(new, slices, model)


def _write(
    outcome: Gate, *, junit: Path | None, markdown: Path | None, html: Path | None, images: Path
) -> None:
    from engram.core.files import write_whole
    from engram.results.gate import writing
    from engram.results.gate.page import write_page

    for path, text in ((junit, writing.junit), (markdown, writing.markdown)):
        if path is not None:
            content = text(outcome)
            write_whole(path, lambda beside, content=content: beside.write_text(content, encoding="utf-8"))  # type: ignore[misc]
    if html is not None:
        write_page(outcome, html, images=images)


def _print(outcome: Gate) -> None:
    from rich.text import Text

    from engram.cli.output import stdout
    from engram.cli.tables import Column, print_table
    from engram.results.gate.writing import cells, headline

    stdout.print(headline(outcome), markup=False, soft_wrap=True)
    titles = (
        "samples",
        "before",
        "after",
        "lost",
        "gained",
        f"change, {100 * (1 - outcome.level):g} %",
        "p Holm",
    )
    columns = [Column("slice"), *(Column(title, right=True) for title in titles)]
    columns.append(Column("would show", right=True, wide=True))
    shown = [outcome.overall, *outcome.slices[:_ROWS]]
    print_table(columns, [cells(change) for change in shown])
    if len(outcome.slices) > _ROWS:
        stdout.print(f"and {len(outcome.slices) - _ROWS} slices that fell less; --json has all", markup=False)
    if outcome.too_small:
        many = "one slice is" if outcome.too_small == 1 else f"{outcome.too_small:,} slices are"
        stdout.print(f"{many} left out because of too few samples", markup=False)
    for judgement in outcome.judgements:
        word, style = ("passed", "green") if judgement.passed else ("failed", "bold red")
        line = Text.assemble((word, style), f"  {judgement.rule}: {judgement.reason}")
        stdout.print(line, soft_wrap=True)
