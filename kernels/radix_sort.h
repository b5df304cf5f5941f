// Stable radix sorts of unsigned keys on CUDA, by CUB. Host code.
//
// CUB alternates between two buffers. Each array comes as a pair of them, the first of which holds the input;
// afterwards the first holds the result, whichever buffer that was.
#pragma once

#include <cstdint>

#include "kernels/executor.h"
#include "kernels/launcher.h"

namespace gpushim::kernels {

template <class T>
struct Buffers {
  T *current, *spare;
};

/// Sorts numbers as they are, none of them a NaN, by bits [first_bit, end_bit) of CUB's keys, which are those of
/// sort_keys.h with zeros merged. `out` may be `in`.
template <class Key>
void radix_sort(const Key* in, Key* out, std::int64_t n, int first_bit, int end_bit, Launcher& launcher,
                Workspace& workspace);
/// Sorts by bits [0, bits) of the keys.
template <class Key>
void radix_sort(Buffers<Key>& keys, std::int64_t n, int bits, Launcher& launcher, Workspace& workspace);
/// The same; each key's companion moves with it.
template <class Key, class Value>
void radix_sort(Buffers<Key>& keys, Buffers<Value>& values, std::int64_t n, int bits, Launcher& launcher,
                Workspace& workspace);
/// The same, without touching the input.
template <class Key, class Value>
void radix_sort(const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values, std::int64_t n, int bits,
                Launcher& launcher, Workspace& workspace);

}  // namespace gpushim::kernels
