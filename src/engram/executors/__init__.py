"""Executors: what runs experiments, one after the other or side by side."""
