// An allocation that fails in a region with a memory budget: what can be dropped is dropped, and the op tried once
// more.
#include <torch/library.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ac2/internal/report/shortage_note.h"
#include "ac2/memory_budget.h"
#include "ac2/names.h"
#include "ac2/report.h"
#include "tests/support/limited_allocator.h"
#include "tests/support/regions.h"

// As LibTorch's copy of oneDNN has it: the name is what tells the type.
namespace dnnl {
struct error : std::exception {
  const char* what() const noexcept override { return "could not create a primitive"; }
};
}  // namespace dnnl

namespace ac2::test {
namespace {

int primitives_to_refuse = 0;

at::Tensor convolve(const at::Tensor& x) {
  if (primitives_to_refuse > 0) {
    --primitives_to_refuse;
    throw dnnl::error();
  }
  return x.clone();
}

TORCH_LIBRARY(out_of_memory_test, library) {
  library.def("convolve(Tensor x) -> Tensor");
  library.impl("convolve", c10::DispatchKey::CPU, convolve);
}

constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * 4;
constexpr int64_t kNoLimit = int64_t{1} << 40;

class OutOfMemoryTest : public CleanTest {
 protected:
  LimitedAllocator& memory_ = LimitedAllocator::install();
};

TEST_F(OutOfMemoryTest, AStepThatDoesNotFitIsDoneWithWhatThereIs) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 40), x);
  std::shared_ptr<const Trace> trace;
  at::Tensor gradient;
  {
    const LimitedAllocator::Limit limit(memory_, 24 * kBytes);
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = kNoLimit});
      trace = scope.trace();
      y = sines(x, 40);
    }
    EXPECT_EQ(limit.refused(), 1);  // from then on the budget is below what there was
    gradient = gradient_of(y, x);
    EXPECT_EQ(limit.refused(), 1);
  }
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_GT(trace->stats().evicted_values, 0);
}

TEST_F(OutOfMemoryTest, AReplayIsTriedOnceMoreToo) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 24), x);
  at::Tensor y;
  {
    PolicyScope scope(Policy::constant(CheckpointPolicy::MUST_RECOMPUTE), {.memory_budget = kNoLimit});
    y = sines(x, 24);
  }
  at::Tensor gradient;
  {
    const LimitedAllocator::Limit limit(memory_, 12 * kBytes);
    gradient = gradient_of(y, x);
    EXPECT_EQ(limit.refused(), 1);
  }
  EXPECT_TRUE(same_bits(gradient, expected));
}

TEST_F(OutOfMemoryTest, AnOpForWhichOneDnnGetsNoMemoryIsTriedOnceMore) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("out_of_memory_test::convolve", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  at::Tensor x = sample({kElements});
  PolicyScope scope({.memory_budget = kNoLimit});
  const at::Tensor y = sines(x, 8);
  primitives_to_refuse = 1;
  op.call(x.detach());
  EXPECT_EQ(primitives_to_refuse, 0);
  EXPECT_GT(scope.trace()->stats().evicted_values, 0);
  primitives_to_refuse = 100;
  EXPECT_THROW(op.call(x.detach()), dnnl::error);
  primitives_to_refuse = 0;
}

TEST_F(OutOfMemoryTest, WhereNothingCanBeDroppedTheErrorArrives) {
  at::Tensor x = sample({kElements});
  {
    const LimitedAllocator::Limit limit(memory_, 8 * kBytes);
    expect_error(
        [&] {
          PolicyScope scope("must_save_all", {.memory_budget = kNoLimit});
          sines(x, 20);
        },
        {"out of memory"});
    expect_error(
        [&] {
          PolicyScope scope(Policy::constant(CheckpointPolicy::PREFER_SAVE));  // without a budget nothing can be
          sines(x, 20);
        },
        {"out of memory"});
  }
  expect_next_region_works();
}

TEST_F(OutOfMemoryTest, AnOpTooLargeByItselfFailsAndLosesNothing) {
  at::Tensor x = sample({kElements});
  at::Tensor expected = gradient_of(sines(x, 6), x);
  at::Tensor y;
  {
    const LimitedAllocator::Limit limit(memory_, 10 * kBytes);
    PolicyScope scope({.memory_budget = kNoLimit});
    y = sines(x, 6);
    expect_error([&] { at::outer(x, x); }, {"out of memory"});
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

// Half of the write, or of the draws, may have happened.
TEST_F(OutOfMemoryTest, AnOpThatWritesOrDrawsIsNotTriedAgain) {
  at::Tensor x = sample({kElements}).detach();
  at::Tensor values = at::empty({0}), indices = at::empty({0}, at::kLong);
  PolicyScope scope({.memory_budget = kNoLimit});
  at::Tensor held = sines(sample({kElements}), 4);
  const LimitedAllocator::Limit limit(memory_, 0);
  expect_error([&] { at::sort_out(values, indices, x); }, {"out of memory"});
  EXPECT_EQ(limit.refused(), 1);
  expect_error([&] { at::rand_like(x); }, {"out of memory"});
  EXPECT_EQ(limit.refused(), 2);
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(OutOfMemoryTest, TheErrorOfAnOpSaysWhatRegionsHoldAndWithWhichBudgetThereWouldHaveBeenRoom) {
  at::Tensor x = sample({kElements});
  const at::Tensor weight = sample({kElements});
  std::string error;
  {
    const LimitedAllocator::Limit limit(memory_, 8 * kBytes);
    PolicyScope scope("must_save_all");
    at::Tensor y = name_tensor(x * weight, "product");
    y = sines(y, 7);
    error = error_of([&] { sines(y, 2); });
  }
  EXPECT_EQ(count(error,
                  "On cpu ac2's regions hold 28.00 KiB for backward that nobody else refers to, in 7 tensors, and "
                  "share 12.00 KiB with the program"),
            1)
      << error;
  EXPECT_EQ(count(error, "4.00 KiB  \"product\": aten::mul.Tensor [1024] float"), 1) << error;
  EXPECT_EQ(count(error, "24.00 KiB  aten::sin [1024] float, 6 times"), 1) << error;
  EXPECT_EQ(
      count(error,
            "With a memory_budget of 24576 bytes (24.00 KiB), which these regions share, there would have "
            "been room for the 4.00 KiB that were asked for, unless malloc keeps what is dropped in pieces that are "
            "smaller."),
      1)
      << error;
}

TEST_F(OutOfMemoryTest, TheErrorNamesTheOpThatAsked) {
  at::Tensor x = sample({kElements});
  const LimitedAllocator::Limit limit(memory_, 8 * kBytes);
  PolicyScope scope("must_save_all");
  const at::Tensor y = sines(x, 3);
  const std::string of_typed = error_of([&] { sines(y, 20); });
  EXPECT_EQ(count(of_typed, "The memory was asked for by aten::sin of [1024] float.\n"), 1) << of_typed;
  const std::string of_boxed = error_of([&] { at::outer(x, x); });
  EXPECT_EQ(count(of_boxed, "The memory was asked for by aten::mul.Tensor of [1024, 1] float, [1024] float.\n"), 1)
      << of_boxed;
}

TEST_F(OutOfMemoryTest, TheErrorOfAnOpThatComputesEachRowByItselfNamesInChunks) {
  const at::Tensor rows = sample({64, 8}), words = sample({8, 256}), scores = sample({64, 256});
  PolicyScope scope("must_save_all");
  const at::Tensor held = sines(sample({kElements}), 3);
  const LimitedAllocator::Limit limit(memory_, 0);
  constexpr const char* kAdvice =
      "Each row of its result is computed by itself: in 2 chunks of rows, by ac2::in_chunks";
  const std::string of_product = error_of([&] { at::mm(rows, words); });
  EXPECT_EQ(count(of_product, kAdvice), 1) << of_product;
  EXPECT_EQ(count(of_product, "it would ask for 32.00 KiB at a time."), 1) << of_product;
  EXPECT_EQ(count(error_of([&] { at::log_softmax(scores, 1); }), kAdvice), 1);
  // The op after a product fails where the product has just had room.
  EXPECT_EQ(count(error_of([&] { scores.to(at::kDouble); }), kAdvice), 1);
  EXPECT_EQ(count(error_of([&] { scores / 2; }), kAdvice), 1);
  for (const std::string& error : {error_of([&] { at::log_softmax(scores, 0); }), error_of([&] { scores.cumsum(0); }),
                                   error_of([&] { at::mm(rows.slice(0, 0, 1), words); })}) {
    EXPECT_EQ(count(error, "in_chunks"), 0) << error;
  }
}

// Each loss that is kept keeps its graph. What they have in common from outside joins none.
TEST_F(OutOfMemoryTest, TheErrorCountsTheGraphsForWhichValuesAreHeld) {
  at::Tensor x = sample({kElements});
  PolicyScope scope("must_save_all");
  std::vector<at::Tensor> losses;
  for (int i = 0; i < 9; ++i) losses.push_back(sines(x, 1 + i % 2 * 2).sum());
  const std::string error = error_of([&] { at::empty({int64_t{1} << 60}); });
  // Five of one sine, which save x alone; four of three, which save two results of theirs.
  EXPECT_EQ(count(error,
                  "Regions hold 32.00 KiB of results for 4 graphs that a backward may still walk (8.00 KiB for "
                  "the largest), with 1 tensor from outside, of 4.00 KiB."),
            1)
      << error;
  EXPECT_EQ(count(error, "such as a loss in a list"), 0) << error;
  for (int i = 0; i < 5; ++i) losses.push_back(sines(x, 3).sum());
  EXPECT_EQ(count(error_of([&] { at::empty({int64_t{1} << 60}); }),
                  "for 9 graphs that a backward may still walk (8.00 KiB for the largest), with 1 tensor "
                  "from outside, of 4.00 KiB. A result that is kept, such as a loss in a list, keeps its graph"),
            1);
}

TEST_F(OutOfMemoryTest, StatsCountTheBytesThatWereDroppedAndComputedAgain) {
  at::Tensor x = sample({kElements});
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = 4 * kBytes});
    trace = scope.trace();
    y = sines(x, 10);
  }
  gradient_of(y, x);
  const TraceStats stats = trace->stats();
  EXPECT_GT(stats.evicted_values, 0);
  EXPECT_GT(stats.recomputed_ops, 0);
  EXPECT_EQ(stats.evicted_bytes, stats.evicted_values * kBytes);
  EXPECT_EQ(stats.replayed_bytes, stats.recomputed_ops * kBytes);
}

TEST_F(OutOfMemoryTest, TheErrorOfABackwardSaysItOnce) {
  at::Tensor x = sample({kElements});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    y = sines(x.clone(), 20);
  }
  const LimitedAllocator::Limit limit(memory_, 8 * kBytes);
  const std::string error = error_of([&] { gradient_of(y, x); });
  EXPECT_EQ(count(error, "ac2's regions hold"), 1) << error;
}

TEST_F(OutOfMemoryTest, WhereRegionsHoldNothingTheErrorNamesTheOpAndInChunks) {
  const at::Tensor x = at::ones({kElements}), rows = at::ones({64, 8}), words = at::ones({8, 256});
  const LimitedAllocator::Limit limit(memory_, kBytes / 2);
  PolicyScope scope("recompute_all");
  const std::string error = error_of([&] { x.sin(); });
  EXPECT_EQ(count(error, "out of memory"), 1) << error;
  EXPECT_EQ(count(error, "The memory was asked for by aten::sin of [1024] float."), 1) << error;
  EXPECT_EQ(count(error, "regions hold"), 0) << error;
  const std::string of_product = error_of([&] { at::mm(rows, words); });
  EXPECT_EQ(count(of_product, "by ac2::in_chunks"), 1) << of_product;
}

TEST_F(OutOfMemoryTest, OtherErrorsAreAsTheyWere) {
  at::Tensor x = sample({kElements});
  PolicyScope scope("recompute_all");
  const at::Tensor y = sines(x, 3);
  const std::string error = error_of([&] { y + at::ones({3}); });
  EXPECT_EQ(count(error, "regions hold"), 0) << error;
}

TEST_F(OutOfMemoryTest, WhatIsHeldCanBeAskedForAtAnyTime) {
  EXPECT_EQ(explain_held(), "ac2's regions hold nothing.");
  at::Tensor x = sample({kElements});
  at::Tensor y;
  {
    PolicyScope scope("must_save_all");
    y = sines(x, 3);
  }
  EXPECT_EQ(
      count(explain_held(), "hold 8.00 KiB for backward that nobody else refers to, in 2 tensors, and share 4.00 KiB"),
      1)
      << explain_held();
  EXPECT_EQ(internal::shortage_note(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12", nullptr),
            explain_held() +
                "\nWith a memory_budget of 4096 bytes (4.00 KiB), which these regions share, there would "
                "have been room for the 4.00 KiB that were asked for, unless malloc keeps what is dropped in pieces "
                "that are smaller.\nRegions hold 8.00 KiB of results for 1 graph that a backward may still walk, "
                "with 1 tensor from outside, of 4.00 KiB.");
  EXPECT_EQ(count(internal::shortage_note("CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0", nullptr),
                  "may not be enough: 20.50 GiB"),
            1);
}

}  // namespace
}  // namespace ac2::test
