"""Benchmarks of engram: time relative to other ways of doing the same work, measured side by side.

`python -m benchmarks --help` lists what can be measured.
"""
