"""Limits on what may be asked for, above which a command would end without a message."""

MOST_RUNS = 100_000
"""How many combinations a sweep may have: all are planned before the first run begins."""

MOST_SEEDS = 100_000
"""How many runs of one experiment may be planned: all are listed before the first begins."""
