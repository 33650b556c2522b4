"""`engram protocol`: how an experiment is chosen and compared, as the papers do it. One file per protocol."""

from __future__ import annotations

from typing import ClassVar

from engram.cli.verbs import LazyVerb, Verbs, group_of_verbs


class _Protocols(Verbs):
    kind = "protocol"
    lazy: ClassVar = {
        "grid": LazyVerb(
            "engram.cli.protocol.grid:grid",
            "Run every combination of fields and choose the best (De Lange et al. 2023).",
        ),
        "causal": LazyVerb(
            "engram.cli.protocol.causal:causal",
            "Choose fields task by task, never by looking at a later task (Pfülb & Gepperth 2019).",
        ),
        "forward-transfer": LazyVerb(
            "engram.cli.protocol.forward_transfer:forward_transfer",
            "Probe each task's features on the next task with a few samples per class (Chen et al. 2023).",
        ),
        "online": LazyVerb(
            "engram.cli.protocol.online:online",
            "Show every sample once, and follow rescaled metrics over the tasks (Michel et al. 2023).",
        ),
        "plasticity": LazyVerb(
            "engram.cli.protocol.plasticity:plasticity",
            "Learn every task with a fresh network too, and compare: loss of plasticity "
            "(Dohare et al. 2024).",
        ),
        "queue": LazyVerb(
            "engram.cli.protocol.queue:queue",
            "Learn a long queue of tasks, and report the best and worst fields on test data "
            "(Hsu et al. 2018).",
        ),
    }


protocol = group_of_verbs(
    "protocol", "Choose and compare by a paper's protocol, and keep every run that it needs.", _Protocols
)


@protocol.callback()
def _protocol() -> None:
    """Choose and compare by a paper's protocol, and keep every run that it needs."""
