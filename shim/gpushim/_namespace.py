"""NumPy's namespace over gpushim.ndarray: one rule for every public name, applied when the name is first asked for.

A module becomes a mirror of itself; a type, a number or any other constant stays what it is; what can be called or
indexed (functions, ufuncs, ``r_``, ``mgrid``) becomes a `Function`, which hands NumPy plain arrays and gives
gpushim.ndarray back. Random generators are proxied, because their methods make arrays.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy

from gpushim import _shim

_PREFIX = "gpushim."
#: NumPy's types whose instances make arrays, and the proxies that stand for them. Filled by `_random`.
_proxies: dict[type, Any] = {}


def _public(module: types.ModuleType, name: str) -> bool:
    """What `dir()` of a NumPy module or its ``__all__`` shows, and what it makes on demand."""
    return not name.startswith("_") or name in getattr(module, "__all__", ())


def mirror(value: Any) -> Any:
    """A value of NumPy's namespace as gpushim shows it."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
        if not name.startswith("numpy."):
            return value
        return _mirror_module(value) if "._" in name else importlib.import_module(_PREFIX + name[6:])
    if isinstance(value, type):
        return _proxies.get(value, value)
    if isinstance(value, numpy.ndarray | numpy.generic | numpy.dtype):
        return value
    if callable(value):
        return _function_of(value)
    if type(value).__module__.startswith("numpy") and hasattr(value, "__getitem__"):
        return _shim.function_of(value)
    return value


class _Proxy:
    """An object of NumPy whose methods take and return gpushim.ndarray."""

    _target: Any
    _type: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._target = type(self)._type(*args, **kwargs)

    @classmethod
    def _of(cls, target: Any) -> _Proxy:
        self = cls.__new__(cls)
        self._target = target
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_target":
            raise AttributeError(name)
        value = getattr(self._target, name)
        return _function_of(value) if callable(value) and not isinstance(value, type) else value

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"gpushim's {self._target!r}"

    def __reduce__(self) -> Any:
        return _proxy_of, (self._target,)


def _proxy_of(target: Any) -> Any:
    kind = _proxies.get(type(target))
    return target if kind is None else kind._of(target)


class _ProxyMaker:
    """A function whose results are proxied: ``default_rng``, ``Generator.spawn``."""

    def __init__(self, function: Any) -> None:
        self._function = _shim.function_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = tuple(a._target if isinstance(a, _Proxy) else a for a in args)
        made = self._function(*args, **kwargs)
        return [_proxy_of(m) for m in made] if isinstance(made, list) else _proxy_of(made)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _function_of(value: Any) -> Any:
    return (
        _ProxyMaker(value) if getattr(value, "__name__", "") in ("default_rng", "spawn") else _shim.function_of(value)
    )


def _proxy_types(module: types.ModuleType) -> None:
    for name in ("Generator", "RandomState"):
        target = getattr(module, name)
        _proxies.setdefault(
            target, type(name, (_Proxy,), {"_type": target, "__doc__": target.__doc__, "__module__": "gpushim.random"})
        )


class _Mirror(types.ModuleType):
    """``gpushim.linalg`` and its kin."""

    _target: types.ModuleType
    __all__: list[str]

    def __getattr__(self, name: str) -> Any:
        if not _public(self._target, name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            value = mirror(getattr(self._target, name))
        except AttributeError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if _public(self._target, name)]


def _mirror_module(target: types.ModuleType) -> _Mirror:
    module = _Mirror(_PREFIX + target.__name__[6:], target.__doc__)
    module._target = target
    if hasattr(target, "__all__"):
        module.__all__ = list(target.__all__)
    return module


class _Finder:
    """Finder and loader: finds ``gpushim.x`` where NumPy has ``numpy.x`` and gpushim has no file of that name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        name = fullname.removeprefix(_PREFIX)
        if name == fullname or name.startswith("_") or "._" in name:
            return None
        import importlib.util  # brings in much that most programs never need

        try:
            found = importlib.util.find_spec("numpy." + name)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname,
            self,  # type: ignore[arg-type]  # a loader in all but its class: importlib.abc is slow to import
            is_package=found.submodule_search_locations is not None,
        )
        spec.loader_state = "numpy." + name
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        target = importlib.import_module(str(spec.loader_state))
        if target.__name__ == "numpy.random":
            _proxy_types(target)
        return _mirror_module(target)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.append(_Finder())


def lookup(name: str) -> Any:
    """A name of NumPy's public namespace, for ``gpushim.__getattr__``."""
    if _public(numpy, name):
        try:
            return mirror(getattr(numpy, name))
        except AttributeError:
            pass
    raise AttributeError(f"module 'gpushim' has no attribute {name!r}")


def names() -> list[str]:
    return [name for name in dir(numpy) if _public(numpy, name)]
