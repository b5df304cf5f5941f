// Definitions of radix_sort.h; each key type has a source file of its own, because CUB takes long to compile.
#pragma once

#include <cub/device/device_radix_sort.cuh>

#include "gpu/cuda_error.h"
#include "kernels/radix_sort.h"

namespace gpushim::kernels {

template <class Key>
void radix_sort(const Key* in, Key* out, std::int64_t n, int first_bit, int end_bit, Launcher& launcher,
                Workspace& workspace) {
  const auto count = static_cast<std::uint64_t>(n);
  Key* spare = nullptr;
  if (in == out) spare = reinterpret_cast<Key*>(workspace.allocate(static_cast<std::size_t>(n) * sizeof(Key)));
  cub::DoubleBuffer<Key> buffer(out, spare);
  const auto sort = [&](void* temporary, std::size_t& bytes) {
    return in == out
               ? cub::DeviceRadixSort::SortKeys(temporary, bytes, buffer, count, first_bit, end_bit, launcher.stream())
               : cub::DeviceRadixSort::SortKeys(temporary, bytes, in, out, count, first_bit, end_bit,
                                                launcher.stream());
  };
  std::size_t bytes = 0;
  GPUSHIM_CUDA(sort(nullptr, bytes));
  void* temporary = reinterpret_cast<void*>(workspace.allocate(bytes));
  launcher.begin_library_call("radix sort");
  GPUSHIM_CUDA(sort(temporary, bytes));
  if (in != out || buffer.Current() == out) return;
  launcher.device().copy(reinterpret_cast<gpu::DevicePtr>(out), reinterpret_cast<gpu::DevicePtr>(buffer.Current()),
                         static_cast<std::size_t>(n) * sizeof(Key));
}

template <class Key>
void radix_sort(Buffers<Key>& keys, std::int64_t n, int bits, Launcher& launcher, Workspace& workspace) {
  cub::DoubleBuffer<Key> buffer(keys.current, keys.spare);
  const auto count = static_cast<std::uint64_t>(n);
  std::size_t bytes = 0;
  GPUSHIM_CUDA(cub::DeviceRadixSort::SortKeys(nullptr, bytes, buffer, count, 0, bits, launcher.stream()));
  void* temporary = reinterpret_cast<void*>(workspace.allocate(bytes));
  launcher.begin_library_call("radix sort");
  GPUSHIM_CUDA(cub::DeviceRadixSort::SortKeys(temporary, bytes, buffer, count, 0, bits, launcher.stream()));
  keys = {buffer.Current(), buffer.Alternate()};
}

template <class Key, class Value>
void radix_sort(Buffers<Key>& keys, Buffers<Value>& values, std::int64_t n, int bits, Launcher& launcher,
                Workspace& workspace) {
  cub::DoubleBuffer<Key> key_buffer(keys.current, keys.spare);
  cub::DoubleBuffer<Value> value_buffer(values.current, values.spare);
  const auto count = static_cast<std::uint64_t>(n);
  std::size_t bytes = 0;
  GPUSHIM_CUDA(
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, key_buffer, value_buffer, count, 0, bits, launcher.stream()));
  void* temporary = reinterpret_cast<void*>(workspace.allocate(bytes));
  launcher.begin_library_call("radix sort");
  GPUSHIM_CUDA(
      cub::DeviceRadixSort::SortPairs(temporary, bytes, key_buffer, value_buffer, count, 0, bits, launcher.stream()));
  keys = {key_buffer.Current(), key_buffer.Alternate()};
  values = {value_buffer.Current(), value_buffer.Alternate()};
}

template <class Key, class Value>
void radix_sort(const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values, std::int64_t n, int bits,
                Launcher& launcher, Workspace& workspace) {
  const auto count = static_cast<std::uint64_t>(n);
  std::size_t bytes = 0;
  GPUSHIM_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, values, sorted_values, count, 0, bits,
                                               launcher.stream()));
  void* temporary = reinterpret_cast<void*>(workspace.allocate(bytes));
  launcher.begin_library_call("radix sort");
  GPUSHIM_CUDA(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, sorted_keys, values, sorted_values, count, 0,
                                               bits, launcher.stream()));
}

}  // namespace gpushim::kernels
