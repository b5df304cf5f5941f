# Written by shim/stubs/make_stubs.py from NumPy 2.5.2, with Python 3.12; do not edit.
from typing import Any

import numpy

from gpushim import Ufunc, UfuncOfMany, ndarray

ArrayLike: Any
DTypeLike: Any
from numpy.typing import NBitBase as NBitBase
NDArray: Any
