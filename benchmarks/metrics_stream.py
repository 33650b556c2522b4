"""The speed of the streaming metrics, and their peak memory.

`python -m benchmarks.metrics_stream [EVALUATIONS]` feeds all of them with evaluations of one hundred tasks.
"""

import sys
import time
import tracemalloc

import numpy as np

from engram.metrics.streaming import StreamingMetrics

TASKS = 100


def main(evaluations: int = 1_000_000) -> None:
    started = time.perf_counter()
    feed(evaluations)
    seconds = time.perf_counter() - started
    print(
        f"streaming metrics: {evaluations:,} evaluations of {TASKS} tasks in {seconds:.1f} s,"
        f" {evaluations / seconds:,.0f} per second"
    )
    # Tracing memory doubles the time, so shorter streams are used.
    for length in (evaluations // 100, evaluations // 10):
        print(f"streaming metrics: peak memory over {length:,} evaluations {peak_bytes(length) / 1e6:.2f} MB")


def feed(evaluations: int) -> dict[str, float]:
    """One pass over a stream of random accuracies, in which one task after the other is learned."""
    rng = np.random.default_rng(0)
    metrics = StreamingMetrics(TASKS)
    row = np.full(TASKS, np.nan)
    for evaluation in range(evaluations):
        learning = evaluation * TASKS // evaluations
        rng.random(out=row[: learning + 1])
        metrics.update(learning, row)
    return metrics.get()


def peak_bytes(evaluations: int) -> int:
    """The peak memory of one pass."""
    tracemalloc.start()
    feed(evaluations)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main(*(int(size) for size in sys.argv[1:2]))
