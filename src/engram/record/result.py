"""What `result.json` says about a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engram.core.errors import Damaged, InputError
from engram.core.jsons import JsonMapping
from engram.metrics.extremes import Extremes
from engram.record.account import Account
from engram.record.card import Card
from engram.record.half_checked import HalfChecked
from engram.record.parallel import ParallelRecord
from engram.record.tables import Tables
from engram.record.test_data import TestData

if TYPE_CHECKING:
    from engram.record.run import Run


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long a run took: learning, evaluating, and both together."""

    train: float = 0.0
    evaluate: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.train + self.evaluate


def with_result(run: Run, result: JsonMapping, where: str, tables: Tables) -> Run:
    """The run with what `result.json` says, checked.

    Args:
        run: The run as its description tells it.
        result: The content of `result.json`.
        where: What it was read from, for messages.
        tables: Its tables.

    Raises:
        Damaged: It cannot have been written by engram.
    """
    if not isinstance(result.get("metrics"), Mapping):
        raise Damaged(f"{where} has no metrics: run it again with --again")
    try:
        seconds = result.get("seconds") or {}
        account, card, extremes = result.get("account"), result.get("card"), result.get("extremes")
        return replace(
            run,
            finished=True,
            stored={str(name): _number(value) for name, value in result["metrics"].items()},
            by_task={
                str(name): [_number(value) for value in values]
                for name, values in (result.get("by_task") or {}).items()
            },
            why={str(name): str(reason) for name, reason in (result.get("why") or {}).items()},
            estimates=None if extremes is None else Extremes.of_json(extremes),
            sizes=None if result.get("sizes") is None else tuple(map(int, result["sizes"])),
            classes=None if result.get("classes") is None else tuple(map(int, result["classes"])),
            phases={int(learning): tuple(tasks) for learning, tasks in result.get("phases") or ()},
            test_data=tuple(TestData.of_json(task) for task in result.get("test_data") or ()),
            updates=int(result.get("updates") or 0),
            evaluations=int(result.get("evaluations") or 0),
            seconds=Seconds(float(seconds.get("train") or 0), float(seconds.get("evaluate") or 0)),
            account=None if account is None else Account.of_json(account),
            card=None if card is None else Card.of_json(card, of=f"the run {run.folder or run.id}"),
            precision=None if result.get("precision") is None else HalfChecked.of_json(result["precision"]),
            parallel=None if result.get("parallel") is None else ParallelRecord.of_json(result["parallel"]),
            weights={str(name): str(value) for name, value in (result.get("weights") or {}).items()},
            versions={str(name): str(value) for name, value in (result.get("versions") or {}).items()},
            tables=tables,
        )
    except InputError as error:
        raise Damaged(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{where} cannot be read ({error}): run it again with --again") from error


def _number(value: object) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
