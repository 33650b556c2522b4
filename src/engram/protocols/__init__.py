"""Protocols: plans that ask for experiments, receive their runs, and never train.

A plan is a generator. It yields lists of experiments, is sent one finished or failed run per experiment, and
returns its outcome; `engram.protocols.drive.drive` runs it with any executor. So a protocol is tested with
made-up scores, and runs wherever experiments run.

- `engram.protocols.grid.grid`: all combinations of fields; a metric chooses the best (De Lange et al. 2023);
- `engram.protocols.causal.causal`: nothing is chosen by looking at a later task (Pfülb & Gepperth 2019);
- `engram.protocols.forward_transfer.forward_transfer`: k-shot probing on the next task (Chen et al. 2023);
- `engram.protocols.online.online`: one pass, with metrics rescaled over tasks (Michel et al. 2023);
- `engram.protocols.queue.queue`: a long queue of tasks, with the best and worst strength (Hsu et al. 2018).
"""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy_package

if TYPE_CHECKING:
    from engram.protocols.causal import CausalOptions, CausalOutcome
    from engram.protocols.forward_transfer import TransferOutcome
    from engram.protocols.grid import GridOutcome
    from engram.protocols.online import OnlineOutcome
    from engram.protocols.queue import QueueOutcome

__all__ = [
    "CausalOptions",
    "CausalOutcome",
    "GridOutcome",
    "OnlineOutcome",
    "QueueOutcome",
    "TransferOutcome",
]

# A protocol is a function with the name of its module, `engram.protocols.grid.grid`: only modules are listed.
__getattr__, __dir__ = lazy_package(
    __name__,
    {
        ".causal": ("CausalOptions", "CausalOutcome"),
        ".forward_transfer": ("TransferOutcome",),
        ".grid": ("GridOutcome",),
        ".online": ("OnlineOutcome",),
        ".queue": ("QueueOutcome",),
    },
)
