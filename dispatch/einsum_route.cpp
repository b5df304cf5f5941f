// Sums of products over labelled dimensions: einsum, and products of arrays of many dimensions. Host code, under the
// GIL.
//
// Vocabulary. A *term* is an operand whose dimensions have labels; a label that it has twice means its diagonal. Labels
// that the result has are kept, the others are summed. Two terms that share a summed label, of which one has a kept
// label of its own, are a matrix product: kept labels of both are the batch, those of one its rows or columns.
// Everything else is one program: the product of all terms, folded by a sum.
#include <algorithm>
#include <cstring>

#include "compat/errstate.h"
#include "dispatch/array_routes.h"
#include "dispatch/assign.h"
#include "dispatch/builder.h"
#include "dispatch/placement.h"
#include "dispatch/recorder.h"
#include "dispatch/results.h"

namespace gpushim::dispatch {

using kernels::DType;
using kernels::Op;

namespace {

constexpr int kLetters = 128, kLabels = kLetters + kMaxArrayDims;  // ellipsis: one label a dimension, from the right
constexpr int kMostTerms = 4;

struct Term {
  Operand operand;
  std::int64_t strides[kLabels];  ///< bytes; 0 where it has not got the label, or broadcasts
  std::int64_t extents[kLabels];  ///< 1 where it broadcasts; 0 where it has not got the label
  bool has(int label) const noexcept { return extents[label] > 0; }
};

struct Problem {
  int n_terms = 0;
  Term terms[kMostTerms];
  std::int64_t sizes[kLabels];  ///< 0: no term has the label
  int n_kept = 0, n_summed = 0;
  std::uint8_t kept[kMaxArrayDims], summed[kLabels];
  DType type;
};

/// Dimension d of the term has this label. False: sizes do not fit, or NumPy should judge it.
bool label_dimension(Problem& p, Term& term, int d, int label) {
  std::int64_t size = term.operand.shape[d], stride = term.operand.strides[d];
  if (term.has(label)) {
    if (size != term.extents[label]) return false;
    term.strides[label] += size == 1 ? 0 : stride;
    return true;
  }
  term.extents[label] = size;
  if (p.sizes[label] > 1 && size > 1 && p.sizes[label] != size) return false;
  p.sizes[label] = std::max(p.sizes[label], size);
  term.strides[label] = size == 1 ? 0 : stride;
  return true;
}

void clear(Problem& p) {
  std::fill_n(p.sizes, kLabels, 0);
  for (Term& term : p.terms) {
    std::fill_n(term.strides, kLabels, 0);
    std::fill_n(term.extents, kLabels, 0);
  }
}

/// The subscripts of one term or of the result, as labels. `broadcast`: dimensions that "..." stands for.
bool parse_labels(const char* text, const char* end, int broadcast, std::uint8_t* labels, int* n) {
  bool ellipsis = false;
  *n = 0;
  for (; text != end; ++text) {
    if (*text == ' ') continue;
    if (*n + (*text == '.' ? broadcast : 1) > kMaxArrayDims) return false;
    if (*text == '.') {
      if (ellipsis || end - text < 3 || text[1] != '.' || text[2] != '.') return false;
      ellipsis = true;
      text += 2;
      for (int i = broadcast; i-- > 0;) labels[(*n)++] = static_cast<std::uint8_t>(kLetters + i);
    } else if ((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z')) {
      labels[(*n)++] = static_cast<std::uint8_t>(*text);
    } else {
      return false;
    }
  }
  return true;
}

int count_letters(const char* text, const char* end) {
  return static_cast<int>(
      std::count_if(text, end, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }));
}

/// Fills everything but the type. The operands are read already.
bool parse_subscripts(const char* text, Problem& p) {
  const char* arrow = std::strstr(text, "->");
  const char* inputs_end = arrow ? arrow : text + std::strlen(text);
  int counts[kLetters] = {}, broadcast = 0;
  const char* at = text;
  for (int i = 0; i < p.n_terms; ++i) {
    const char* end = std::find(at, inputs_end, ',');
    if ((end == inputs_end) != (i == p.n_terms - 1)) return false;
    Term& term = p.terms[i];
    const bool ellipsis = std::find(at, end, '.') != end;
    const int hidden = term.operand.ndim - count_letters(at, end);
    if (hidden < 0 || (hidden > 0 && !ellipsis)) return false;
    broadcast = std::max(broadcast, ellipsis ? hidden : 0);
    std::uint8_t labels[kMaxArrayDims];
    int n;
    if (!parse_labels(at, end, hidden, labels, &n) || n != term.operand.ndim) return false;
    for (int d = 0; d < n; ++d) {
      if (!label_dimension(p, term, d, labels[d])) return false;
      if (labels[d] < kLetters) ++counts[labels[d]];
    }
    at = end + 1;
  }
  if (arrow) {
    const char* end = arrow + std::strlen(arrow);
    if (!parse_labels(arrow + 2, end, broadcast, p.kept, &p.n_kept)) return false;
    if (p.n_kept - count_letters(arrow + 2, end) != broadcast) return false;
  } else {
    for (int i = broadcast; i-- > 0;) p.kept[p.n_kept++] = static_cast<std::uint8_t>(kLetters + i);
    for (int label = 0; label < kLetters; ++label) {
      if (counts[label] == 1 && p.n_kept < kMaxArrayDims) p.kept[p.n_kept++] = static_cast<std::uint8_t>(label);
    }
  }
  for (int i = 0; i < p.n_kept; ++i) {
    if (p.sizes[p.kept[i]] == 0 || std::count(p.kept, p.kept + p.n_kept, p.kept[i]) != 1) return false;
  }
  return true;
}

void find_summed(Problem& p) {
  p.n_summed = 0;
  for (int label = 0; label < kLabels; ++label) {
    if (p.sizes[label] > 0 && std::count(p.kept, p.kept + p.n_kept, label) == 0)
      p.summed[p.n_summed++] = static_cast<std::uint8_t>(label);
  }
}

/// All labels with their strides, kept ones first, and NumPy's order of iteration over them.
void make_space(const Problem& p, Space* space, int* order) {
  space->ndim = p.n_kept + p.n_summed;
  space->n_operands = p.n_terms;
  for (int d = 0; d < space->ndim; ++d) {
    const int label = d < p.n_kept ? p.kept[d] : p.summed[d - p.n_kept];
    space->shape[d] = p.sizes[label];
    for (int i = 0; i < p.n_terms; ++i) space->strides[i][d] = p.terms[i].strides[label];
  }
  space->iteration_order(p.n_terms, order);
}

/// An array for the result, laid out as NumPy lays it out.
NewArray new_kept(const Problem& p) {
  Space space;
  int order[kMaxArrayDims], kept_order[kMaxArrayDims], n = 0;
  make_space(p, &space, order);
  for (int i = 0; i < space.ndim; ++i) {
    if (order[i] < p.n_kept) kept_order[n++] = order[i];
  }
  std::int64_t strides[kMaxArrayDims];
  contiguous_strides(p.n_kept, space.shape, kept_order, static_cast<std::int64_t>(kernels::itemsize(p.type)), strides);
  return new_result(descriptor_of(p.type), p.n_kept, space.shape, strides);
}

/// One program into `target`, or into shared words when that is null. False: not for kernels.
bool record_program(const Problem& p, const Operand* target, gpu::DevicePtr shared) {
  Space space;
  int order[kMaxArrayDims], sorted[kMaxArrayDims], n = 0, n_kept = 0;
  make_space(p, &space, order);
  const int result = space.n_operands++;
  for (int d = 0; d < space.ndim; ++d) space.strides[result][d] = d < p.n_kept ? target->strides[d] : 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < space.ndim; ++i) {
      if ((order[i] >= p.n_kept) == (pass == 1)) sorted[n++] = order[i];
    }
    if (pass == 0) n_kept = n;
  }
  space.permute(sorted);
  const bool folds = p.n_summed > 0;
  int barrier = space.coalesce(folds ? n_kept : -1);
  if (folds && barrier == space.ndim) {  // everything summed had one element
    space.shape[space.ndim] = 1;
    for (int i = 0; i < space.n_operands; ++i) space.strides[i][space.ndim] = 0;
    ++space.ndim;
  }
  if (space.ndim > kernels::kMaxDims) return false;
  const DType type = p.type;
  auto& program = Recorder::get().next<kernels::Program>();
  ProgramBuilder build(program);
  if (!build.set_space(space)) return false;
  Node& node = Recorder::get().node();
  int value = 0;
  for (int i = 0; i < p.n_terms; ++i) {
    const Operand& o = p.terms[i].operand;
    int factor = build.cast(build.load(node.bind_read(o), o.dtype), o.dtype, type);
    value = i == 0                 ? factor
            : type == DType::kBool ? build.apply(Op::logical_and, type, value, factor)
                                   : build.apply(Op::multiply, type, value, factor);
  }
  const Op sum = type == DType::kBool ? Op::logical_or : Op::add;
  if (!folds) {  // NumPy adds to zero, which loses the sign of a negative zero
    if (type != DType::kBool)
      value = build.apply(Op::add, type, value, build.constant(kernels::op_identity(Op::add, type), type));
    build.store(value, node.bind_write(*target, true), type);
    Recorder::get().record();
    return true;
  }
  program.reduction = {};
  program.reduction.op = sum;
  program.reduction.type = type;
  program.reduction.ndim = static_cast<std::uint8_t>(space.ndim - barrier);
  program.reduction.value = static_cast<std::uint8_t>(value);
  program.reduction.result = static_cast<std::uint8_t>(result);
  program.reduction.has_initial = true;
  program.reduction.initial = kernels::op_identity(sum, type);
  build.set_dtype(result, type);
  if (target) {
    node.bind_write(*target, true);
  } else {
    node.bind_shared(shared);
  }
  Recorder::get().record();
  return true;
}

// --- matrix products

/// Labels of one role, outermost first.
struct Group {
  int n = 0;
  std::uint8_t labels[kMaxArrayDims];
  void add(int label) { labels[n++] = static_cast<std::uint8_t>(label); }
};

std::int64_t size_of(const Problem& p, const Group& group) {
  std::int64_t n = 1;
  for (int i = 0; i < group.n; ++i) n *= p.sizes[group.labels[i]];
  return n;
}

/// The group as one dimension of an operand with these strides by label: its stride. False when it is not regular.
bool merged_stride(const Problem& p, const Group& group, const std::int64_t* strides, std::int64_t* stride) {
  *stride = 0;
  bool any = false;
  std::int64_t next = 0;
  for (int i = group.n; i-- > 0;) {
    const std::int64_t size = p.sizes[group.labels[i]], here = strides[group.labels[i]];
    if (size == 1) continue;
    if (!any) *stride = here;
    if (any && here != next) return false;
    next = here * size;
    any = true;
  }
  return true;
}

/// A contiguous copy in the product's type, its labels in this order.
bool compact(const Problem& p, Term& term, const Group* groups, int n_groups, NewArray* holder, Reason* reason) {
  std::int64_t shape[kMaxArrayDims], strides[kMaxArrayDims];
  int ndim = 0;
  for (int g = 0; g < n_groups; ++g) {
    for (int i = 0; i < groups[g].n; ++i) {
      const int label = groups[g].labels[i];
      if (!term.has(label)) continue;
      shape[ndim] = term.extents[label];
      strides[ndim++] = term.strides[label];
    }
  }
  Operand view = term.operand;
  view.ndim = ndim;
  view.shape = shape;
  view.strides = strides;
  *holder = new_result(descriptor_of(p.type), ndim, shape);
  if (!record_assign(holder->operand, view, nullptr, 0, reason)) return false;
  term.operand = holder->operand;
  int d = 0;
  for (int g = 0; g < n_groups; ++g) {
    for (int i = 0; i < groups[g].n; ++i) {
      const int label = groups[g].labels[i];
      if (!term.has(label)) continue;
      term.strides[label] = term.extents[label] == 1 ? 0 : holder->operand.strides[d];
      ++d;
    }
  }
  return true;
}

/// Sums the labels that only this term has and the result has not.
bool sum_own_labels(const Problem& p, Term& term, const Term& other, NewArray* holder) {
  Problem own{};
  clear(own);
  bool any = false;
  own.type = p.type;
  own.n_terms = 1;
  own.terms[0] = term;
  for (int label = 0; label < kLabels; ++label) {
    if (!term.has(label)) continue;
    own.sizes[label] = term.extents[label];
    const bool summed = !other.has(label) && std::count(p.kept, p.kept + p.n_kept, label) == 0;
    any |= summed;
    if (!summed) own.kept[own.n_kept++] = static_cast<std::uint8_t>(label);
  }
  if (!any) return true;
  find_summed(own);
  *holder = new_kept(own);
  if (!record_program(own, &holder->operand, 0)) return false;
  Term reduced{};
  reduced.operand = holder->operand;
  for (int d = 0; d < own.n_kept; ++d) {
    reduced.extents[own.kept[d]] = own.sizes[own.kept[d]];
    reduced.strides[own.kept[d]] = own.sizes[own.kept[d]] == 1 ? 0 : holder->operand.strides[d];
  }
  term = reduced;
  return true;
}

struct Roles {
  Group batch, rows, columns, inner;
};
Roles find_roles(const Problem& p) {
  Roles roles;
  const Term &a = p.terms[0], &b = p.terms[1];
  for (int i = 0; i < p.n_kept; ++i) {
    const int label = p.kept[i];
    (a.has(label) && b.has(label) ? roles.batch : a.has(label) ? roles.rows : roles.columns).add(label);
  }
  for (int i = 0; i < p.n_summed; ++i) {
    if (a.has(p.summed[i]) && b.has(p.summed[i])) roles.inner.add(p.summed[i]);
  }
  return roles;
}

/// A summed label along which a term has one element is no label of that term.
void drop_broadcast(Problem& p) {
  for (int i = 0; i < p.n_terms; ++i) {
    for (int d = 0; d < p.n_summed; ++d) {
      std::int64_t& extent = p.terms[i].extents[p.summed[d]];
      if (extent == 1 && p.sizes[p.summed[d]] > 1) extent = 0;
    }
  }
}

bool is_product(const Problem& p) {
  if (p.n_terms != 2) return false;
  const Roles roles = find_roles(p);
  for (const Term& term : p.terms) {
    for (int i = 0; i < roles.inner.n; ++i) {  // one element, many times: no matrix
      const int label = roles.inner.labels[i];
      if (term.has(label) && term.extents[label] > 1 && term.strides[label] == 0) return false;
    }
  }
  return roles.inner.n > 0 && size_of(p, roles.rows) * size_of(p, roles.columns) > 1;
}

/// The product into `result`. False: not for this geometry.
bool record_product(Problem& p, const Operand& result, Reason* reason) {
  NewArray holders[4], straight;
  for (int i = 0; i < 2; ++i) {
    if (!sum_own_labels(p, p.terms[i], p.terms[1 - i], &holders[i])) return false;
  }
  for (int label = 0; label < kLabels; ++label) {  // what was summed is gone
    if (!p.terms[0].has(label) && !p.terms[1].has(label)) p.sizes[label] = 0;
  }
  find_summed(p);
  Roles roles = find_roles(p);
  // Inner labels in the first term's order of memory: the second's may agree.
  std::sort(roles.inner.labels, roles.inner.labels + roles.inner.n, [&](std::uint8_t x, std::uint8_t y) {
    return std::abs(p.terms[0].strides[x]) > std::abs(p.terms[0].strides[y]);
  });
  std::int64_t c_strides[kLabels] = {};
  for (int d = 0; d < p.n_kept; ++d) c_strides[p.kept[d]] = result.strides[d];
  Operand target = result;

  Term &a = p.terms[0], &b = p.terms[1];
  std::int64_t a_row, a_col, b_row, b_col, c_row, c_col;
  const auto fits = [&](const Term& term, const Group& first, const Group& second, std::int64_t* x, std::int64_t* y) {
    if (term.operand.dtype != p.type) return false;
    return merged_stride(p, first, term.strides, x) && merged_stride(p, second, term.strides, y);
  };
  const Group a_order[] = {roles.batch, roles.rows, roles.inner}, b_order[] = {roles.batch, roles.inner, roles.columns};
  if (!fits(a, roles.rows, roles.inner, &a_row, &a_col)) {
    if (!compact(p, a, a_order, 3, &holders[2], reason) || !fits(a, roles.rows, roles.inner, &a_row, &a_col))
      return false;
  }
  if (!fits(b, roles.inner, roles.columns, &b_row, &b_col)) {
    if (!compact(p, b, b_order, 3, &holders[3], reason) || !fits(b, roles.inner, roles.columns, &b_row, &b_col))
      return false;
  }
  const bool direct =
      merged_stride(p, roles.rows, c_strides, &c_row) && merged_stride(p, roles.columns, c_strides, &c_col);
  const Group c_order[] = {roles.batch, roles.rows, roles.columns};
  std::int64_t shape[kMaxArrayDims];
  if (!direct) {
    int ndim = 0;
    for (const Group& group : c_order) {
      for (int i = 0; i < group.n; ++i) shape[ndim++] = p.sizes[group.labels[i]];
    }
    straight = new_result(descriptor_of(p.type), ndim, shape);
    target = straight.operand;
    ndim = 0;
    for (const Group& group : c_order) {
      for (int i = 0; i < group.n; ++i) c_strides[group.labels[i]] = target.strides[ndim++];
    }
    merged_stride(p, roles.rows, c_strides, &c_row);
    merged_stride(p, roles.columns, c_strides, &c_col);
  }

  Space lines;
  lines.n_operands = 3;
  lines.ndim = roles.batch.n;
  for (int d = 0; d < roles.batch.n; ++d) {
    const int label = roles.batch.labels[d];
    lines.shape[d] = p.sizes[label];
    lines.strides[0][d] = a.strides[label];
    lines.strides[1][d] = b.strides[label];
    lines.strides[2][d] = c_strides[label];
  }
  if (lines.ndim > 0) lines.coalesce(-1);
  if (lines.ndim > kernels::kMaxDims - 2) return false;
  auto& work = Recorder::get().next<kernels::MatMul>();
  work.type = p.type;
  work.conjugate_a = false;
  work.m = size_of(p, roles.rows);
  work.n = size_of(p, roles.columns);
  work.k = size_of(p, roles.inner);
  work.batch_ndim = static_cast<std::uint8_t>(lines.ndim);
  for (int d = 0; d < lines.ndim; ++d) {
    work.batch_shape[d] = lines.shape[d];
    work.a_batch[d] = lines.strides[0][d];
    work.b_batch[d] = lines.strides[1][d];
    work.c_batch[d] = lines.strides[2][d];
  }
  work.a_row = a_row;
  work.a_col = a_col;
  work.b_row = b_row;
  work.b_col = b_col;
  work.c_row = c_row;
  work.c_col = c_col;
  Node& node = Recorder::get().node();
  node.bind_read(a.operand);
  node.bind_read(b.operand);
  node.bind_write(target, true);
  Recorder::get().record();
  if (direct) return true;
  Operand view = target;
  std::int64_t view_shape[kMaxArrayDims], view_strides[kMaxArrayDims];
  view.ndim = p.n_kept;
  view.shape = view_shape;
  view.strides = view_strides;
  for (int d = 0; d < p.n_kept; ++d) {
    view_shape[d] = p.sizes[p.kept[d]];
    view_strides[d] = c_strides[p.kept[d]];
  }
  return record_assign(result, view, nullptr, 0, reason);
}

Attempt run(Problem& p) {
  Reason reason = Reason::layout;
  find_summed(p);
  if (p.n_kept + p.n_summed > kMaxArrayDims) return Attempt::fallback(Reason::layout);
  PyArrayObject* arrays[kMostTerms];
  const Operand* all[kMostTerms];
  std::int64_t elements = 1, size = 1;
  for (int i = 0; i < p.n_terms; ++i) {
    arrays[i] = p.terms[i].operand.array;
    all[i] = &p.terms[i].operand;
    if (p.terms[i].operand.size() == 0) return Attempt::fallback(Reason::empty);
  }
  auto descr = compat::steal(
      reinterpret_cast<PyObject*>(PyArray_ResultType(p.n_terms, arrays, 0, static_cast<PyArray_Descr**>(nullptr))));
  if (!descr) {
    PyErr_Clear();
    return Attempt::fallback(Reason::dtype);
  }
  if (!to_dtype(reinterpret_cast<PyArray_Descr*>(descr.get())->type_num, &p.type))
    return Attempt::fallback(Reason::dtype);
  if (p.type == DType::kF16) return Attempt::fallback(Reason::dtype);  // NumPy rounds between its inner loops
  for (int label = 0; label < kLabels; ++label) {
    if (p.sizes[label] > 1 && __builtin_mul_overflow(elements, p.sizes[label], &elements))
      return Attempt::fallback(Reason::value);
  }
  for (int d = 0; d < p.n_kept; ++d) size *= p.sizes[p.kept[d]];
  Work work{elements, size * static_cast<std::int64_t>(kernels::itemsize(p.type)), 1.0};
  if (!worth_device(all, p.n_terms, work, &reason)) return Attempt::fallback(reason);

  if (p.n_kept == 0) {
    Recorder::SharedWords words = Recorder::get().result_words();
    if (!record_program(p, nullptr, words.device)) return Attempt::fallback(Reason::layout);
    Runtime::get()->memory().synchronize();
    return Attempt::success(PyArray_Scalar(words.host, descriptor_of(p.type), nullptr));
  }
  NewArray made = new_kept(p);
  drop_broadcast(p);
  const bool ok = is_product(p) ? record_product(p, made.operand, &reason) : record_program(p, &made.operand, 0);
  return ok ? Attempt::success(made.array.release()) : Attempt::fallback(Reason::layout);
}

}  // namespace

Attempt route_einsum(const Call& call) {
  if (call.nargs < 2 || call.nargs - 1 > kMostTerms || !PyUnicode_Check(call.args[0]))
    return Attempt::fallback(Reason::not_implemented);
  for (Py_ssize_t k = 0; k < call.n_keywords(); ++k) {
    const char* name = call.keyword(k);
    // optimize=True passes the defaults on.
    const bool absent = name && (std::strcmp(name, "out") == 0 || std::strcmp(name, "dtype") == 0);
    if (!absent || call.keyword_value(k) != Py_None) return Attempt::fallback(Reason::kwarg);
  }
  const char* text = PyUnicode_AsUTF8(call.args[0]);
  if (!text) {
    PyErr_Clear();
    return Attempt::fallback(Reason::value);
  }
  Problem p;
  clear(p);
  p.n_terms = static_cast<int>(call.nargs - 1);
  for (int i = 0; i < p.n_terms; ++i) {
    Reason reason;
    if (!read_input(call.args[i + 1], &p.terms[i].operand, &reason)) return Attempt::fallback(reason);
    if (!p.terms[i].operand.is_array()) return Attempt::fallback(Reason::value);
  }
  if (!parse_subscripts(text, p)) return Attempt::fallback(Reason::value);
  find_summed(p);
  if (p.n_terms == 1 && p.n_summed == 0) return Attempt::fallback(Reason::value);  // NumPy's answer is a view
  if (p.n_kept + p.n_summed == 0) return Attempt::fallback(Reason::trivial);       // a product of numbers
  return run(p);
}

Attempt contract(const Operand& a, int a_axis, const Operand& b, int b_axis) {
  // dot reports floating-point events, which the product does not see.
  if (!compat::current_error_mask().may_come_late()) return Attempt::fallback(Reason::errstate);
  Problem p;
  clear(p);
  p.n_terms = 2;
  p.terms[0].operand = a;
  p.terms[1].operand = b;
  constexpr int kInner = 0;
  int label = 1;
  for (int i = 0; i < 2; ++i) {
    Term& term = p.terms[i];
    const int axis = i == 0 ? a_axis : b_axis;
    if (term.operand.shape[axis] != (i == 0 ? b : a).shape[i == 0 ? b_axis : a_axis]) {
      return Attempt::fallback(Reason::value);
    }
    for (int d = 0; d < term.operand.ndim; ++d) {
      const int here = d == axis ? kInner : label++;
      if (here != kInner) {
        if (p.n_kept == kMaxArrayDims) return Attempt::fallback(Reason::layout);
        p.kept[p.n_kept++] = static_cast<std::uint8_t>(here);
      }
      label_dimension(p, term, d, here);
    }
  }
  return run(p);
}

}  // namespace gpushim::dispatch
