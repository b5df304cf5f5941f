"""Warnings of recorded work arrive in the `warnings.catch_warnings` block whose code recorded it.

NumPy warns when a call divides by zero. On the device the call is recorded and may run much later, so everything that
could still warn is evaluated where such a block begins and where it ends. Inside one, what could warn is evaluated even if
nobody reads it. `np.errstate` needs nothing of the kind: each call is recorded with the state it was made under.
"""

from __future__ import annotations

import functools
import warnings

from gpushim import _shim

_MANY = 1 << 30
_enter = warnings.catch_warnings.__enter__
_exit = warnings.catch_warnings.__exit__


@functools.wraps(_enter)
def _enter_settled(self):
    _shim.settle_warnings(1)
    return _enter(self)


@functools.wraps(_exit)
def _exit_settled(self, *exc_info):
    try:
        _shim.settle_warnings(-1)
    finally:
        _exit(self, *exc_info)


#: Methods that somebody patched after us: theirs lead to ours, which must not be put in front of them again.
_covered: set[str] = set()


def install() -> None:
    global _enter, _exit
    kind = warnings.catch_warnings
    if "enter" not in _covered and kind.__enter__ is not _enter_settled:
        _enter = kind.__enter__
        kind.__enter__ = _enter_settled  # type: ignore[method-assign]
    if "exit" not in _covered and kind.__exit__ is not _exit_settled:
        _exit = kind.__exit__
        kind.__exit__ = _exit_settled  # type: ignore[method-assign]


def uninstall() -> None:
    # Blocks that are open now will end unseen.
    _shim.settle_warnings(-_MANY)
    kind = warnings.catch_warnings
    if kind.__enter__ is _enter_settled:
        kind.__enter__ = _enter  # type: ignore[method-assign]
    elif kind.__enter__ is not _enter:
        _covered.add("enter")
    if kind.__exit__ is _exit_settled:
        kind.__exit__ = _exit  # type: ignore[method-assign]
    elif kind.__exit__ is not _exit:
        _covered.add("exit")
