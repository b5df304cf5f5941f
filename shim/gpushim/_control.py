"""Switching gpushim on and off: the whole process, or one thread for a while."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
from collections.abc import Callable

from gpushim import _late_modules, _report, _settings, _shim, _warnings

_lock = _thread.allocate_lock()
_said_unavailable = False


def install(device: str | None = None, min_bytes: int | None = None, **settings: object) -> bool:
    """Sends NumPy's work in this process to a device. Code that uses NumPy need not change, nor import anything.

    Idempotent: the first call decides, later calls change nothing.

    :param device: "auto" (a CUDA device, if there is one), "cuda", or "host" (no GPU needed; see docs/settings.md).
    :param min_bytes: arrays smaller than this stay in NumPy; 0 sends everything to the device.
    :param settings: the other settings of docs/settings.md by name. What is not given comes from its
        ``GPUSHIM_*`` variable, or else is the default.
    :returns: True when NumPy is accelerated. Without a usable device one line on stderr says why, NumPy stays as it
        is, and the result is False.
    :raises TypeError: for an unknown setting.
    :raises ValueError: for a value that a setting does not take.
    """
    values = _settings.resolve({"device": device, "min_bytes": min_bytes, **settings})
    with _lock:
        if _shim.is_installed():
            return True
        if not _start(_shim.install, values):
            return False
        _warnings.install()
        return True


def _start_engine() -> bool:
    """For gpushim.ndarray: what `install()` does, without sending NumPy's own work to the device."""
    return _start(_shim.start_engine, _settings.resolve({}))


def _start(start: Callable[..., str | None], values: dict[str, object]) -> bool:
    global _said_unavailable
    options = {s.name: values[s.name] for s in _settings.SETTINGS if s.used_by == "option"}
    options["library_path"] = _library_path()
    for setting in _settings.SETTINGS:
        if setting.used_by == "environment" and values[setting.name] != setting.default:
            value = values[setting.name]
            os.environ[setting.variable] = str(int(value) if isinstance(value, bool | int) else value)
    options["profile"] = values["profile"] or values["report"] != "off"
    try:
        description = start(values["device"], values["min_bytes"], options)
    except _shim.DeviceUnavailable as unavailable:
        if not _said_unavailable:
            _said_unavailable = True
            print(f"gpushim: {unavailable}; NumPy stays as it is", file=sys.stderr)
        return False
    _late_modules.install()
    if values["log"] != "warn":
        print(f"gpushim: {description}", file=sys.stderr)
    if values["report"] != "off":
        _report_at_exit(str(values["report"]))
    return True


def _library_path() -> str:
    """Where NVIDIA's libraries (cuBLAS and its kin) may be: folders of `sys.path` below which pip put them, and the
    libraries of a conda environment, which need not be an activated one."""
    folders = [path for path in sys.path if path and os.path.isdir(os.path.join(path, "nvidia"))]
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        folders.append(os.path.join(sys.prefix, "lib"))
    return ":".join(folders)


def uninstall() -> None:
    """Puts NumPy back exactly as it was; every array's data comes home. Arrays made meanwhile stay valid."""
    with _lock:
        _warnings.uninstall()
        if _shim.is_installed():
            _late_modules.uninstall()
        _shim.uninstall()


def is_installed() -> bool:
    """True between `install()` and `uninstall()`."""
    return bool(_shim.is_installed())


def synchronize() -> None:
    """Evaluates what is pending and waits until the device is done. Only needed to measure time."""
    _shim.synchronize()


class _Switch(contextlib.ContextDecorator):
    """Turns routing on or off for the calling thread; nests, and works as a decorator."""

    def __init__(self, value: bool) -> None:
        self._value = value
        import threading  # which small programs do without

        # One instance decorates a function that may run in many threads, and nest.
        self._previous = threading.local()

    def _recreate_cm(self) -> _Switch:
        return type(self)(self._value)

    def __enter__(self) -> None:
        stack = self._previous.__dict__.setdefault("stack", [])
        stack.append(_shim.set_enabled(self._value))

    def __exit__(self, *exc_info: object) -> None:
        _shim.set_enabled(self._previous.stack.pop())


def enabled() -> contextlib.ContextDecorator:
    """``with gpushim.enabled():`` or ``@gpushim.enabled()``: the device may be used in this thread, e.g. inside `disabled()`."""
    return _Switch(True)


def disabled() -> contextlib.ContextDecorator:
    """``with gpushim.disabled():`` or ``@gpushim.disabled()``: in this thread everything runs in NumPy.

    Arrays that live on the device can be used inside: their data comes home when NumPy touches it.
    """
    return _Switch(False)


def _report_at_exit(form: str) -> None:
    owner = os.getpid()

    def write() -> None:
        if os.getpid() != owner:  # a forked child did not do its parent's work
            return
        with contextlib.suppress(OSError, ValueError):  # the program may have closed its streams
            sys.stdout.flush()
            text = _report.report()
            print(text.to_json() if form == "json" else text, file=sys.stderr, flush=True)

    atexit.register(write)
