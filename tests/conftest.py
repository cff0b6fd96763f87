"""Settings that every test shares."""

from __future__ import annotations

import os

# Many small matrices on few cores: threads only get in each other's way. Set before numpy and torch are imported.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
