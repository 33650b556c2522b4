"""The forgetting gate: did a new model forget something that the old one knew?"""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.results.gate.judging import Change, Gate, Judgement, Rule, judge, parse_rule, rules_of
    from engram.results.gate.pairs import Pairs, join
    from engram.results.gate.predictions import Predictions, of_table, read_predictions

__all__ = [
    "Change",
    "Gate",
    "Judgement",
    "Pairs",
    "Predictions",
    "Rule",
    "join",
    "judge",
    "of_table",
    "parse_rule",
    "read_predictions",
    "rules_of",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".judging": ("Change", "Gate", "Judgement", "Rule", "judge", "parse_rule", "rules_of"),
        ".pairs": ("Pairs", "join"),
        ".predictions": ("Predictions", "of_table", "read_predictions"),
    },
)
