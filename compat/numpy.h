// The one place where <Python.h> and NumPy's headers are included. Host code.
//
// Differences between Python and NumPy versions are listed in compat/README.md and live in this folder alone.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030C0000  // members of types, by the names they have since
#include <structmember.h>
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL gpushim_ARRAY_API
#define PY_UFUNC_UNIQUE_SYMBOL gpushim_UFUNC_API
#ifndef GPUSHIM_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>
