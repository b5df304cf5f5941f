"""Modules that ``import numpy`` leaves for later get their hooks when the program imports them.

Importing them for the hooks' sake would cost every program what `numpy.random` costs: 25 ms and 7 MiB.
"""

from __future__ import annotations

import sys
from typing import Any

from gpushim import _shim


class _Finder:
    """Finds what the finders after it find, and has the hooks placed when the module has been executed."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> Any:
        if name not in _shim.LATE_MODULES:
            return None
        for finder in sys.meta_path:
            if finder is _finder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _after_execution(spec.loader)
                return spec
        return None


def _after_execution(loader: Any) -> None:
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: Any) -> None:
        execute(module)
        _shim.install_late_hooks()

    loader.exec_module = exec_module


_finder = _Finder()


def install() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
