// A C entry to the host executor's element-wise loops, so that test_semantics.py can compare them with NumPy. Test
// only.
#include <cstring>

#include "kernels/host_kernels.h"

using namespace gpushim::kernels;

namespace {

/// Walks arrays of any length in blocks of lanes; the loops may not write over their inputs.
std::uint32_t walk(host::Kernel kernel, const char* a, const char* b, const char* c, char* out, std::size_t a_size,
                   std::size_t b_size, std::size_t out_size, long n) {
  std::uint32_t events = 0;
  for (long i = 0; i < n; i += host::kLanes) {
    const int count = n - i < host::kLanes ? static_cast<int>(n - i) : host::kLanes;
    events |= kernel(a + i * a_size, b + i * b_size, c + i * a_size, out + i * out_size, count);
  }
  return events;
}

}  // namespace

#define GPUSHIM_EXPORT extern "C" __attribute__((visibility("default")))

/// -1 when the op is not defined for the type, else the FpFlag bits.
GPUSHIM_EXPORT int gpushim_run(const char* name, int dtype, const void* a, const void* b, const void* c, void* out,
                               long n) {
  const Op op = op_by_name(name);
  const DType type = static_cast<DType>(dtype);
  const host::Kernel kernel = op == Op::kCount ? nullptr : host::ufunc_kernel(op, type);
  if (kernel == nullptr) return -1;
  return static_cast<int>(walk(kernel, static_cast<const char*>(a), static_cast<const char*>(b ? b : a),
                               static_cast<const char*>(c ? c : a), static_cast<char*>(out), itemsize(type),
                               op == Op::ldexp ? 8 : itemsize(type), itemsize(op_result_type(op, type)), n));
}
GPUSHIM_EXPORT int gpushim_cast(int from, int to, const void* a, void* out, long n) {
  const DType source = static_cast<DType>(from), target = static_cast<DType>(to);
  const char* in = static_cast<const char*>(a);
  return static_cast<int>(walk(host::cast_kernel(source, target), in, in, in, static_cast<char*>(out), itemsize(source),
                               itemsize(source), itemsize(target), n));
}
/// Folds n contiguous elements; with `initial` null from the first one.
GPUSHIM_EXPORT int gpushim_reduce(const char* name, int dtype, const void* a, const void* initial, void* out, long n) {
  host::FolderStorage storage;
  const DType type = static_cast<DType>(dtype);
  host::Folder* folder = host::make_folder(op_by_name(name), type, !op_info(op_by_name(name)).associative, storage);
  if (folder == nullptr) return -1;
  folder->begin(initial);
  for (long i = 0; i < n; i += host::kLanes) {
    const int count = n - i < host::kLanes ? static_cast<int>(n - i) : host::kLanes;
    folder->fold(static_cast<const char*>(a) + i * itemsize(type), count);
  }
  return static_cast<int>(folder->finish(out));
}
/// Row `index` of ufuncs.def: its name, or null past the end.
GPUSHIM_EXPORT const char* gpushim_op_name(int index) {
  const int op = static_cast<int>(Op::kSelect) + 1 + index;
  return op < static_cast<int>(Op::kCount) ? op_info(static_cast<Op>(op)).name : nullptr;
}
GPUSHIM_EXPORT int gpushim_op_inputs(const char* name) { return op_info(op_by_name(name)).n_inputs; }
GPUSHIM_EXPORT int gpushim_op_types(const char* name) { return op_info(op_by_name(name)).types; }
GPUSHIM_EXPORT int gpushim_op_result(const char* name, int dtype) {
  return static_cast<int>(op_result_type(op_by_name(name), static_cast<DType>(dtype)));
}
