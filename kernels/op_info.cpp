// What ufuncs.def says, at run time. Host code.
#include <cstring>

#include "gpu/error.h"
#include "kernels/ufunc_rows.h"

namespace gpushim::kernels {
namespace {

constexpr int kFirstUfunc = static_cast<int>(Op::kSelect) + 1;
constexpr int kUfuncCount = static_cast<int>(Op::kCount) - kFirstUfunc;

constexpr OpInfo kMachineOps[kFirstUfunc] = {
    {"load", 0, 0, false, false, 1}, {"const", 0, 0, false, false, 0}, {"index", 0, 0, false, false, 1},
    {"cast", 1, 0, false, false, 1}, {"store", 1, 0, false, false, 1}, {"select", 3, 0, false, false, 1},
};

#define GPUSHIM_UFUNC(name, inputs, TYPES, RESULT, expression, IDENTITY, ASSOCIATIVE, FP, COST)             \
  {#name,       inputs, GPUSHIM_TYPE_MASK(GPUSHIM_TYPES_##TYPES), Identity::k##IDENTITY != Identity::kNONE, \
   ASSOCIATIVE, COST},
constexpr OpInfo kUfuncs[] = {
#include "kernels/ufuncs.def"
};
#undef GPUSHIM_UFUNC
constexpr bool kQuiet[] = {
#define GPUSHIM_UFUNC(name, inputs, TYPES, RESULT, expression, IDENTITY, ASSOCIATIVE, FP, COST) #FP[0] == 'Q',
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
};
constexpr Identity kIdentities[] = {
#define GPUSHIM_UFUNC(name, inputs, TYPES, RESULT, expression, IDENTITY, ...) Identity::k##IDENTITY,
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
};
static_assert(sizeof(kUfuncs) / sizeof(kUfuncs[0]) == kUfuncCount);

// ---- checks of the table, as it compiles

constexpr bool rows_are_sound() {
  for (const OpInfo& row : kUfuncs) {
    if (row.n_inputs < 1 || row.n_inputs > 3 || row.types == 0 || row.cost == 0) return false;
    if ((row.has_identity || row.associative) && row.n_inputs != 2) return false;
  }
  return true;
}
static_assert(rows_are_sound(), "ufuncs.def: 1 to 3 inputs, a type set, a cost; only binary rows reduce");

constexpr bool same_text(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}
constexpr bool names_are_unique() {
  for (int i = 0; i < kUfuncCount; ++i) {
    for (int j = 0; j < i; ++j) {
      if (same_text(kUfuncs[i].name, kUfuncs[j].name)) return false;
    }
  }
  return true;
}
static_assert(names_are_unique(), "ufuncs.def: two rows of one name");

constexpr const char* kDTypeNames[kDTypeCount] = {"bool",    "int8",    "uint8",     "int16",     "uint16",
                                                  "int32",   "uint32",  "int64",     "uint64",    "float16",
                                                  "float32", "float64", "complex64", "complex128"};

template <class T>
Constant constant_of(T value) {
  Constant constant{0, 0};
  std::memcpy(&constant, &value, sizeof(T));
  return constant;
}

}  // namespace

const char* dtype_name(DType t) noexcept { return kDTypeNames[static_cast<int>(t)]; }

const OpInfo& op_info(Op op) noexcept {
  const int index = static_cast<int>(op);
  return index < kFirstUfunc ? kMachineOps[index] : kUfuncs[index - kFirstUfunc];
}

bool op_is_quiet(Op op) noexcept {
  const int index = static_cast<int>(op);
  return index >= kFirstUfunc && kQuiet[index - kFirstUfunc];
}

DType op_result_type(Op op, DType t) noexcept {
  switch (op) {
#define GPUSHIM_UFUNC(name, inputs, TYPES, RESULT, ...) \
  case Op::name:                                        \
    return GPUSHIM_RESULT_##RESULT(t);
#include "kernels/ufuncs.def"
#undef GPUSHIM_UFUNC
    case Op::kIndex:
      return DType::kI64;
    default:
      return t;
  }
}

Constant op_identity(Op op, DType t) noexcept {
  const int index = static_cast<int>(op) - kFirstUfunc;
  GPUSHIM_INVARIANT(index >= 0 && kIdentities[index] != Identity::kNONE);
  switch (t) {
#define GPUSHIM_IDENTITY_CASE(op, dtype) \
  case DType::dtype:                     \
    return constant_of(identity_value<CType<DType::dtype>>(kIdentities[index]));
    GPUSHIM_TYPES_ALL(GPUSHIM_IDENTITY_CASE, 0)
#undef GPUSHIM_IDENTITY_CASE
  }
  return Constant{0, 0};
}

Op op_by_name(const char* name) noexcept {
  for (int i = 0; i < kUfuncCount; ++i) {
    if (std::strcmp(kUfuncs[i].name, name) == 0) return static_cast<Op>(kFirstUfunc + i);
  }
  return Op::kCount;
}

}  // namespace gpushim::kernels
