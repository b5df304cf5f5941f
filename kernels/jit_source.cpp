// Writes the CUDA source of a program's kernels. Host code, no CUDA.
//
// The source is one structure, `Fused`, and the kernels that hand it to the loops of jit_prelude.cuh. Its members:
//
//     constants    kThreads, kWidth, kChunks, kFixedEvents; of elements kTiles, kSpots; of a reduction kFold,
//     kFoldSlot,
//                  kHasInitial, kStores, kSingle, kPasses (loads by a cache policy) and kWholePacks (its length is a
//                  multiple of kWidth)
//     types        Index, Arguments, Events, Value; Inputs (a member a loaded operand) and Outputs (a member a store)
//     fix          what is the same for all elements, computed once by each thread: Fixed
//     load         one element's inputs, at (outer, inner)
//     load_pack    those of kWidth neighbours: along inner, or along outer in columns; but for what load_once loads,
//     where
//                  the rows of a tile share something (kOnce)
//     compute      the instructions, once for each element: SSA, a C++ variable an instruction
//     store, store_pack, store_result
//
// Of a row program (row_program.h) the structure also has a structure for each stage, with the stage's own loads,
// stores and fold, and the instructions twice: `compute` takes from Kept what an earlier stage computed,
// `compute_again` computes everything, for rows that are not held and for exact events. Folded has the results of
// folds, a member a stage.
//
// A register is a name for the variable that was written to it last, so the compiler sees no registers at all.
#include "kernels/jit_source.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <vector>

#include "kernels/jit_headers.h"

namespace gpushim::kernels {
namespace {

const char* c_type(DType type) {
  constexpr const char* kNames[kDTypeCount] = {"bool",           "std::int8_t",    "std::uint8_t",  "std::int16_t",
                                               "std::uint16_t",  "std::int32_t",   "std::uint32_t", "std::int64_t",
                                               "std::uint64_t",  "Half",           "float",         "double",
                                               "Complex<float>", "Complex<double>"};
  return kNames[static_cast<int>(type)];
}

class Writer {
 public:
  Writer(const Program& program, const JitPlan& plan) : program_(program), plan_(plan) {
    std::fill(std::begin(twin_), std::end(twin_), -1);
  }

  JitSource write() {
    if (plan_.n_stages == 0) find_fixed();
    find_moves();
    if (plan_.events) find_covered();
    if (plan_.n_stages > 0) {
      find_repeated();
      write_row_kernel();
      if (!sound_) return {};
      return {std::move(text_), used_rows()};
    }
    write_head();
    write_place();
    write_fix();
    write_load();
    active_ = ~once();
    write_load_pack("load_pack");
    active_ = once();
    if (once() != 0) write_load_pack("load_once");
    active_ = ~0u;
    write_compute();
    write_store();
    write_store_pack();
    if (folds()) write_store_result(plan_.fold_result);
    line("};");
    blank();
    write_kernels();
    line("}  // namespace gpushim::kernels");
    if (!sound_) return {};
    return {std::move(text_), used_rows()};
  }

 private:
  struct Store {
    int operand, value;  ///< register
    bool masked;
    DType type;
  };
  /// What a register holds.
  struct Variable {
    std::string name;
    DType type;
  };

  bool folds() const { return plan_.fold_dims > 0; }
  bool columns() const { return plan_.kind == JitKind::kColumns; }

  __attribute__((format(printf, 2, 3))) void line(const char* format, ...) {
    std::va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    va_end(arguments);
    const std::size_t start = text_.size();
    text_.resize(start + static_cast<std::size_t>(length) + 1);
    std::vsnprintf(text_.data() + start, static_cast<std::size_t>(length) + 1, format, again);
    va_end(again);
    text_.back() = '\n';
  }
  void blank() { text_ += '\n'; }

  /// The table's lines for the operations of the program, and for those that the headers name.
  std::string used_rows() const {
    bool used[static_cast<int>(Op::kCount)] = {};
    for (const Op op : {Op::add, Op::multiply, Op::ldexp}) used[static_cast<int>(op)] = true;
    if (folds()) used[static_cast<int>(plan_.fold)] = true;
    for (int s = 0; s < plan_.n_stages; ++s) {
      if (plan_.stages[s].folds) used[static_cast<int>(plan_.stages[s].op)] = true;
    }
    for (int i = 0; i < program_.n_instructions; ++i) used[static_cast<int>(program_.instructions[i].op)] = true;
    constexpr std::string_view kRow = "GPUSHIM_UFUNC(";
    std::string rows;
    for (std::string_view rest = jit_header("kernels/ufuncs.def"); !rest.empty();) {
      const std::string_view row = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(row.size() + 1, rest.size()));
      if (!row.starts_with(kRow)) continue;
      const std::string name(row.substr(kRow.size(), row.find(',') - kRow.size()));
      if (used[static_cast<int>(op_by_name(name.c_str()))]) rows.append(row).append("\n");
    }
    return rows;
  }

  /// Fills fixed_: instructions whose value is the same for all elements; and twin_. Not of row programs.
  void find_fixed() {
    int holds[kMaxRegisters];  // the instruction whose value the register has
    std::fill(std::begin(holds), std::end(holds), -1);
    for (int i = 0; i < program_.n_instructions; ++i) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::kStore || in.dst >= kMaxRegisters) continue;
      const std::uint8_t inputs[] = {in.a, in.b, in.c};
      const auto* end = inputs + inputs_of(in);
      const auto fixed = [&](int reg) { return reg < kMaxRegisters && holds[reg] >= 0 && fixed_[holds[reg]]; };
      if (in.op == Op::kLoad) {
        fixed_[i] = plan_.operands[in.a].outer == JitPart::kFixed && plan_.operands[in.a].inner == JitPart::kFixed;
      } else {
        fixed_[i] = in.op == Op::kConst || (in.op != Op::kIndex && std::all_of(inputs, end, fixed));
      }
      if (is_sine(in)) {
        source_[i] = holds[in.a];
        for (int j = 0; j < i; ++j) {
          const Instruction& other = program_.instructions[j];
          if (is_sine(other) && other.op != in.op && other.type == in.type && source_[j] == source_[i] && twin_[j] < 0)
            twin_[i] = j, twin_[j] = i;
        }
      }
      holds[in.dst] = i;
    }
  }
  /// Sine and cosine of one number share the reduction of their argument.
  static bool is_sine(const Instruction& in) {
    return (in.op == Op::sin || in.op == Op::cos) && (in.type == DType::kF32 || in.type == DType::kF64);
  }

  void find_moves() {
    for (int i = 0; i < program_.n_instructions; ++i) {
      const Instruction& in = program_.instructions[i];
      if (fixed_[i] && in.op == Op::kLoad) continue;
      if (in.op == Op::kLoad && (loaded_ >> in.a & 1) == 0 && fold_of(in.a) < 0) {
        loaded_ |= 1u << in.a;
        loads_.push_back(in.a);
      }
      if (in.op == Op::kStore && fold_of(in.b) < 0) stores_.push_back({in.b, in.a, in.c != kNoRegister, in.type});
    }
    for (const int k : loads_) {
      const JitAccess& access = plan_.operands[k];
      nd_outer_ = nd_outer_ || access.outer == JitPart::kNd;
      nd_inner_ = nd_inner_ || access.inner == JitPart::kNd;
    }
    for (const Store& store : stores_) {
      const JitAccess& access = plan_.operands[store.operand];
      nd_outer_ = nd_outer_ || access.outer == JitPart::kNd;
      nd_inner_ = nd_inner_ || access.inner == JitPart::kNd;
    }
    if (folds()) nd_outer_ = nd_outer_ || plan_.operands[plan_.fold_result].outer == JitPart::kNd;
    for (int s = 0; s < plan_.n_stages; ++s) {
      const RowStage& stage = plan_.stages[s];
      nd_outer_ = nd_outer_ || (stage.folds && plan_.operands[stage.result].outer == JitPart::kNd);
    }
  }
  /// The stage whose fold's result the operand is, or -1.
  int fold_of(int operand) const {
    for (int s = 0; s < plan_.n_stages; ++s) {
      if (plan_.stages[s].folds && plan_.stages[s].result == operand) return s;
    }
    return -1;
  }

  // ---- events

  /// An infinite or NaN a of the operation (b) gives an infinite or NaN result. Real floating types.
  static bool carries_a(Op op) {
    switch (op) {
      case Op::divide:
      case Op::log:
      case Op::log2:
      case Op::log10:
      case Op::log1p:
      case Op::sqrt:
      case Op::cbrt:
      case Op::sin:
      case Op::cos:
      case Op::tan:
      case Op::absolute:
      case Op::negative:
      case Op::square:
        return true;
      default:
        return carries_b(op);
    }
  }
  static bool carries_b(Op op) { return op == Op::add || op == Op::subtract || op == Op::multiply; }

  /// Fills covered_, from the end: a result is covered by a later one that it makes infinite or NaN, if that one is
  /// watched, or covered itself.
  void find_covered() {
    std::uint32_t shown[kMaxRegisters] = {};  // 1: the value that the register holds now shows in a watched result
    for (int i = program_.n_instructions; i-- > 0;) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::kStore || in.dst >= kMaxRegisters) continue;
      const bool is_cast = in.op == Op::kCast;
      const DType result = is_cast ? in.to : op_result_type(in.op, in.type);
      covered_[i] = shown[in.dst] != 0;
      shown[in.dst] = 0;  // before this instruction the register held another value
      const bool machine = static_cast<int>(in.op) <= static_cast<int>(Op::kSelect);
      if (!is_float(in.type) || !is_float(result) || (machine && !is_cast)) continue;
      const bool visible = covered_[i] || (watched(in) && !is_cast && shows(in.op));
      if (!visible) continue;
      if (is_cast || carries_a(in.op)) mark(shown, in.a);
      if (!is_cast && carries_b(in.op)) mark(shown, in.b);
    }
  }
  static void mark(std::uint32_t* shown, int reg) {
    if (reg < kMaxRegisters) shown[reg] = 1;
  }
  /// The loops watch the operation's result (WatchedEvents::see). Of those that carry, all but the quiet ones.
  static bool shows(Op op) { return carries_a(op) && op != Op::absolute && op != Op::negative; }

  void write_head() {
    line("#include \"kernels/jit_prelude.cuh\"");
    blank();
    line("namespace gpushim::kernels {");
    blank();
    line("struct Fused {");
    line("  static constexpr int kThreads = %d, kWidth = %d, kChunks = %d;", jit_threads(plan_), plan_.width,
         plan_.chunks);
    bool events = false;
    for (int i = 0; i < program_.n_instructions; ++i) {
      events = events || (fixed_[i] && watched(program_.instructions[i]));
    }
    line("  static constexpr bool kFixedEvents = %s;", events ? "true" : "false");
    if (!folds()) {
      line("  static constexpr bool kTiles = %s, kSpots = %s, kOnce = %s;", plan_.tiles ? "true" : "false",
           has_spots() ? "true" : "false", once() != 0 ? "true" : "false");
    }
    line("  using Index = %s;", plan_.wide_index ? "std::uint64_t" : "std::uint32_t");
    line("  using Offset = %s;", plan_.wide_offset ? "std::int64_t" : "std::int32_t");
    line("  using Arguments = JitArguments<%d, %d, %d>;", plan_.n_operands, std::max(1, plan_.n_outer + plan_.n_inner),
         std::max<int>(1, plan_.n_constants));
    line("  using Events = %s;", plan_.events ? "WatchedEvents" : "NoEvents");
    if (folds()) {
      line("  static constexpr Op kFold = Op::%s;", op_info(plan_.fold).name);
      line("  using Value = %s;", c_type(plan_.fold_type));
      line("  static constexpr int kFoldSlot = %d;", plan_.fold_slot == kNoFpSlot ? -1 : plan_.fold_slot);
      line("  static constexpr bool kHasInitial = %s, kStores = %s, kSingle = %s, kWholePacks = %s;",
           plan_.has_initial ? "true" : "false", stores_.empty() ? "false" : "true", plan_.single ? "true" : "false",
           plan_.whole_rows ? "true" : "false");
      line("  static constexpr bool kPasses = %s;", passes() ? "true" : "false");
    }
    line("  struct Inputs {");
    for (const int k : loads_) line("    %s x%d;", c_type(plan_.operands[k].dtype), k);
    line("  };");
    line("  struct Outputs {");
    for (std::size_t s = 0; s < stores_.size(); ++s) {
      line("    %s y%zu;", c_type(stores_[s].type), s);
      if (stores_[s].masked) line("    bool m%zu;", s);
    }
    if (folds()) line("    Value value;");
    line("  };");
    blank();
  }

  // ---- addresses

  /// The coordinates that some operand needs.
  void write_place() {
    line("  struct Place {");
    line("    Index outer, inner;");
    if (nd_outer_) line("    Coordinates<Index, %d> o;", plan_.n_outer);
    if (nd_inner_) line("    Coordinates<Index, %d> i;", plan_.n_inner);
    line("  };");
    line("  static __device__ __forceinline__ Place place(const Arguments& args, Index outer, Index inner) {");
    line("    Place at;");
    line("    at.outer = outer;");
    line("    at.inner = inner;");
    if (nd_outer_) line("    at.o = coordinates<0, %d>(args.dividers, outer);", plan_.n_outer);
    if (nd_inner_) {
      line("    at.i = coordinates<%d, %d>(args.dividers, inner);", plan_.n_outer, plan_.n_outer + plan_.n_inner);
    }
    line("    return at;");
    line("  }");
    if (!has_spots()) return;
    line("  static __device__ __forceinline__ Place place(const Arguments&, Index outer, const Spot<Index>& spot) {");
    line("    Place at;");
    line("    at.outer = outer;");
    line("    at.inner = spot.number;");
    if (nd_inner_) line("    at.i = {{spot.row, spot.column}};");
    line("    return at;");
    line("  }");
  }
  /// Elements of tiles over two dimensions come with their coordinates: nothing is divided, and what does not depend on
  /// the row is loaded once for all rows of the tile.
  std::uint32_t once() const {
    std::uint32_t operands = 0;
    for (const int k : loads_) operands |= (has_spots() && plan_.operands[k].once ? 1u : 0u) << k;
    return operands;
  }
  bool has_spots() const { return plan_.tiles && plan_.n_inner == 2; }

  static std::string offset(const std::string& index, int k, int d) {
    return " + static_cast<std::int64_t>(static_cast<Offset>(" + index + ") * static_cast<Offset>(args.strides[" +
           std::to_string(k) + "][" + std::to_string(d) + "]))";
  }

  std::string part(JitPart part, int k, int first, int last, const char* index, const char* coordinates) const {
    switch (part) {
      case JitPart::kFixed:
        return "";
      case JitPart::kUnit:
        return std::string(" + static_cast<std::uint64_t>(at.") + index + ") * " +
               std::to_string(itemsize(plan_.operands[k].dtype));
      case JitPart::kLinear:
        return offset(std::string("at.") + index, k, last - 1);
      default:
        break;
    }
    std::string text;
    for (int d = first; d < last; ++d) {
      text += offset(std::string("at.") + coordinates + ".at[" + std::to_string(d - first) + "]", k, d);
    }
    return text;
  }

  /// Where the operand's element at `at` lies.
  std::string address(int k) const {
    const JitAccess& access = plan_.operands[k];
    return "args.bases[" + std::to_string(k) + "]" + part(access.outer, k, 0, plan_.n_outer, "outer", "o") +
           part(access.inner, k, plan_.n_outer, plan_.n_outer + plan_.n_inner, "inner", "i");
  }

  /// Where the operand's neighbour number `lane` of the element at `at` lies.
  std::string lane_address(int k) const {
    const JitAccess& access = plan_.operands[k];
    const JitPart along = columns() ? access.outer : access.inner;
    if (along == JitPart::kFixed) return address(k);
    if (along == JitPart::kNd && !plan_.whole_rows) {
      std::string text = address(k);  // the neighbour may lie in the next row: it has coordinates of its own
      for (std::size_t found = 0; (found = text.find("at.", found)) != std::string::npos;) {
        if (found > 0 && text[found - 1] == '.') {  // of coordinates
          ++found;
          continue;
        }
        text.replace(found, 3, "places[lane].");
        found += 13;
      }
      return text;
    }
    const int last = columns() ? plan_.n_outer - 1 : plan_.n_outer + plan_.n_inner - 1;
    const JitPart step = along == JitPart::kNd ? access.last : along;
    if (step == JitPart::kFixed) return address(k);
    if (step == JitPart::kUnit) {
      return address(k) + " + lane * " + std::to_string(itemsize(access.dtype));
    }
    return address(k) + offset("lane", k, last);
  }

  bool wants_places() const { return !plan_.whole_rows && (columns() ? nd_outer_ : nd_inner_) && plan_.width > 1; }

  void write_places() {
    if (!wants_places()) return;
    line("    Place places[kWidth];");
    line("#pragma unroll");
    line("    for (int lane = 0; lane < kWidth; ++lane) places[lane] = place(args, %s);",
         columns() ? "outer + lane, inner" : "outer, inner + lane");
  }

  // ---- what is fixed

  void write_fix() {
    line("  struct Fixed {");
    for (int i = 0; i < program_.n_instructions; ++i) {
      const Instruction& in = program_.instructions[i];
      if (fixed_[i] && in.op != Op::kConst) line("    %s v%d;", c_type(result_of(in)), i);
    }
    line("  };");
    line("  template <class E>");
    line("  static __device__ __forceinline__ Fixed fix(const Arguments& args, [[maybe_unused]] E& events) {");
    line("    [[maybe_unused]] const Place at = place(args, 0, static_cast<Index>(0));");
    line("    Fixed fixed;");
    for (int i = 0; i < program_.n_instructions; ++i) {
      const Instruction& in = program_.instructions[i];
      if (!fixed_[i]) continue;
      if (in.op == Op::kLoad) {
        line("    const %s v%d = load_element<%s>(%s);", c_type(in.type), i, element(in.a).c_str(),
             address(in.a).c_str());
        write(in.dst, in.type, "v" + std::to_string(i));
      } else {
        write_instruction(i, nullptr);
      }
      if (in.op != Op::kConst) line("    fixed.v%d = v%d;", i, i);
    }
    line("    return fixed;");
    line("  }");
    for (Variable& variable : registers_) variable = {};
  }

  // ---- loads

  /// A reduction of all elements to one: what it reads is not read again soon.
  bool passes() const { return plan_.single && stores_.empty(); }

  /// The arguments of load_element and store_element.
  std::string element(int k) const {
    const JitAccess& access = plan_.operands[k];
    return std::string(c_type(access.dtype)) + (access.aligned ? ", true" : ", false");
  }

  void write_load() {
    line("  template <class I>");
    line("  static __device__ __forceinline__ void load(const Arguments& args, Index outer, I inner, Inputs& in) {");
    line("    [[maybe_unused]] const Place at = place(args, outer, inner);");
    for (const int k : loads_) {
      if (!is_active(k)) continue;
      line("    in.x%d = load_element<%s>(%s);", k, element(k).c_str(), address(k).c_str());
    }
    line("  }");
  }
  /// Stages load what they read, all others everything.
  bool is_active(int operand) const { return (active_ >> operand & 1) != 0; }

  void write_load_pack(const char* name) {
    line("  template <class I>");
    line("  static __device__ __forceinline__ void %s(const Arguments& args, Index outer, I %s,", name,
         passes() ? "by" : "inner");
    line("                                                   Inputs (&in)[kWidth]) {");
    if (passes()) line("    const Index inner = by.number;");
    line("    [[maybe_unused]] const Place at = place(args, outer, inner);");
    write_places();
    for (const int k : loads_) {  // all loads before the first use
      if (is_active(k) && plan_.operands[k].pack) {
        line("    const auto p%d = kernels::%s<%s, kWidth>(%s%s);", k, passes() ? "load_passing" : "load_pack",
             c_type(plan_.operands[k].dtype), address(k).c_str(), passes() ? ", by.policy" : "");
      }
    }
    line("#pragma unroll");
    line("    for (int lane = 0; lane < kWidth; ++lane) {");
    for (const int k : loads_) {
      if (!is_active(k)) continue;
      const char* type = c_type(plan_.operands[k].dtype);
      if (plan_.operands[k].pack) {
        line("      in[lane].x%d = from_memory<%s>(p%d.items[lane]);", k, type, k);
      } else {
        line("      in[lane].x%d = load_element<%s>(%s);", k, element(k).c_str(), lane_address(k).c_str());
      }
    }
    line("    }");
    line("  }");
  }

  // ---- instructions

  /// The register's variable, as `type`.
  std::string read(int reg, DType type) {
    if (reg >= kMaxRegisters || registers_[reg].name.empty()) {
      sound_ = false;
      return "0";
    }
    const Variable& variable = registers_[reg];
    if (variable.type == type) return variable.name;
    if (itemsize(type) > itemsize(variable.type)) sound_ = false;
    return std::string("read_register_as<") + c_type(type) + ">(" + variable.name + ")";
  }
  void write(int reg, DType type, const std::string& name) {
    if (reg >= kMaxRegisters) {
      sound_ = false;
      return;
    }
    registers_[reg] = {name, type};
  }
  bool watched(const Instruction& in) const { return plan_.events && in.fp_slot != kNoFpSlot; }

  void write_compute() {
    line("  template <class E>");
    line("  static __device__ __forceinline__ void compute(const Arguments& args, const Fixed& fixed, Index outer,");
    line("                                                 Index inner, const Inputs& in, Outputs& out, E& events) {");
    int stores = 0;
    for (int i = 0; i < program_.n_instructions; ++i) {
      const Instruction& in = program_.instructions[i];
      if (fixed_[i] && in.op != Op::kConst) {
        write(in.dst, result_of(in), "fixed.v" + std::to_string(i));
      } else {
        write_instruction(i, &stores);
      }
    }
    if (folds()) line("    out.value = %s;", read(plan_.fold_value, plan_.fold_type).c_str());
    line("  }");
  }

  void write_instruction(int i, int* stores) {
    const Instruction& in = program_.instructions[i];
    const std::string name = "v" + std::to_string(i);
    const char* type = c_type(in.type);
    const char* covered = covered_[i] ? "true" : "false";
    switch (in.op) {
      case Op::kLoad:
        return write(in.dst, in.type, "in.x" + std::to_string(in.a));
      case Op::kConst:
        line("    const %s %s = constant_value<%s>(args.constants[%d]);", type, name.c_str(), type, in.a);
        return write(in.dst, in.type, name);
      case Op::kIndex:
        line("    const std::int64_t %s = %sstatic_cast<std::int64_t>(inner);", name.c_str(),
             folds() ? "static_cast<std::int64_t>(outer) * args.head.length + " : "");
        return write(in.dst, DType::kI64, name);
      case Op::kCast:
        return write_cast(in, name, covered);
      case Op::kSelect:
        line("    const %s %s = %s ? %s : %s;", type, name.c_str(), read(in.a, DType::kBool).c_str(),
             read(in.b, in.type).c_str(), read(in.c, in.type).c_str());
        return write(in.dst, in.type, name);
      case Op::kStore:
        line("    out.y%d = %s;", *stores, read(in.a, in.type).c_str());
        if (in.c != kNoRegister) line("    out.m%d = %s;", *stores, read(in.c, DType::kBool).c_str());
        ++*stores;
        return;
      default:
        return write_ufunc(i, name, covered);
    }
  }

  void write_cast(const Instruction& in, const std::string& name, const char* covered) {
    const std::string a = read(in.a, in.type);
    line("    const %s %s = sem::convert<%s>(%s);", c_type(in.to), name.c_str(), c_type(in.to), a.c_str());
    if (watched(in)) {
      line("    events.template see_cast<%s, %s, %d, %s>(%s, %s);", c_type(in.type), c_type(in.to), in.fp_slot, covered,
           name.c_str(), a.c_str());
    }
    write(in.dst, in.to, name);
  }

  void write_ufunc(int i, const std::string& name, const char* covered) {
    const Instruction& in = program_.instructions[i];
    const OpInfo& info = op_info(in.op);
    const DType result = op_result_type(in.op, in.type);
    const std::string a = read(in.a, in.type);
    const DType b_type = in.op == Op::ldexp ? DType::kI64 : in.type;
    const std::string b = info.n_inputs > 1 ? read(in.b, b_type) : a;
    const std::string c = info.n_inputs > 2 ? read(in.c, in.type) : a;
    const int twin = twin_[i];
    if (twin >= 0) {
      if (twin > i) {
        line("    const SineCosine<%s> both%d = sine_cosine(%s);", c_type(in.type), i, a.c_str());
      }
      line("    const %s %s = both%d.%s;", c_type(result), name.c_str(), std::min(i, twin), info.name);
    } else {
      line("    const %s %s = UfuncRow<Op::%s>::apply<%s>(%s, %s, %s);", c_type(result), name.c_str(), info.name,
           c_type(in.type), a.c_str(), b.c_str(), c.c_str());
    }
    if (watched(in)) {
      line("    events.template see<Op::%s, %s, %d, %s>(%s, %s, %s);", info.name, c_type(in.type), in.fp_slot, covered,
           name.c_str(), a.c_str(), b.c_str());
    }
    write(in.dst, result, name);
  }

  // ---- stores

  void write_store() {
    line("  template <class I>");
    line("  static __device__ __forceinline__ void store(const Arguments& args, Index outer, I inner,");
    line("                                               const Outputs& out) {");
    line("    [[maybe_unused]] const Place at = place(args, outer, inner);");
    for (std::size_t s = first_store_; s < std::min(stores_.size(), end_store_); ++s) {
      if (stores_[s].masked) line("    if (out.m%zu)", s);
      const int k = stores_[s].operand;
      line("    store_element<%s>(%s, out.y%zu);", element(k).c_str(), address(k).c_str(), s);
    }
    line("  }");
  }

  void write_store_pack() {
    line("  template <class I>");
    line("  static __device__ __forceinline__ void store_pack(const Arguments& args, Index outer, I inner,");
    line("                                                    const Outputs (&out)[kWidth]) {");
    line("    [[maybe_unused]] const Place at = place(args, outer, inner);");
    if (!stores_.empty()) write_places();
    for (std::size_t s = first_store_; s < std::min(stores_.size(), end_store_); ++s) {
      const Store& store = stores_[s];
      const char* type = c_type(store.type);
      if (!plan_.operands[store.operand].pack) {
        write_lane_stores(store, s);
        continue;
      }
      if (store.masked) {
        line("    bool all%zu = true;", s);
        line("#pragma unroll");
        line("    for (int lane = 0; lane < kWidth; ++lane) all%zu = all%zu && out[lane].m%zu;", s, s, s);
        line("    if (!all%zu) {", s);
        write_lane_stores(store, s);
        line("    } else");
      }
      line("    {");
      line("      Pack<%s, kWidth> pack;", type);
      line("#pragma unroll");
      line("      for (int lane = 0; lane < kWidth; ++lane) pack.items[lane] = out[lane].y%zu;", s);
      line("      kernels::store_pack<%s, kWidth>(%s, pack);", type, address(store.operand).c_str());
      line("    }");
    }
    line("  }");
  }

  void write_lane_stores(const Store& store, std::size_t s) {
    line("#pragma unroll");
    line("    for (int lane = 0; lane < kWidth; ++lane) {");
    if (store.masked) line("      if (out[lane].m%zu)", s);
    line("      store_element<%s>(%s, out[lane].y%zu);", element(store.operand).c_str(),
         lane_address(store.operand).c_str(), s);
    line("    }");
  }

  void write_store_result(int operand) {
    line("  static __device__ __forceinline__ void store_result(const Arguments& args, Index outer, Value value) {");
    line("    [[maybe_unused]] const Place at = place(args, outer, 0);");
    line("    store_element<%s>(%s, value);", element(operand).c_str(), address(operand).c_str());
    line("  }");
  }

  // ---- row programs

  /// Fills first_ (the first instruction that computes the same value) and kept_ (values of one stage that a later one
  /// reads: the thread keeps them with each element).
  void find_repeated() {
    int holds[kMaxRegisters] = {};  // the instruction whose value the register has
    const auto value_of = [&](int reg) { return reg < kMaxRegisters ? holds[reg] : 0; };
    int inputs[kMaxInstructions][3];
    for (int i = 0, s = 0; i < program_.n_instructions; ++i) {
      while (i >= plan_.stages[s].end) ++s;
      const Instruction& in = program_.instructions[i];
      const int n = inputs_of(in);
      stage_of_[i] = s;
      inputs[i][0] = n > 0 ? value_of(in.a) : in.a;
      inputs[i][1] = n > 1 ? value_of(in.b) : 0;
      inputs[i][2] = n > 2 ? value_of(in.c) : 0;
      if (in.op == Op::kStore && in.c != kNoRegister) inputs[i][1] = value_of(in.c);
      first_[i] = i;
      for (int j = 0; j < i && in.op != Op::kStore; ++j) {
        const Instruction& other = program_.instructions[j];
        if (other.op == in.op && other.type == in.type && other.to == in.to && other.fp_slot == in.fp_slot &&
            std::equal(inputs[i], inputs[i] + 3, inputs[j])) {
          first_[i] = first_[j];
          break;
        }
      }
      if (in.op != Op::kStore && in.dst < kMaxRegisters) holds[in.dst] = first_[i];
      if (stage_of_[first_[i]] < s) continue;
      const int reads = in.op == Op::kStore ? (in.c != kNoRegister ? 2 : 1) : n;
      for (int k = 0; k < reads; ++k) {
        const int from = inputs[i][k];
        const Op op = program_.instructions[from].op;
        if (stage_of_[from] < s && op != Op::kLoad && op != Op::kConst) kept_[from] = true;
      }
    }
  }
  /// Registers that the instruction reads; a store's are two, and not counted.
  static int inputs_of(const Instruction& in) {
    if (in.op == Op::kStore) return 1;
    if (in.op == Op::kCast) return 1;
    if (in.op == Op::kSelect) return 3;
    return static_cast<int>(in.op) <= static_cast<int>(Op::kSelect) ? 0 : op_info(in.op).n_inputs;
  }
  DType result_of(const Instruction& in) const {
    if (in.op == Op::kCast) return in.to;
    return static_cast<int>(in.op) <= static_cast<int>(Op::kSelect) ? in.type : op_result_type(in.op, in.type);
  }

  void write_row_kernel() {
    line("#include \"kernels/jit_prelude.cuh\"");
    blank();
    line("namespace gpushim::kernels {");
    blank();
    line("struct Fused {");
    line("  static constexpr int kThreads = %d, kGroup = %d, kWidth = %d, kChunks = %d;", plan_.threads, plan_.group,
         plan_.width, plan_.chunks);
    line("  static constexpr bool kHeld = %s;", plan_.held ? "true" : "false");
    line("  static constexpr int kFull = %d;", plan_.full);
    line("  using Index = %s;", plan_.wide_index ? "std::uint64_t" : "std::uint32_t");
    line("  using Offset = %s;", plan_.wide_offset ? "std::int64_t" : "std::int32_t");
    line("  using Arguments = JitArguments<%d, %d, %d>;", plan_.n_operands, std::max(1, plan_.n_outer + plan_.n_inner),
         std::max<int>(1, plan_.n_constants));
    line("  using Events = %s;", plan_.events ? "WatchedEvents" : "NoEvents");
    line("  struct Inputs {");
    for (const int k : loads_) line("    %s x%d;", c_type(plan_.operands[k].dtype), k);
    line("  };");
    line("  struct Folded {");
    for (int s = 0; s < plan_.n_stages; ++s) {
      if (plan_.stages[s].folds) line("    %s f%d;", c_type(plan_.stages[s].type), s);
    }
    line("  };");
    line("  struct Kept {");
    for (int i = 0; i < program_.n_instructions && plan_.held; ++i) {
      if (kept_[i]) line("    %s k%d;", c_type(result_of(program_.instructions[i])), i);
    }
    line("  };");
    line("  struct Outputs {");
    for (std::size_t s = 0; s < stores_.size(); ++s) {
      line("    %s y%zu;", c_type(stores_[s].type), s);
      if (stores_[s].masked) line("    bool m%zu;", s);
    }
    line("  };");
    write_place();
    write_load();
    write_load_pack("load_pack");
    for (int s = 0; s < plan_.n_stages; ++s) write_stage(s);
    text_ += "  using Stages = StageList<";
    for (int s = 0; s < plan_.n_stages; ++s) text_ += (s > 0 ? ", Stage" : "Stage") + std::to_string(s);
    text_ += ">;\n";
    line("};");
    blank();
    write_kernel(kJitMainKernel, "run_rows<Fused>");
    line("}  // namespace gpushim::kernels");
  }

  void write_stage(int s) {
    const RowStage& stage = plan_.stages[s];
    const int begin = s == 0 ? 0 : plan_.stages[s - 1].end;
    line("  struct Stage%d {", s);
    line("  static constexpr bool kFolds = %s;", stage.folds ? "true" : "false");
    active_ = 0;
    first_store_ = end_store_;
    if (s == 0) first_store_ = 0;
    end_store_ = first_store_;
    for (int i = begin; i < stage.end; ++i) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::kLoad) active_ |= 1u << in.a;
      if (in.op == Op::kStore && fold_of(in.b) < 0) ++end_store_;
    }
    line("  static constexpr bool kStores = %s;", end_store_ > first_store_ ? "true" : "false");
    if (stage.folds) {
      line("  static constexpr Op kFold = Op::%s;", op_info(stage.op).name);
      line("  using Value = %s;", c_type(stage.type));
      line("  static constexpr int kFoldSlot = %d, kInitial = %d;",
           !plan_.events || stage.fp_slot == kNoFpSlot ? -1 : stage.fp_slot,
           stage.initial == kNoRegister ? -1 : stage.initial);
      write_store_result(stage.result);
      line("  static __device__ __forceinline__ void set(Folded& folded, Value value) { folded.f%d = value; }", s);
    } else {
      line("  using Value = char;");
    }
    write_load();
    write_load_pack("load_pack");
    write_stage_code(s, begin, false);
    if (plan_.held) write_stage_code(s, begin, true);
    write_store();
    write_store_pack();
    line("  };");
  }

  /// held: takes from `kept` what earlier stages computed, and leaves there what later ones need.
  void write_stage_code(int s, int begin, bool held) {
    const RowStage& stage = plan_.stages[s];
    line("  template <class E>");
    line("  static __device__ __forceinline__ void %s(const Arguments& args, const Folded& folded, const Inputs& in,",
         held ? "compute" : "compute_again");
    line("      %sOutputs& out, Value& value, E& events) {", held ? "Kept& kept, " : "");
    for (Variable& variable : registers_) variable = {};
    auto stores = static_cast<int>(first_store_);
    for (int i = begin; i < stage.end; ++i) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::kLoad && fold_of(in.a) >= 0) {
        write(in.dst, in.type, "folded.f" + std::to_string(fold_of(in.a)));
        continue;
      }
      if (in.op == Op::kStore && fold_of(in.b) >= 0) {
        line("    value = %s;", read(in.a, stage.type).c_str());
        continue;
      }
      const bool machine = in.op == Op::kLoad || in.op == Op::kConst || in.op == Op::kStore;
      if (held && !machine && stage_of_[first_[i]] < s) {  // unless it was kept, only repeated ones read it
        write(in.dst, result_of(in), "kept.k" + std::to_string(first_[i]));
        continue;
      }
      write_instruction(i, &stores);
      if (held && kept_[i]) line("    kept.k%d = v%d;", i, i);
    }
    line("  }");
  }

  // ---- kernels

  /// Blocks of a multiprocessor, which bound the registers of a thread: as many as the program's values leave room for.
  int blocks_at_once() const {
    const int words = most_alive() * plan_.width * (plan_.fold_dims > 0 ? 1 : std::min<int>(plan_.chunks, 2));
    if (words <= 40) return 4;  // 64 registers
    // Where computing takes longer than loading, threads that hide each other's latency are worth more than registers.
    // Of doubles, even if some are spilled; the functions of floats need few registers, but not so few.
    if (!folds() && cost() > 100) return has_wide_values() ? 5 : 4;  // 48 registers, or 64
    if (words <= 56) return 3;                                       // 80
    return words <= 80 ? 2 : 1;                                      // 128, 255
  }
  /// The same for a row program, whose threads have what they hold besides what they compute with.
  int row_blocks_at_once() const {
    std::size_t bytes = 0;
    for (const int k : loads_) {
      if (plan_.operands[k].inner != JitPart::kFixed) bytes += itemsize(plan_.operands[k].dtype);
    }
    for (int i = 0; i < program_.n_instructions && plan_.held; ++i) {
      if (kept_[i]) bytes += itemsize(result_of(program_.instructions[i]));
    }
    const int registers = 24 + static_cast<int>(bytes / 4) * plan_.width * plan_.chunks;
    return std::clamp(65536 / (registers * plan_.threads), 1, 2048 / plan_.threads);
  }
  bool has_wide_values() const {
    const Instruction* const end = program_.instructions + program_.n_instructions;
    return std::any_of(program_.instructions, end, [](const Instruction& in) { return itemsize(in.type) > 4; });
  }
  int cost() const {
    int sum = 0;
    for (int i = 0; i < program_.n_instructions; ++i) {
      const Op op = program_.instructions[i].op;
      if (static_cast<int>(op) > static_cast<int>(Op::kSelect)) sum += op_info(op).cost;
    }
    return sum;
  }
  /// 32-bit words of the values that are alive at once, at most.
  int most_alive() const {
    int alive[kMaxRegisters] = {};
    int sum = 0, most = 0;
    const auto use = [&](int reg, DType type) {
      if (reg >= kMaxRegisters || alive[reg] != 0) return;
      alive[reg] = std::max<int>(1, static_cast<int>(itemsize(type) / 4));
      sum += alive[reg];
    };
    if (folds()) use(plan_.fold_value, plan_.fold_type);
    for (int i = program_.n_instructions; i-- > 0; most = std::max(most, sum)) {
      const Instruction& in = program_.instructions[i];
      if (in.op == Op::kStore) {
        use(in.a, in.type);
        if (in.c != kNoRegister) use(in.c, DType::kBool);
        continue;
      }
      if (in.dst < kMaxRegisters) {
        sum -= alive[in.dst];
        alive[in.dst] = 0;
      }
      const bool machine = static_cast<int>(in.op) <= static_cast<int>(Op::kSelect);
      const int inputs = in.op == Op::kCast ? 1 : in.op == Op::kSelect ? 3 : machine ? 0 : op_info(in.op).n_inputs;
      if (inputs > 0) use(in.a, in.op == Op::kSelect ? DType::kBool : in.type);
      if (inputs > 1) use(in.b, in.type);
      if (inputs > 2) use(in.c, in.type);
    }
    return most;
  }

  void write_kernels() {
    const char* body = plan_.kind == JitKind::kElements     ? "run_elements<Fused>"
                       : plan_.kind == JitKind::kRowsByWarp ? "fold_rows<Fused, 32>"
                       : plan_.kind == JitKind::kColumns    ? "fold_columns<Fused>"
                                                            : "fold_rows<Fused, kFoldThreads>";
    write_kernel(kJitMainKernel, body);
    if (folds() && !plan_.single) write_kernel(kJitStatesKernel, "fold_states<Fused>");
  }
  void write_kernel(const char* name, const char* body) {
    line("extern \"C\" __global__ void __launch_bounds__(%d, %d)", jit_threads(plan_),
         plan_.n_stages > 0 ? row_blocks_at_once() : blocks_at_once());
    line("    %s(const __grid_constant__ Fused::Arguments args) {", name);
    line("  %s(args);", body);
    line("}");
    blank();
  }

  const Program& program_;
  const JitPlan& plan_;
  std::string text_;
  std::vector<int> loads_;  ///< operands, in order
  std::vector<Store> stores_;
  std::uint32_t loaded_ = 0;
  std::uint32_t active_ = ~0u;                                 ///< operands that load and load_pack load
  std::size_t first_store_ = 0, end_store_ = ~std::size_t{0};  ///< of stores_, those that store and store_pack store
  bool fixed_[kMaxInstructions] = {};                          ///< the same for all elements; of row programs, none
  int twin_[kMaxInstructions];         ///< the cosine of a sine's argument and the other way round, or -1
  int source_[kMaxInstructions] = {};  ///< of a sine or cosine: the instruction of its argument
  int first_[kMaxInstructions] = {}, stage_of_[kMaxInstructions] = {};
  bool kept_[kMaxInstructions] = {};
  bool nd_outer_ = false, nd_inner_ = false;
  Variable registers_[kMaxRegisters];
  bool covered_[kMaxInstructions] = {};
  bool sound_ = true;
};

}  // namespace

JitSource write_source(const Program& program, const JitPlan& plan) { return Writer(program, plan).write(); }

}  // namespace gpushim::kernels
