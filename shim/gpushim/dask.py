"""Dask workers with NumPy on the GPU: one GPU a worker, `dask.array` programs unchanged.

``client.register_plugin(gpushim.dask.WorkerPlugin())``, or ``dask worker --preload gpushim.dask`` for workers that start
later. Needs Dask's distributed.
"""

from __future__ import annotations

import os
from typing import Any

try:
    import distributed
except ImportError as error:
    raise ImportError("gpushim.dask needs Dask's distributed: pip install 'dask[distributed]'") from error

import gpushim
from gpushim import _settings


def _gpus() -> int:
    """GPUs of this machine, counted without starting CUDA: it reads CUDA_VISIBLE_DEVICES once, when it starts."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def _choose_gpu(name: object) -> None:
    gpus = _gpus()
    if gpus > 1 and "CUDA_VISIBLE_DEVICES" not in os.environ:
        digits = "".join(c for c in str(name) if c.isdigit())
        os.environ["CUDA_VISIBLE_DEVICES"] = str(int(digits or os.getpid()) % gpus)


class WorkerPlugin(distributed.WorkerPlugin):
    """Installs gpushim in each worker process.

    A worker named by a number, as `LocalCluster` does, takes the GPU of that number (modulo the GPUs of the machine)
    unless CUDA_VISIBLE_DEVICES says which.

    :param settings: what `gpushim.install` takes.
    :raises TypeError, ValueError: here, not on the workers, for settings that `gpushim.install` would refuse.
    """

    name = "gpushim"
    idempotent = True

    def __init__(self, **settings: Any) -> None:
        _settings.resolve(settings)
        self._settings = settings

    def setup(self, worker: Any) -> None:
        _choose_gpu(worker.name)
        gpushim.install(**self._settings)

    def teardown(self, worker: Any) -> None:
        gpushim.uninstall()


def dask_setup(worker: Any) -> None:
    """Called by ``--preload gpushim.dask``; settings come from ``GPUSHIM_*`` variables."""
    _choose_gpu(worker.name)
    gpushim.install()
