"""Experiments and their results: runs, failures, accounts and cards. No torch at import."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.record.account import Account
    from engram.record.card import Card, Constraint, Fact, ForbiddenRead, Read, Selected
    from engram.record.experiment import Experiment
    from engram.record.failure import Failure, FailureKind
    from engram.record.run import Run
    from engram.record.specs import EvaluationSpec, PhaseSpec, Start, TransferSpec

__all__ = [
    "Account",
    "Card",
    "Constraint",
    "EvaluationSpec",
    "Experiment",
    "Fact",
    "Failure",
    "FailureKind",
    "ForbiddenRead",
    "PhaseSpec",
    "Read",
    "Run",
    "Selected",
    "Start",
    "TransferSpec",
]

__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".account": ("Account",),
        ".card": ("Card", "Constraint", "Fact", "ForbiddenRead", "Read", "Selected"),
        ".experiment": ("Experiment",),
        ".failure": ("Failure", "FailureKind"),
        ".run": ("Run",),
        ".specs": ("EvaluationSpec", "PhaseSpec", "Start", "TransferSpec"),
    },
)
