"""Evaluator processes beside the learner: snapshots in shared memory, and their results in order."""
