// Shapes and strides. Host code, no Python.
#include "dispatch/geometry.h"

#include <algorithm>
#include <cstdlib>

namespace gpushim::dispatch {

Extent extent_of(int ndim, const std::int64_t* shape, const std::int64_t* strides, std::int64_t itemsize) noexcept {
  Extent e{0, itemsize};
  for (int d = 0; d < ndim; ++d) {
    std::int64_t reach = (shape[d] - 1) * strides[d];
    (reach < 0 ? e.low : e.high) += reach;
  }
  return e;
}

std::int64_t Space::size() const noexcept {
  std::int64_t n = 1;
  for (int d = 0; d < ndim; ++d) n *= shape[d];
  return n;
}

bool Space::broadcast(int op_ndim, const std::int64_t* op_shape) noexcept {
  if (op_ndim > kMaxArrayDims) return false;
  if (op_ndim > ndim) {
    int grow = op_ndim - ndim;
    std::copy_backward(shape, shape + ndim, shape + op_ndim);
    std::fill(shape, shape + grow, 1);
    ndim = op_ndim;
  }
  for (int d = 0; d < op_ndim; ++d) {
    std::int64_t& mine = shape[ndim - op_ndim + d];
    if (op_shape[d] == 1 || op_shape[d] == mine) continue;
    if (mine != 1) return false;
    mine = op_shape[d];
  }
  return true;
}

bool Space::add(int op_ndim, const std::int64_t* op_shape, const std::int64_t* op_strides) noexcept {
  if (n_operands >= kMaxOperands || op_ndim > ndim) return false;
  std::int64_t* mine = strides[n_operands++];
  int lead = ndim - op_ndim;
  std::fill(mine, mine + lead, 0);
  for (int d = 0; d < op_ndim; ++d) {
    if (op_shape[d] == shape[lead + d]) {
      mine[lead + d] = op_shape[d] == 1 ? 0 : op_strides[d];
    } else if (op_shape[d] == 1) {
      mine[lead + d] = 0;
    } else {
      return false;
    }
  }
  return true;
}

// Insertion sort from the innermost dimension outwards. A pair is compared by every operand that moves along both: one
// operand that is in C order settles it, so C order wins conflicts; a dimension nobody compares stays where it is.
void Space::iteration_order(int count, int* perm) const noexcept {
  int order[kMaxArrayDims];  // innermost first
  for (int i = 0; i < ndim; ++i) order[i] = ndim - 1 - i;
  for (int i = 1; i < ndim; ++i) {
    int axis = order[i], position = i;
    for (int j = i - 1; j >= 0; --j) {
      int inner = order[j];
      bool undecided = true, move = false;
      for (int op = 0; op < count; ++op) {
        std::int64_t a = std::llabs(strides[op][axis]), b = std::llabs(strides[op][inner]);
        if (a == 0 || b == 0) continue;
        if (b <= a) {
          move = false;
        } else if (undecided) {
          move = true;
        }
        undecided = false;
      }
      if (undecided) continue;
      if (!move) break;
      position = j;
    }
    for (int j = i; j > position; --j) order[j] = order[j - 1];
    order[position] = axis;
  }
  for (int i = 0; i < ndim; ++i) perm[i] = order[ndim - 1 - i];
}

void Space::permute(const int* perm) noexcept {
  std::int64_t old[kMaxArrayDims];
  auto apply = [&](std::int64_t* values) {
    std::copy(values, values + ndim, old);
    for (int d = 0; d < ndim; ++d) values[d] = old[perm[d]];
  };
  apply(shape);
  for (int op = 0; op < n_operands; ++op) apply(strides[op]);
}

void Space::simplify(int count) noexcept {
  int order[kMaxArrayDims];
  iteration_order(count, order);
  permute(order);
  coalesce(-1);
}

int Space::coalesce(int barrier) noexcept {
  int kept = 0, new_barrier = -1;
  for (int d = 0; d < ndim; ++d) {
    if (d == barrier) new_barrier = kept;
    if (shape[d] == 1) continue;
    bool merge = kept > 0 && kept != new_barrier;
    for (int op = 0; merge && op < n_operands; ++op) {
      merge = strides[op][kept - 1] == strides[op][d] * shape[d];
    }
    if (merge) {
      shape[kept - 1] *= shape[d];
      for (int op = 0; op < n_operands; ++op) strides[op][kept - 1] = strides[op][d];
    } else {
      shape[kept] = shape[d];
      for (int op = 0; op < n_operands; ++op) strides[op][kept] = strides[op][d];
      ++kept;
    }
  }
  if (new_barrier < 0) new_barrier = kept;
  if (kept == 0) {
    shape[0] = 1;
    for (int op = 0; op < n_operands; ++op) strides[op][0] = 0;
    kept = 1;
    if (barrier > 0) new_barrier = 1;
  }
  ndim = kept;
  return new_barrier;
}

void contiguous_strides(int ndim, const std::int64_t* shape, const int* perm, std::int64_t itemsize,
                        std::int64_t* strides) noexcept {
  std::int64_t step = itemsize;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[perm[i]] = step;
    step *= std::max<std::int64_t>(shape[perm[i]], 1);
  }
}

bool overlaps_itself(int ndim, const std::int64_t* shape, const std::int64_t* strides, std::int64_t itemsize) noexcept {
  int order[kMaxArrayDims], n = 0;
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] > 1) order[n++] = d;
  }
  std::sort(order, order + n, [&](int a, int b) { return std::llabs(strides[a]) < std::llabs(strides[b]); });
  std::int64_t reach = itemsize;  // bytes covered by the dimensions so far
  for (int i = 0; i < n; ++i) {
    std::int64_t stride = std::llabs(strides[order[i]]);
    if (stride < reach) return true;
    reach += (shape[order[i]] - 1) * stride;
  }
  return false;
}

}  // namespace gpushim::dispatch
