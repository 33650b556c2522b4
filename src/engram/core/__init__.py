"""Values that every other part shares: batches, tasks, traces, names, seeds, files. No torch at import."""
