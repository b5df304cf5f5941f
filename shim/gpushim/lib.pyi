# Written by shim/stubs/make_stubs.py from NumPy 2.5.2, with Python 3.12; do not edit.
from typing import Any

import numpy

from gpushim import Ufunc, UfuncOfMany, ndarray

from numpy.lib import Arrayterator as Arrayterator
from numpy.lib import NumpyVersion as NumpyVersion
def add_docstring(*args: Any, **kwargs: Any) -> None: ...
def add_newdoc(place: Any, obj: Any, doc: Any, warn_on_python: Any = ...) -> None: ...
tracemalloc_domain: int
