// Routes of array functions and ndarray methods, by NumPy area. Host code, under the GIL.
//
// A method's `self` is args[0]. Each route parses as NumPy's own function does and leaves every doubtful call to it.
#pragma once

#include "dispatch/arguments.h"
#include "dispatch/operand.h"

namespace gpushim::dispatch {

// copy_routes.cpp
Attempt route_astype(const Call& call);
Attempt route_copy_method(const Call& call);  ///< ndarray.copy(order='C')
Attempt route_dunder_copy(const Call& call);  ///< ndarray.__copy__()
Attempt route_flatten(const Call& call);
Attempt route_array(const Call& call);  ///< np.array(exact array, ...)
Attempt route_ascontiguousarray(const Call& call);
Attempt route_fill(const Call& call);
Attempt route_copyto(const Call& call);
// shape_routes.cpp
Attempt route_reshape(const Call& call);
Attempt route_ravel(const Call& call);
Attempt route_asarray(const Call& call);  ///< np.asarray and asanyarray
Attempt route_asfortranarray(const Call& call);
Attempt array_of_arrays(PyObject* list);  ///< np.array of a list or tuple of arrays
// select_routes.cpp
Attempt route_where(const Call& call);
Attempt route_concatenate(const Call& call);
// choose_routes.cpp
Attempt route_choose(const Call& call);
Attempt repeat_counts(PyObject* array, PyObject* counts, PyObject* axis);  ///< repeat with an array of counts
// bit_routes.cpp
Attempt route_packbits(const Call& call);
Attempt route_unpackbits(const Call& call);
Attempt route_byteswap(const Call& call);
// create_routes.cpp
Attempt route_arange(const Call& call);
Attempt route_empty_like(const Call& call);
// arg_routes.cpp
Attempt route_argmax(const Call& call);
Attempt route_argmin(const Call& call);
// sort_routes.cpp
Attempt route_sort(const Call& call);
Attempt route_argsort(const Call& call);
Attempt route_partition(const Call& call);
Attempt route_argpartition(const Call& call);
Attempt route_lexsort(const Call& call);
Attempt route_unique_hash(const Call& call);  ///< what np.unique does without indices and counts
// search_routes.cpp
Attempt route_searchsorted(const Call& call);
Attempt route_bincount(const Call& call);
Attempt route_monotonicity(const Call& call);  ///< of digitize
Attempt route_histogram(const Call& call);
Attempt route_ravel_multi_index(const Call& call);  ///< of histogramdd
// neighbour_routes.cpp
Attempt route_interp(const Call& call);
Attempt route_interp_complex(const Call& call);
Attempt route_correlate(const Call& call);   ///< of convolve
Attempt route_correlate2(const Call& call);  ///< np.correlate
// matmul_routes.cpp
Attempt route_matmul(PyUFuncObject* ufunc, const Call& call);  ///< matmul, vecdot, matvec, vecmat by name
Attempt route_dot(const Call& call);                           ///< np.dot and ndarray.dot
Attempt route_vdot(const Call& call);
Attempt route_inner(const Call& call);
// einsum_route.cpp
Attempt route_einsum(const Call& call);  ///< c_einsum
/// The sum of products over one axis of each, as dot and inner sum: all other dimensions are kept, a's first.
Attempt contract(const Operand& a, int a_axis, const Operand& b, int b_axis);
// fft_routes.cpp
Attempt route_fft2(const Call& call);
Attempt route_ifft2(const Call& call);
Attempt route_fftn(const Call& call);
Attempt route_ifftn(const Call& call);
Attempt route_rfftn(const Call& call);
// index_routes.cpp
Attempt fetch_item(PyObject* array, PyObject* key);  ///< a[i], a[i, j] of one element
/// The value of an exact array of one element on the device, as an array like it made where the caller makes arrays.
Attempt fetch_one(PyObject* array);
Attempt assign_item(PyObject* array, PyObject* key, PyObject* value);
Attempt route_item(const Call& call);                 ///< ndarray.item()
Attempt get_flat(PyObject* iterator, PyObject* key);  ///< a.flat[key]
Attempt set_flat(PyObject* iterator, PyObject* key, PyObject* value);
// gather_routes.cpp
Attempt get_item(PyObject* array, PyObject* key);  ///< a[mask], a[indices]
Attempt set_item_fancy(PyObject* array, PyObject* key, PyObject* value);
Attempt route_take(const Call& call);
Attempt route_put(const Call& call);
Attempt route_place(const Call& call);
Attempt route_putmask(const Call& call);
Attempt route_compress(const Call& call);
Attempt route_nonzero(const Call& call);
Attempt route_unravel_index(const Call& call);
Attempt route_count_nonzero(const Call& call);
Attempt route_repeat(const Call& call);
// random_routes.cpp
Attempt route_random(const Call& call);
Attempt route_uniform(const Call& call);
Attempt route_integers(const Call& call);
// The same, for install(random="curand") alone: numbers of the device's own.
Attempt route_normal(const Call& call);
Attempt route_lognormal(const Call& call);
Attempt route_standard_normal(const Call& call);
Attempt route_standard_exponential(const Call& call);
Attempt route_exponential(const Call& call);
Attempt route_poisson(const Call& call);
Attempt route_permutation(const Call& call);
Attempt route_shuffle(const Call& call);
Attempt route_choice(const Call& call);

}  // namespace gpushim::dispatch
