"""Speed of the online debiasing: a million pairs in batches of 64, refitting after each batch.

The yardstick is what one would write for the same windows with numpy and scipy alone: sort the window, pool equal
predictions, call ``scipy.optimize.isotonic_regression``. The debiaser also checks its input and keeps the window, and
may take at most 1.5 times as long. Both fits are compared as they go along. Rounds alternate, and the fastest of each
counts.

    python benchmarks/correction.py [--pairs 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from wmrl_envs.correction import OnlineDebiaser

FloatArray = NDArray[np.float64]
BATCH, WINDOW, LIMIT = 64, 512, 1.5


def numpy_loop(predicted: FloatArray, real: FloatArray) -> FloatArray:
    """Return the sum of the fitted values after each batch, by numpy and scipy alone."""
    checks = np.empty(len(predicted) // BATCH)
    for i in range(len(checks)):
        end = (i + 1) * BATCH
        x, y = predicted[max(0, end - WINDOW) : end], real[max(0, end - WINDOW) : end]
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        starts = np.flatnonzero(np.concatenate(([True], x[1:] != x[:-1])))
        counts = np.diff(starts, append=len(x))
        fit = isotonic_regression(np.add.reduceat(y, starts) / counts, weights=counts).x
        checks[i] = fit.sum()
    return checks


def debiaser(predicted: FloatArray, real: FloatArray) -> FloatArray:
    """Return the same from an ``OnlineDebiaser``."""
    checks = np.empty(len(predicted) // BATCH)
    debias = OnlineDebiaser(window=WINDOW)
    for i in range(len(checks)):
        debias.update(predicted[i * BATCH : (i + 1) * BATCH], real[i * BATCH : (i + 1) * BATCH])
        checks[i] = debias.knots[1].sum()
    return checks


def clock(function: Callable[[FloatArray, FloatArray], FloatArray], *data: FloatArray) -> tuple[float, FloatArray]:
    """Return the CPU seconds of a call (other processes do not count) and its result."""
    start = time.process_time()
    result = function(*data)
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    real = rng.random(arguments.pairs)
    distinct = 0.5 * real + 0.5 * rng.random(arguments.pairs)
    print(f"{arguments.pairs:,} pairs in batches of {BATCH}, window {WINDOW}, a fit after each; CPU seconds")
    print(f"{'predictions':<24}{'numpy loop':>12}{'debiaser':>12}{'ratio':>8}{'us a batch':>12}")
    worst = 0.0
    for name, predicted in (("all distinct", distinct), ("tied (two decimals)", distinct.round(2))):
        seconds = {numpy_loop: float("inf"), debiaser: float("inf")}
        for _ in range(arguments.rounds):
            results = []
            for function in seconds:
                spent, result = clock(function, predicted, real)
                seconds[function] = min(seconds[function], spent)
                results.append(result)
            np.testing.assert_allclose(results[1], results[0], rtol=1e-12)
        ratio = seconds[debiaser] / seconds[numpy_loop]
        worst = max(worst, ratio)
        each = 1e6 * seconds[debiaser] / (arguments.pairs // BATCH)
        print(f"{name:<24}{seconds[numpy_loop]:>12.2f}{seconds[debiaser]:>12.2f}{ratio:>8.2f}{each:>12.1f}")
    print(f"at most {LIMIT} times the numpy loop: {'yes' if worst <= LIMIT else 'NO'}")


if __name__ == "__main__":
    main()
