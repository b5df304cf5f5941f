"""Looking without touching: where an array's data is, how much memory is in use, what machine this is."""

from __future__ import annotations

import platform

import numpy

from gpushim import _shim


def location(array: numpy.ndarray) -> str:
    """Where the data of an array is. Looking moves nothing.

    :returns: "host", "both" (equal on host and device), "device", "pending" (recorded, not evaluated yet), "zero"
        (zeros that nobody touched yet), or "foreign" (memory that gpushim does not manage: small arrays, arrays made
        before `install()`, memory maps).
    :raises TypeError: when `array` is not a ``numpy.ndarray``.
    """
    return _shim.location(array)


def memory_info() -> dict[str, int]:
    """Blocks and bytes in use now, and counters since start: copies each way, faults, spills. All sizes in bytes."""
    return dict(_shim.memory_info())


def pending_graph() -> str:
    """What is recorded and not evaluated yet, as a graph in DOT (Graphviz). Boxes are values that an array still holds,
    ovals are temporaries that will be computed inside their readers. Looking evaluates nothing."""
    return _shim.graph()


def system_info() -> dict[str, object]:
    """Versions, whether CUDA was built in, and the devices found. Asks the driver; `install()` is not needed."""
    from gpushim import __version__

    info: dict[str, object] = {
        "gpushim": __version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cuda_built_in": bool(_shim.cuda_built_in()),
    }
    info.update(_shim.system_info())
    return info
