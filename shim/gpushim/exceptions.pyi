# Written by shim/stubs/make_stubs.py from NumPy 2.5.2, with Python 3.12; do not edit.
from typing import Any

import numpy

from gpushim import Ufunc, UfuncOfMany, ndarray

from numpy.exceptions import AxisError as AxisError
from numpy.exceptions import ComplexWarning as ComplexWarning
from numpy.exceptions import DTypePromotionError as DTypePromotionError
from numpy.exceptions import ModuleDeprecationWarning as ModuleDeprecationWarning
from numpy.exceptions import TooHardError as TooHardError
from numpy.exceptions import VisibleDeprecationWarning as VisibleDeprecationWarning
