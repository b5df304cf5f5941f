// What each operation computes: the functions that ufuncs.def names, in namespace sem. Host and device.
//
//   sem_basic.h    arithmetic, comparison, logic, bits: every type, bit for bit NumPy's
//   sem_float.h    float division, rounding, the parts of a float, and the mathematical functions of real numbers
//   sem_complex.h  the functions of complex numbers
//   sem_cast.h     conversions
//
// Compiled without contraction into FMA on both sides (-ffp-contract=off, -fmad=false). float16 computes in float.
#pragma once

#include "kernels/sem_basic.h"
#include "kernels/sem_cast.h"
#include "kernels/sem_complex.h"
#include "kernels/sem_float.h"
