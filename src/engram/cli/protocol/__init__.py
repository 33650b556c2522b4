"""`engram protocol`: how an experiment is chosen and compared, as the papers do it. One file per protocol."""

from __future__ import annotations

from engram.cli.arrange import Verbs, arranged, verbs
from engram.cli.protocol.causal import causal
from engram.cli.protocol.forward_transfer import forward_transfer
from engram.cli.protocol.grid import grid
from engram.cli.protocol.online import online
from engram.cli.protocol.queue import queue


class _Protocols(Verbs):
    kind = "protocol"


protocol = verbs("Choose and compare by a paper's protocol, and keep every run that it needs.", _Protocols)
protocol.command()(arranged(grid))
protocol.command()(arranged(causal))
protocol.command("forward-transfer")(arranged(forward_transfer))
protocol.command()(arranged(online))
protocol.command()(arranged(queue))
