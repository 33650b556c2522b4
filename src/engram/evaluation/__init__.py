"""Watching a network while it learns: the evaluator, and probes that measure a live network."""
