"""Compact stores: many finished runs in few Parquet files, which DuckDB and Polars read as they are.

A store is a folder, or any address that Polars reads (`s3://bucket/runs`). `runs.parquet` has one row per
run; the tables of the runs are in files by scenario and method, in the order of that index:

    runs.parquet                           id, scenario, method, seed, metrics, experiment and result as JSON
    trace/split-mnist-class-er-0.parquet   id, step, learning, task, correct, total, bits
    ends/..., probes/...

A run keeps its id and its sealed result. The index and each table of a run have a digest, which is checked
when they are read.
"""

from engram.results.store.reading import is_remote, is_store, read_store, store_of
from engram.results.store.writing import Compacted, compact

__all__ = ["Compacted", "compact", "is_remote", "is_store", "read_store", "store_of"]
