// Tasks of indexing on the CPU. Host code.
#include <cstring>
#include <vector>

#include "gpu/error.h"
#include "kernels/fold_at.h"
#include "kernels/host_executor.h"
#include "kernels/host_memory.h"
#include "kernels/index_tasks.h"
#include "kernels/ufunc_types.h"

namespace gpushim::kernels::host {
namespace {

/// The index made one of [0, extent); false when it must be reported.
bool normalize(std::int64_t* index, std::int64_t extent, OutOfBounds mode) {
  if (mode == OutOfBounds::kWrap) {
    *index %= extent;
    if (*index < 0) *index += extent;
  } else if (mode == OutOfBounds::kClip) {
    *index = *index < 0 ? 0 : *index >= extent ? extent - 1 : *index;
  } else {
    if (*index < -extent || *index >= extent) return false;
    if (*index < 0) *index += extent;
  }
  return true;
}

/// The offset in the target that the index arrays give for one element of the space.
bool fancy_offset(const Indexed& work, const Space& space, std::int64_t element, std::int64_t* offset) {
  *offset = 0;
  for (int k = 0; k < work.n_arrays; ++k) {
    const IndexArray& array = work.arrays[k];
    std::int64_t index;
    std::memcpy(&index, reinterpret_cast<const void*>(array.data + offset_of(space, array.strides, element)), 8);
    if (!normalize(&index, array.extent, work.mode)) return false;
    *offset += index * array.stride;
  }
  return true;
}

/// Those of all elements; false when an index was out of bounds, which is told.
bool fancy_offsets(const Indexed& work, const Space& space, std::vector<std::int64_t>* offsets) {
  std::int64_t i = 0;
  for (std::int64_t& offset : *offsets) {
    if (fancy_offset(work, space, i++, &offset)) continue;
    const std::int64_t one = 1;
    std::memcpy(reinterpret_cast<void*>(work.error), &one, sizeof(one));
    return false;
  }
  return true;
}

using FoldStep = std::uint32_t (*)(void* target, const void* x);

/// target = target op x; the floating-point events. Elements may be aligned to their components alone.
template <Op kOp, class T>
std::uint32_t fold_element(void* target, const void* address) {
  T value, x;
  std::memcpy(&value, target, sizeof(T));
  std::memcpy(&x, address, sizeof(T));
  const std::uint32_t events = fold_step<kOp>(value, x);
  std::memcpy(target, &value, sizeof(T));
  return events;
}

FoldStep find_step(Op op, DType type) {
#define GPUSHIM_FOLD_AT(kOp, T) \
  case DType::T:                \
    return &fold_element<Op::kOp, CType<DType::T>>;
#define GPUSHIM_FOLD_AT_OP(kOp, TYPES) \
  case Op::kOp:                        \
    switch (type) { GPUSHIM_TYPES_##TYPES(GPUSHIM_FOLD_AT, kOp) default : return nullptr; }
  switch (op) {
    GPUSHIM_FOLDS_AT(GPUSHIM_FOLD_AT_OP)
    default:
      return nullptr;
  }
#undef GPUSHIM_FOLD_AT_OP
#undef GPUSHIM_FOLD_AT
}

/// Calls visit(target element, plain element) in C order, so that the last of equal places wins. False, with the error
/// in the task's words, where an index is out of bounds: then nothing was visited.
template <class Visit>
bool for_each_place(const Indexed& work, Visit&& visit) {
  Space space{};
  space.ndim = work.ndim;
  std::int64_t size = 1;
  for (int d = 0; d < work.ndim; ++d) size *= space.shape[d] = work.shape[d];
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(size));
  if (!fancy_offsets(work, space, &offsets)) return false;
  for (std::int64_t i = 0; i < size; ++i) {
    void* target = reinterpret_cast<void*>(work.target + offset_of(space, work.target_strides, i) +
                                           offsets[static_cast<std::size_t>(i)]);
    const std::int64_t at = work.cycle != 0 ? i % work.cycle : i;
    visit(target, reinterpret_cast<void*>(work.plain + offset_of(space, work.plain_strides, at)));
  }
  return true;
}

}  // namespace

void run_fold_at(const FoldAt& work) {
  const FoldStep step = find_step(work.op, work.type);
  GPUSHIM_INVARIANT(step != nullptr);
  std::uint32_t events = 0;
  const bool inside = for_each_place(work, [&](void* target, const void* plain) {
    events |= step(target, work.constant ? static_cast<const void*>(&work.value) : plain);
  });
  if (inside) report_events(work.fp_status, events);
}

void run_indexed(const Indexed& work) {
  for_each_place(work, [&](void* target, void* plain) {
    if (work.constant) {
      std::memcpy(target, &work.value, work.itemsize);
    } else if (work.scatter) {
      std::memcpy(target, plain, work.itemsize);
    } else {
      std::memcpy(plain, target, work.itemsize);
    }
  });
}

void run_mask_count(const MaskCount& work) {
  const auto* mask = reinterpret_cast<const unsigned char*>(work.mask);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < work.size; ++i) count += mask[i] != 0;
  std::memcpy(reinterpret_cast<void*>(work.count), &count, sizeof(count));
}

void run_mask_select(const MaskSelect& work) {
  const auto* mask = reinterpret_cast<const unsigned char*>(work.mask);
  auto* out = reinterpret_cast<char*>(work.out);
  for (std::int64_t i = 0; i < work.size; ++i) {
    if (mask[i] == 0) continue;
    const std::size_t bytes = work.positions ? sizeof(i) : work.itemsize;
    const void* from = work.positions
                           ? static_cast<const void*>(&i)
                           : reinterpret_cast<const void*>(work.in + static_cast<gpu::DevicePtr>(i) * work.itemsize);
    std::memcpy(out, from, bytes);
    out += bytes;
  }
}

}  // namespace gpushim::kernels::host
