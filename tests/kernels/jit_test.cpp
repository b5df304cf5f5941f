// The JIT without a GPU: signatures, sources that compile, the cache on disk.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/jit_cache.h"
#include "kernels/jit_compiler.h"
#include "kernels/jit_plan.h"
#include "kernels/jit_source.h"
#include "program_builder.h"

namespace gpushim::kernels::testing {
namespace {

constexpr int kMultiprocessors = 132;

/// z = sqrt(x*x + y) over n float64; addresses need not exist.
Program example(std::int64_t n, std::uintptr_t base = 1 << 20, double scale = 1.0) {
  ProgramBuilder b({n});
  const int x = b.operand(reinterpret_cast<double*>(base), {1});
  const int y = b.operand(reinterpret_cast<double*>(base + (1 << 20)), {1});
  const int z = b.operand(reinterpret_cast<double*>(base + (2 << 20)), {1});
  b.load(0, x);
  b.load(1, y);
  b.constant(2, scale);
  b.apply(Op::multiply, DType::kF64, 3, 0, 0);
  b.apply(Op::multiply, DType::kF64, 3, 3, 2);
  b.apply(Op::add, DType::kF64, 4, 3, 1);
  b.apply(Op::sqrt, DType::kF64, 5, 4);
  b.store(z, 5);
  b.program.fp_status = 64;
  return b.program;
}

JitSignature signature_of(const Program& program) {
  JitPlan plan;
  JitCall call;
  EXPECT_TRUE(plan_program(program, kMultiprocessors, &plan, &call));
  return sign(program, plan);
}

TEST(JitSignature, LeavesOutShapesAddressesAndConstants) {
  const JitSignature signature = signature_of(example(1000));
  EXPECT_EQ(signature, signature_of(example(1000)));
  EXPECT_EQ(signature, signature_of(example(77777, 1 << 24, 3.5)));
}

TEST(JitSignature, HoldsTypesLayoutsOperationsAndEvents) {
  const JitSignature signature = signature_of(example(1000));
  Program p = example(1000);
  p.instructions[6].op = Op::exp;
  EXPECT_FALSE(signature == signature_of(p));
  p = example(1000);
  p.operands[0].strides[0] = 16;
  EXPECT_FALSE(signature == signature_of(p));
  p = example(1000);
  p.operands[0].strides[0] = 0;
  EXPECT_FALSE(signature == signature_of(p));
  p = example(1000);
  p.operands[1].base += 8;
  EXPECT_FALSE(signature == signature_of(p));
  p = example(std::int64_t(1) << 31);
  EXPECT_FALSE(signature == signature_of(p));
  p = example(1000);
  p.instructions[3].fp_slot = 2;
  EXPECT_FALSE(signature == signature_of(p));
  const JitSignature slots_count = signature_of(p);
  p.fp_status = 0;
  EXPECT_FALSE(signature == signature_of(p));
  EXPECT_FALSE(slots_count == signature_of(p));
  Program quiet = example(1000);
  quiet.fp_status = 0;
  EXPECT_EQ(signature_of(quiet), signature_of(p));  // slots do not count when nobody asks
}

TEST(JitPlan, WidthFollowsTheWidestOperandThatIsAligned) {
  JitPlan plan;
  JitCall call;
  ASSERT_TRUE(plan_program(example(1000), kMultiprocessors, &plan, &call));
  EXPECT_EQ(plan.width, 2);
  EXPECT_EQ(plan.kind, JitKind::kElements);
  EXPECT_TRUE(plan.operands[0].pack && plan.operands[2].pack);
  Program p = example(1000);
  p.operands[1].base += 8;  // one operand is not
  ASSERT_TRUE(plan_program(p, kMultiprocessors, &plan, &call));
  EXPECT_EQ(plan.width, 2);
  EXPECT_FALSE(plan.operands[1].pack);
  for (int i = 0; i < 3; ++i) p.operands[i].base = (1 << 20) + 8;
  ASSERT_TRUE(plan_program(p, kMultiprocessors, &plan, &call));
  EXPECT_EQ(plan.width, 1);
}

TEST(JitPlan, LeavesStrictFoldsAndReloadsToTheInterpreter) {
  JitPlan plan;
  JitCall call;
  Program p = example(1000);
  p.reduction = {Op::subtract, DType::kF64, 1, 5, 2, false, true, {0, 0}};
  EXPECT_FALSE(plan_program(p, kMultiprocessors, &plan, &call));
  p = example(1000);
  p.instructions[p.n_instructions++] = {Op::kLoad, DType::kF64, DType::kF64, 6, 2, 0, kNoRegister};
  EXPECT_FALSE(plan_program(p, kMultiprocessors, &plan, &call));
  p = example(0);
  EXPECT_FALSE(plan_program(p, kMultiprocessors, &plan, &call));
}

// ---- sources

class JitSources : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    compiler_ = JitCompiler::open(&why);
    if (compiler_ == nullptr) GTEST_SKIP() << why;
  }
  void expect_compiles(const Program& program) {
    JitPlan plan;
    JitCall call;
    ASSERT_TRUE(plan_program(program, kMultiprocessors, &plan, &call));
    source_ = write_source(program, plan);
    ASSERT_FALSE(source_.text.empty());
    std::string cubin, log;
    EXPECT_TRUE(compiler_->compile(source_, 90, &cubin, &log)) << log << source_.text;
    EXPECT_GT(cubin.size(), 1000u);
  }
  std::unique_ptr<JitCompiler> compiler_;
  JitSource source_;  ///< of the last program
};

TEST_F(JitSources, ElementsCompile) { expect_compiles(example(1000)); }

/// Every operation for every type, without results: the front end still checks the expressions.
TEST_F(JitSources, EveryOperationCompiles) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = static_cast<DType>(t);
    const auto size = static_cast<std::int64_t>(itemsize(type));
    Program p = example(1000);
    p.fp_status = 0;
    p.n_instructions = 0;
    for (int i = 0; i < 3; ++i) p.operands[i] = {std::uintptr_t(1 + i) << 20, {size}, type};
    p.operands[3] = {std::uintptr_t(4) << 20, {8}, DType::kI64};
    p.n_operands = 4;
    const auto add = [&](Op op, DType of, int dst, int a, int b = 0, int c = kNoRegister) {
      p.instructions[p.n_instructions++] = {op,
                                            of,
                                            of,
                                            static_cast<std::uint8_t>(dst),
                                            static_cast<std::uint8_t>(a),
                                            static_cast<std::uint8_t>(b),
                                            static_cast<std::uint8_t>(c)};
    };
    add(Op::kLoad, type, 0, 0);
    add(Op::kLoad, type, 2, 1);
    add(Op::kLoad, DType::kI64, 4, 3);
    for (int op = static_cast<int>(Op::kSelect) + 1; op < static_cast<int>(Op::kCount); ++op) {
      if ((op_info(static_cast<Op>(op)).types >> t & 1) == 0) continue;
      add(static_cast<Op>(op), type, 6, 0, static_cast<Op>(op) == Op::ldexp ? 4 : 2, 0);
    }
    add(Op::kStore, type, 0, 2, 2);
    SCOPED_TRACE(dtype_name(type));
    expect_compiles(p);
  }
}

TEST_F(JitSources, ReductionsAndLayoutsCompile) {
  ProgramBuilder b({50, 60, 70});
  auto* base = reinterpret_cast<float*>(1 << 20);
  const int x = b.operand(base, {1, 50, 3000});
  const int y = b.operand(base, {0, 70, 1});
  const int z = b.operand(reinterpret_cast<bool*>(1 << 22), {4200, 70, 1});
  const int r = b.operand(base, {60, 1, 0});
  b.load(0, x);
  b.load(1, y);
  b.apply(Op::multiply, DType::kF32, 2, 0, 1);
  b.apply(Op::less, DType::kF32, 3, 0, 1);
  b.store(z, 3, 3);
  Program p = b.program;
  p.fp_status = 64;
  expect_compiles(p);
  for (int folded = 1; folded <= 3; ++folded) {
    b.reduce(Op::add, DType::kF32, folded, 2, r);
    p = b.program;
    p.fp_status = 64;
    SCOPED_TRACE(folded);
    expect_compiles(p);
  }
}

TEST_F(JitSources, FoldsToOneResultCompile) {
  for (const bool summed_by_rows : {false, true}) {
    ProgramBuilder b({3000, 4000});
    const int x = b.operand(reinterpret_cast<double*>(1l << 32), {4000, 1});
    const int y = b.operand(reinterpret_cast<float*>(2l << 32), {4000, 1});
    const int r = b.operand(reinterpret_cast<double*>(3l << 32), {summed_by_rows ? 1 : 0, 0});
    b.load(0, x);
    b.load(1, y);
    b.cast(1, 1, DType::kF32, DType::kF64);
    b.apply(Op::multiply, DType::kF64, 2, 0, 1);
    b.reduce(Op::add, DType::kF64, summed_by_rows ? 1 : 2, 2, r);
    b.program.fp_status = 64;
    SCOPED_TRACE(summed_by_rows);
    expect_compiles(b.program);
    // Only a fold to one result reads its operands once, so that they may pass through the L2 cache.
    EXPECT_EQ(source_.text.find("load_passing") != std::string::npos, !summed_by_rows);
  }
}

// ---- row programs

/// The three programs of a softmax over the last axis, addresses need not exist.
struct Softmax {
  static constexpr std::uintptr_t kX = 1l << 32, kMaximum = 2l << 32, kSum = 3l << 32, kY = 4l << 32;
  std::vector<Program> programs;

  template <class T>
  static Softmax of(std::int64_t rows, std::int64_t length, std::uintptr_t y = kY) {
    constexpr DType type = kDTypeOf<T>;
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<T*>(address); };
    Softmax softmax;
    for (int stage = 0; stage < 3; ++stage) {
      ProgramBuilder b({rows, length});
      const int x = b.operand(at(kX), {length, 1});
      b.load(0, x);
      if (stage > 0) {
        b.load(1, b.operand(at(kMaximum), {1, 0}));
        b.apply(Op::subtract, type, 0, 0, 1);
        b.apply(Op::exp, type, 0, 0);
      }
      if (stage == 0) b.reduce(Op::maximum, type, 1, 0, b.operand(at(kMaximum), {1}));
      if (stage == 1) b.reduce(Op::add, type, 1, 0, b.operand(at(kSum), {1}));
      if (stage == 2) {
        b.load(1, b.operand(at(kSum), {1, 0}));
        b.apply(Op::divide, type, 2, 0, 1);
        b.store(b.operand(at(y), {length, 1}), 2);
      }
      b.program.fp_status = 64;
      softmax.programs.push_back(b.program);
    }
    return softmax;
  }
  bool combine(RowProgram* rows) const {
    const Program* stages[kMaxStages];
    for (std::size_t i = 0; i < programs.size(); ++i) stages[i] = &programs[i];
    return combine_rows(stages, static_cast<int>(programs.size()), rows);
  }
};

TEST(RowPrograms, ReadTheirInputOnceAndFoldResultsAsValues) {
  RowProgram rows;
  ASSERT_TRUE(Softmax::of<double>(1000, 3162).combine(&rows));
  EXPECT_EQ(rows.program.n_operands, 4);
  JitPlan plan;
  JitCall call;
  ASSERT_TRUE(plan_rows(rows, kMultiprocessors, &plan, &call));
  EXPECT_TRUE(plan.held);
  EXPECT_EQ(call.blocks, 1000);
  EXPECT_GE(plan.group * plan.chunks * plan.width, 3162);
  const std::string source = write_source(rows.program, plan).text;
  EXPECT_NE(source.find("kept.k"), std::string::npos);  // exp(x - m)
  EXPECT_NE(source.find("folded.f1"), std::string::npos);
}

TEST(RowPrograms, ShareABlockWhenRowsAreShort) {
  RowProgram rows;
  ASSERT_TRUE(Softmax::of<float>(1000, 40).combine(&rows));
  JitPlan plan;
  JitCall call;
  ASSERT_TRUE(plan_rows(rows, kMultiprocessors, &plan, &call));
  EXPECT_LE(plan.group, 32);
  EXPECT_EQ(call.blocks, (1000 + plan.threads / plan.group - 1) / (plan.threads / plan.group));
}

TEST(RowPrograms, MayReplaceTheirInputButNothingElseThatIsRead) {
  RowProgram rows;
  EXPECT_TRUE(Softmax::of<double>(1000, 100, Softmax::kX).combine(&rows));
  EXPECT_FALSE(Softmax::of<double>(1000, 100, Softmax::kX + 8).combine(&rows));
  EXPECT_FALSE(Softmax::of<double>(1000, 100, Softmax::kSum - 8).combine(&rows));
  Softmax late = Softmax::of<double>(1000, 100, Softmax::kX);
  late.programs.push_back(late.programs[0]);  // a fold of what was replaced
  late.programs.back().operands[1].base += 1 << 16;
  EXPECT_FALSE(late.combine(&rows));
}

TEST(RowPrograms, RefuseColumnsOtherSpacesAndStrangers) {
  RowProgram rows;
  JitPlan plan;
  JitCall call;
  Softmax other = Softmax::of<double>(1000, 100);
  other.programs[2] = Softmax::of<double>(500, 200).programs[2];
  EXPECT_FALSE(other.combine(&rows));
  Softmax columns = Softmax::of<double>(1000, 100);
  for (Program& p : columns.programs) {
    for (int i = 0; i < p.n_operands; ++i) {
      if (p.operands[i].strides[1] != 0) p.operands[i].strides[0] = 8, p.operands[i].strides[1] = 8000;
    }
  }
  ASSERT_TRUE(columns.combine(&rows));
  EXPECT_FALSE(plan_rows(rows, kMultiprocessors, &plan, &call));
  Softmax strangers = Softmax::of<double>(1000, 100);
  strangers.programs = {strangers.programs[0], Softmax::of<double>(1000, 100).programs[0]};
  strangers.programs[1].operands[0].base += 5l << 32;
  strangers.programs[1].operands[1].base += 1 << 16;
  EXPECT_FALSE(strangers.combine(&rows));
}

TEST_F(JitSources, RowProgramsCompile) {
  for (const std::int64_t length : {5, 40, 300, 3162, 100000}) {
    for (const bool wide : {false, true}) {
      const Softmax softmax = wide ? Softmax::of<double>(1000, length) : Softmax::of<float>(1000, length);
      RowProgram rows;
      ASSERT_TRUE(softmax.combine(&rows));
      JitPlan plan;
      JitCall call;
      ASSERT_TRUE(plan_rows(rows, kMultiprocessors, &plan, &call));
      EXPECT_EQ(plan.held, length < 100000);
      const JitSource source = write_source(rows.program, plan);
      std::string cubin, log;
      EXPECT_TRUE(compiler_->compile(source, 90, &cubin, &log)) << log << source.text;
    }
  }
}

TEST(JitSource, WatchesOnlyResultsThatNoLaterOneShows) {
  Program p = example(1000);
  JitPlan plan;
  JitCall call;
  ASSERT_TRUE(plan_program(p, kMultiprocessors, &plan, &call));
  const std::string chain = write_source(p, plan).text;
  EXPECT_NE(chain.find("see<Op::multiply, double, 0, true>"), std::string::npos);
  EXPECT_NE(chain.find("see<Op::add, double, 0, true>"), std::string::npos);
  EXPECT_NE(chain.find("see<Op::sqrt, double, 0, false>"), std::string::npos);
  p.instructions[6].op = Op::exp;  // of -infinity it is 0: the sum has to be watched
  const std::string broken = write_source(p, plan).text;
  EXPECT_NE(broken.find("see<Op::multiply, double, 0, true>"), std::string::npos);
  EXPECT_NE(broken.find("see<Op::add, double, 0, false>"), std::string::npos);
}

TEST(JitSource, RefusesRegistersThatWereNotWritten) {
  Program p = example(1000);
  p.instructions[5].a = 9;
  JitPlan plan;
  JitCall call;
  ASSERT_TRUE(plan_program(p, kMultiprocessors, &plan, &call));
  EXPECT_TRUE(write_source(p, plan).text.empty());
}

// ---- the cache

class JitCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/gpushim_cache_XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static JitKey key_of(const std::string& text) {
    JitKey key{0, 0};
    add_to_key(&key, text);
    return key;
  }
  std::size_t entries() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++count;
    return count;
  }
  std::string folder_;
};

TEST_F(JitCacheTest, GivesBackWhatWasWritten) {
  const JitCache cache(folder_ + "/made/on/demand", 1 << 20);
  std::string cubin;
  EXPECT_TRUE(cache.is_empty());
  EXPECT_FALSE(cache.read(key_of("a"), &cubin));
  cache.write(key_of("a"), std::string(1000, 'x'));
  EXPECT_FALSE(cache.is_empty());
  cache.write(key_of("b"), "");
  ASSERT_TRUE(cache.read(key_of("a"), &cubin));
  EXPECT_EQ(cubin, std::string(1000, 'x'));
  ASSERT_TRUE(cache.read(key_of("b"), &cubin));
  EXPECT_EQ(cubin, "");
  EXPECT_FALSE(cache.read(key_of("c"), &cubin));
}

TEST_F(JitCacheTest, KeysDifferByContentAndByParts) {
  JitKey ab{0, 0}, a_b{0, 0};
  add_to_key(&ab, std::string("ab"));
  add_to_key(&a_b, std::string("a"));
  add_to_key(&a_b, std::string("b"));
  EXPECT_FALSE(ab.hi == a_b.hi && ab.lo == a_b.lo);
  EXPECT_NE(key_of("12345678").lo, key_of("12345679").lo);
}

TEST_F(JitCacheTest, IgnoresAndReplacesDamagedEntries) {
  const JitCache cache(folder_, 1 << 20);
  const JitKey key = key_of("k");
  const std::string good(5000, 'g');
  std::string cubin;
  const auto damage = [&](std::size_t at, std::size_t size) {
    cache.write(key, good);
    ASSERT_TRUE(cache.read(key, &cubin));
    std::filesystem::resize_file(cache.path(key), size);
    if (at < size) {
      std::fstream file(cache.path(key), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put('!');
    }
    EXPECT_FALSE(cache.read(key, &cubin)) << "at " << at << " of " << size;
  };
  cache.write(key, good);
  const std::size_t size = std::filesystem::file_size(cache.path(key));
  damage(0, size);         // magic
  damage(10, size);        // key
  damage(26, size);        // length
  damage(34, size);        // checksum
  damage(size - 1, size);  // content
  damage(size, size - 1);  // cut
  damage(20, 20);
  damage(0, 0);
  cache.write(key, good);
  EXPECT_TRUE(cache.read(key, &cubin));
}

TEST_F(JitCacheTest, EvictsWhatWasUsedLongestAgo) {
  const JitCache cache(folder_, 3500);
  const auto age = [&](const char* name, int hours) {
    std::filesystem::last_write_time(cache.path(key_of(name)),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  const std::string kilo(1000, 'k');
  cache.write(key_of("a"), kilo);
  cache.write(key_of("b"), kilo);
  cache.write(key_of("c"), kilo);
  age("a", 30);
  age("b", 20);
  age("c", 10);
  std::string cubin;
  EXPECT_TRUE(cache.read(key_of("a"), &cubin));  // and so it is used now
  std::ofstream(folder_ + "/dead.1.part") << "x";
  std::filesystem::last_write_time(folder_ + "/dead.1.part",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  cache.write(key_of("d"), kilo);
  EXPECT_FALSE(cache.read(key_of("b"), &cubin));
  EXPECT_TRUE(cache.read(key_of("a"), &cubin) && cache.read(key_of("c"), &cubin) && cache.read(key_of("d"), &cubin));
  EXPECT_EQ(entries(), 3u);
}

TEST_F(JitCacheTest, IsSilentWhereItCannotWrite) {
  std::ofstream(folder_ + "/file") << "x";
  const JitCache cache(folder_ + "/file/below", 1 << 20), none("", 1 << 20);
  std::string cubin;
  cache.write(key_of("a"), "text");
  EXPECT_FALSE(cache.read(key_of("a"), &cubin));
  none.write(key_of("a"), "text");
  EXPECT_FALSE(none.read(key_of("a"), &cubin));
}

TEST_F(JitCacheTest, ProcessesMayWriteTheSameEntriesAtOnce) {
  const auto work = [this](int seed) {
    const JitCache cache(folder_, 40000);  // evictions go on meanwhile
    std::string cubin;
    for (int round = 0; round < 300; ++round) {
      const int which = (round * 7 + seed) % 13;
      const std::string text(static_cast<std::size_t>(1000 + 300 * which), static_cast<char>('a' + which));
      const JitKey key = key_of(std::to_string(which));
      if (cache.read(key, &cubin)) {
        if (cubin != text) return 1;
      } else {
        cache.write(key, text);
      }
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(work(i));
    children.push_back(child);
  }
  int threads_failed = 0;
  std::thread thread([&] { threads_failed = work(9); });
  EXPECT_EQ(work(5), 0);
  thread.join();
  EXPECT_EQ(threads_failed, 0);
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace gpushim::kernels::testing
