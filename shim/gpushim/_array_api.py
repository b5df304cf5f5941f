"""What the array API standard asks of the namespace and NumPy answers for the CPU alone."""

from __future__ import annotations

from typing import Any

import numpy

from gpushim import _shim


def asnumpy(x: object) -> numpy.ndarray:
    """The `numpy.ndarray` that a `gpushim.ndarray` holds, over the same coherent memory, without a copy.

    Anything else goes through `numpy.asarray`.
    """
    return _shim.asnumpy(x)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Any:
    """An array over the memory of another library's array (PyTorch, CuPy, JAX, NumPy), by DLPack.

    :param x: has ``__dlpack__`` and ``__dlpack_device__``; on the CPU, or on the CUDA device that gpushim uses.
    :param device: None, or where gpushim's arrays live (`gpushim.ndarray.device`).
    :param copy: False: never copy; True: always; None: only where the memory can't be shared.
    :raises BufferError: when the memory is on another device, or can't be shared and `copy` is False.
    """
    return _shim.from_dlpack(x, device, copy)


_unique = _shim.function_of(numpy.unique)


def unique_values(x: Any, /) -> Any:
    """The values of an array without repetition, sorted. (NumPy's come in no order; scikit-learn needs them sorted.)"""
    return _unique(x, equal_nan=False)


def _check_device(device: str | None) -> None:
    if device is not None and device != _shim.device():
        raise ValueError(f"unknown device {device!r}: gpushim's arrays live on device {_shim.device()!r}")


class _Info:
    """NumPy's answers, with gpushim's device in place of "cpu"."""

    def __init__(self) -> None:
        self._numpys: Any = numpy.__array_namespace_info__()

    def default_device(self) -> str:
        """The device of every array."""
        return _shim.device()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, numpy.dtype]:
        """The dtypes that functions use where none is given, by kind."""
        _check_device(device)
        return self._numpys.default_dtypes()

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, numpy.dtype]:
        """The dtypes of the standard, those of `kind` alone where it is given."""
        _check_device(device)
        return self._numpys.dtypes(kind=kind)

    def devices(self) -> list[str] | tuple[str, ...]:
        """All devices that arrays can be made on."""
        return type(self._numpys.devices())([_shim.device()])  # a tuple from version 2025.12 on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpys, name)


def __array_namespace_info__() -> _Info:  # noqa: N807 (a name of the standard)
    """Devices, dtypes and capabilities, as the array API standard asks."""
    return _Info()
