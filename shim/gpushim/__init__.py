"""Runs unmodified NumPy programs on an NVIDIA GPU.

``gpushim.install()`` switches it on for NumPy itself, and ``gpushim.report()`` tells what ran where and why. For library
authors the rest of the namespace is NumPy's, over arrays of the type `gpushim.ndarray`: see docs/library-authors.md.

Importing this package needs no GPU and no CUDA.
"""

from typing import Any

from gpushim import _namespace
from gpushim._array_api import __array_namespace_info__ as __array_namespace_info__
from gpushim._array_api import asnumpy, from_dlpack
from gpushim._array_api import unique_values as unique_values
from gpushim._control import disabled, enabled, install, is_installed, synchronize, uninstall
from gpushim._inspect import location, memory_info, pending_graph, system_info
from gpushim._report import report
from gpushim._shim import ndarray

__version__ = "0.1.0"
__array_api_version__ = _namespace.numpy.__array_api_version__

__all__ = [
    "asnumpy",
    "disabled",
    "enabled",
    "from_dlpack",
    "install",
    "is_installed",
    "location",
    "memory_info",
    "ndarray",
    "pending_graph",
    "report",
    "synchronize",
    "system_info",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    value = globals()[name] = _namespace.lookup(name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_namespace.names(), "__version__", "__doc__", "__file__", "__name__", "__path__"})
