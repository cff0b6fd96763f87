"""The process that solutions are forked from: a fresh interpreter that imported the libraries once, and nothing else.

Run as a script by `wmrl_envs.research.sandbox.host`, never imported. A forked process inherits all memory of its
parent, so this one must never see private data: it is started with a clean environment, does not import the package,
and every request goes past it, straight to the supervisor that it forks for it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import types

PRELOADED = (
    "numpy numpy.random numpy.linalg numpy.fft numpy.ma pandas scipy scipy.stats scipy.sparse scipy.sparse.linalg "
    "scipy.optimize scipy.special scipy.linalg scipy.spatial scipy.ndimage joblib sklearn.calibration "
    "sklearn.cluster sklearn.compose sklearn.decomposition sklearn.discriminant_analysis sklearn.dummy "
    "sklearn.ensemble sklearn.feature_extraction.text sklearn.feature_selection sklearn.gaussian_process "
    "sklearn.impute sklearn.experimental.enable_iterative_imputer sklearn.inspection sklearn.isotonic "
    "sklearn.kernel_approximation sklearn.kernel_ridge sklearn.linear_model sklearn.metrics sklearn.mixture "
    "sklearn.model_selection sklearn.multiclass sklearn.multioutput sklearn.naive_bayes sklearn.neighbors "
    "sklearn.neural_network sklearn.pipeline sklearn.preprocessing sklearn.random_projection sklearn.svm "
    "sklearn.tree sklearn.utils argparse ast collections csv dataclasses datetime functools gzip itertools json "
    "logging math os pathlib pickle random re shutil statistics string subprocess tempfile time traceback typing "
    "warnings "
).split()


def main() -> None:
    """Import, say so, and fork a supervisor for each connection that arrives, until the trusted side closes."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    package = types.ModuleType("wmrl_sandbox")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["wmrl_sandbox"] = package
    supervisor = importlib.import_module("wmrl_sandbox.supervisor")
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise copy every page
    requests.sendall(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not message:
            os._exit(0)  # nothing to tidy up, and tearing down the libraries takes longer than all else
        connection = socket.socket(fileno=descriptors[0])
        with contextlib.suppress(OSError):  # no process to spare: the trusted side sees its connection close
            if os.fork() == 0:
                requests.close()
                supervisor.supervise(connection)
        connection.close()


def _warm_up() -> None:
    """Go once through what nearly every solution does, so that lazily imported modules are there."""
    io, numpy, pandas = (importlib.import_module(name) for name in ("io", "numpy", "pandas"))
    linear_model = importlib.import_module("sklearn.linear_model")
    table = pandas.read_csv(io.StringIO("id,x,name,y\n1,0.5,a,0\n2,,b,1\n3,2.5,a,1\n4,1.5,c,0\n"))
    table = pandas.get_dummies(table.fillna({"x": table.x.median()}), columns=["name"])
    model = linear_model.LogisticRegression().fit(table[["x"]], table.y)
    pandas.DataFrame({"id": table.id, "y": model.predict_proba(table[["x"]])[:, 1]}).to_csv(io.StringIO(), index=False)
    numpy.linalg.svd(numpy.eye(8))
    # Scikit-learn looks once for thread pools, in /proc/self/maps, which a confined solution cannot read.
    neighbours = importlib.import_module("sklearn.neighbors").KNeighborsClassifier(1, algorithm="brute")
    neighbours.fit(numpy.eye(4), [0, 1, 0, 1]).predict(numpy.eye(4))


if __name__ == "__main__":
    main()
