import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "correction.py"


def test_the_benchmark_compares_equal_fits_and_prints_its_table():
    """It checks each fit of the debiaser against plain numpy and scipy as it goes; its timings are no matter here."""
    run = subprocess.run(
        [sys.executable, str(BENCHMARK), "--pairs", "6400", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    for words in ("6,400 pairs in batches of 64", "all distinct", "tied", "numpy loop"):
        assert words in run.stdout
