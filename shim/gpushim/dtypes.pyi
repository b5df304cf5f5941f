# Written by shim/stubs/make_stubs.py from NumPy 2.5.2, with Python 3.12; do not edit.
from typing import Any

import numpy

from gpushim import Ufunc, UfuncOfMany, ndarray

from numpy.dtypes import BoolDType as BoolDType
from numpy.dtypes import ByteDType as ByteDType
from numpy.dtypes import BytesDType as BytesDType
from numpy.dtypes import CLongDoubleDType as CLongDoubleDType
from numpy.dtypes import Complex128DType as Complex128DType
from numpy.dtypes import Complex64DType as Complex64DType
from numpy.dtypes import DateTime64DType as DateTime64DType
from numpy.dtypes import Float16DType as Float16DType
from numpy.dtypes import Float32DType as Float32DType
from numpy.dtypes import Float64DType as Float64DType
from numpy.dtypes import Int16DType as Int16DType
from numpy.dtypes import Int32DType as Int32DType
from numpy.dtypes import Int64DType as Int64DType
from numpy.dtypes import Int8DType as Int8DType
from numpy.dtypes import IntDType as IntDType
from numpy.dtypes import LongDType as LongDType
from numpy.dtypes import LongDoubleDType as LongDoubleDType
from numpy.dtypes import LongLongDType as LongLongDType
from numpy.dtypes import ObjectDType as ObjectDType
from numpy.dtypes import ShortDType as ShortDType
from numpy.dtypes import StrDType as StrDType
from numpy.dtypes import StringDType as StringDType
from numpy.dtypes import TimeDelta64DType as TimeDelta64DType
from numpy.dtypes import UByteDType as UByteDType
from numpy.dtypes import UInt16DType as UInt16DType
from numpy.dtypes import UInt32DType as UInt32DType
from numpy.dtypes import UInt64DType as UInt64DType
from numpy.dtypes import UInt8DType as UInt8DType
from numpy.dtypes import UIntDType as UIntDType
from numpy.dtypes import ULongDType as ULongDType
from numpy.dtypes import ULongLongDType as ULongLongDType
from numpy.dtypes import UShortDType as UShortDType
from numpy.dtypes import VoidDType as VoidDType
def register_dlpack_dtype(dlpack_key: Any, dtype: Any, /) -> None: ...
