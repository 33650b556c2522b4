"""Protocols: plans that ask for experiments, are told results, and never train.

A plan is a generator. It yields lists of experiments, is sent one result (or failure) for each, and returns
its outcome; `engram.protocols.drive.drive` runs it with any executor. So a protocol is tested with made-up
scores, and runs wherever experiments run.

- `engram.protocols.grid.grid` (000): every combination of fields, the best one chosen by a metric;
- `engram.protocols.causal.causal` (004): nothing is chosen by looking at a later task;
- `engram.protocols.forward_transfer.forward_transfer` (003): k-shot probing on the next task;
- `engram.protocols.online.online` (001): one pass, rescaled metrics over tasks;
- `engram.protocols.queue.queue` (002): a long queue, the best and the worst strength.
"""
