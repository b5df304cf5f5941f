"""gpushim: unmodified NumPy programs on an NVIDIA GPU.

    import gpushim
    gpushim.install()

or, with no change at all, ``python -m gpushim script.py``. Arrays stay exact ``numpy.ndarray`` objects; what cannot run
on the GPU runs in NumPy, and ``gpushim.report()`` tells what ran where and why.

Importing this package needs no GPU and no CUDA. Its namespace has no name that NumPy has too.
"""

from gpushim._control import disabled, enabled, install, is_installed, synchronize, uninstall
from gpushim._inspect import location, memory_info, pending_graph, system_info
from gpushim._report import report

__version__ = "0.1.0"

__all__ = [
    "disabled",
    "enabled",
    "install",
    "is_installed",
    "location",
    "memory_info",
    "pending_graph",
    "report",
    "synchronize",
    "system_info",
    "uninstall",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"]
