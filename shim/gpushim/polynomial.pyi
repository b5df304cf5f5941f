# Written by shim/stubs/make_stubs.py from NumPy 2.5.2, with Python 3.12; do not edit.
from typing import Any

import numpy

from gpushim import Ufunc, UfuncOfMany, ndarray

from numpy.polynomial import Chebyshev as Chebyshev
from numpy.polynomial import Hermite as Hermite
from numpy.polynomial import HermiteE as HermiteE
from numpy.polynomial import Laguerre as Laguerre
from numpy.polynomial import Legendre as Legendre
from numpy.polynomial import Polynomial as Polynomial
def set_default_printstyle(style: Any) -> Any: ...
