// Results in files: bitwise the same gradients, memory that holds nothing, and what becomes of disks and threads that
// fail.
#include "policies/spill_to_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ac2/testing/counting_allocator.h"
#include "tests/packing/spill_fixture.h"
#include "tests/support/limited_allocator.h"
#include "tests/support/packed.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using policies::spill_to_file;
using policies::SpillOptions;

TEST_F(SpillToFileTest, GradientsAreThoseOfPlainAutograd) {
  for (const SpillOptions& options : kSpillOptions) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      expect_same_gradients(
          [](const Tensors& in) {
            at::Tensor h = at::mm(in[0], in[1]);
            h.mul_(0.1);
            h = h.tanh();
            h = at::dropout(h.sin().t(), 0.3, true) * h;
            return Tensors{h.cos().sum(0), h.slice(1, 0, 5).exp()};
          },
          {sample({20, 30}, type), sample({30, 20}, type)}, spilling({"aten::*"}, options));
    }
    expect_same_gradients(
        [](const Tensors& in) {
          auto [values, indices] = in[0].sort();
          return Tensors{at::where(values > 0, values.sin(), values.relu()), in[0].index_select(0, indices) * 2};
        },
        {sample({1000})}, spilling({"aten::*"}, options));
    expect_same_gradients([](const Tensors& in) { return Tensors{at::real(in[0].sin().cos().mul_(2).exp())}; },
                          {sample({10, 30}, at::kComplexDouble)}, spilling({"aten::*"}, options));
  }
}

TEST_F(SpillToFileTest, OfWhatIsSpilledMemoryHoldsNothing) {
  const auto& memory = testing::CountingAllocator::install();
  at::Tensor x = sample({1000});
  const int64_t before = memory.current_bytes();
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(spilling({"aten::sin", "aten::exp"}, {.queue_bytes = 0}));
    trace = scope.trace();
    y = x.sin().exp().cos().sum();
  }
  EXPECT_EQ(trace->stats().saved_bytes, 4000);  // x, for sin
  EXPECT_EQ(memory.current_bytes() - before, static_cast<int64_t>(y.nbytes()));
  EXPECT_EQ(open_spill_files().size(), 1U);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().exp().cos().sum(), x)));
}

// Thirty products, of which each takes 256 KiB.
at::Tensor deep(at::Tensor x, const at::Tensor& w) {
  for (int i = 0; i < 30; ++i) x = at::mm(x, w).tanh();
  return x;
}

TEST_F(SpillToFileTest, TrainsWhatMemoryCannotHold) {
  LimitedAllocator& memory = LimitedAllocator::install();
  at::Tensor x = sample({256, 256}), w = leaf_like(sample({256, 256}).detach().div_(16).requires_grad_());
  const Tensors expected = gradients_of({deep(x, w)}, {x, w});
  constexpr int64_t kValue = 256 * 256 * 4;
  const LimitedAllocator::Limit limit(memory, 12 * kValue);
  expect_error([&] { gradients_of({deep(x, w)}, {x, w}); }, {"memory"});
  at::Tensor y = apply_ac_policy_fn([&] { return deep(x, w); }, spilling({"aten::*"}, {.queue_bytes = 2 * kValue}));
  expect_same_bits(gradients_of({y}, {x, w}), expected, "gradients");
}

TEST_F(SpillToFileTest, TheQueueHoldsNoMoreThanItsBytes) {
  auto& memory = testing::CountingAllocator::install();
  at::Tensor x = sample({256, 256}), w = sample({256, 256});
  constexpr int64_t kValue = 256 * 256 * 4;
  for (const int64_t queued : {0, 1, 3}) {
    memory.reset_peak();
    const int64_t before = memory.current_bytes();
    at::Tensor y =
        apply_ac_policy_fn([&] { return deep(x, w); }, spilling({"aten::*"}, {.queue_bytes = queued * kValue}));
    // Besides, an op's input and output, and the one before that on its way to the file; and what oneDNN works in.
    EXPECT_LE(memory.peak_bytes() - before, (queued + 3) * kValue + kValue / 2);
    gradient_of(y, x);
  }
}

TEST_F(SpillToFileTest, WhatIsOverwrittenAfterwardsWasPackedBefore) {
  for (const SpillOptions& options : kSpillOptions) {
    const auto run = [&](bool overwrite) {
      at::Tensor x = at::linspace(-1, 1, 500).requires_grad_();
      at::Tensor y;
      {
        PolicyScope scope(spilling({"aten::*"}, options));
        at::Tensor s = x.sin();
        y = s.cos();
        if (overwrite) s.detach().zero_();
      }
      return gradient_of(y, x);
    };
    EXPECT_TRUE(same_bits(run(true), run(false)));
  }
}

TEST_F(SpillToFileTest, ASecondBackwardReadsAgainAndSecondDerivativesAreExact) {
  for (const SpillOptions& options : kSpillOptions) {
    at::Tensor x = sample({300}, at::kDouble);
    const auto fn = [&] { return x.sin().cos().exp(); };
    at::Tensor y = apply_ac_policy_fn(fn, spilling({"aten::sin", "aten::cos"}, options));
    at::Tensor expected = gradient_of(fn(), x);
    EXPECT_TRUE(same_bits(gradient_of(y, x, /*retain_graph=*/true), expected));
    EXPECT_TRUE(same_bits(gradient_of(y, x, /*retain_graph=*/true), expected));
    const auto second = [&](const at::Tensor& of) {
      at::Tensor first = torch::autograd::grad({of.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      return torch::autograd::grad({first.sum()}, {x})[0];
    };
    EXPECT_TRUE(same_bits(second(y), second(fn())));
  }
}

TEST_F(SpillToFileTest, NothingIsLeftOfAGraphThatIsDropped) {
  for (const SpillOptions& options : kSpillOptions) {
    const Policy policy = spilling({"aten::sin", "aten::cos"}, options);
    at::Tensor x = sample({2000});
    {
      at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos().tan(); }, policy);
    }
    {
      // Half way.
      at::Tensor h, y;
      {
        PolicyScope scope(policy);
        h = x.sin().cos();
        y = h.sin().cos().tan();
      }
      torch::autograd::grad({y.sum()}, {h});
    }
    expect_error(
        [&] {
          PolicyScope scope(policy);
          at::Tensor y = x.sin().cos().tan();
          TORCH_CHECK(false, "on the way");
        },
        {"on the way"});
    // A file that is being written is closed when that is done: the policy's thread is joined here.
  }
}

TEST_F(SpillToFileTest, FilesAreFilledAndThenFreed) {
  const Policy one_file = spilling({"aten::sin"}, {.queue_bytes = 0}),
               many_files = spilling({"aten::sin"}, {.queue_bytes = 0, .file_bytes = 2000});
  at::Tensor x = sample({250});
  for (int step = 0; step < 2; ++step) {
    // Five results of 1000 bytes: two to a file.
    for (const auto& [policy, files] : {std::pair{one_file, size_t{1}}, std::pair{many_files, size_t{3}}}) {
      at::Tensor y = apply_ac_policy_fn([&] { return x.sin().sin().sin().sin().sin().cos(); }, policy);
      EXPECT_EQ(open_spill_files().size(), files);
      gradient_of(y, x);
      EXPECT_EQ(open_spill_files().size(), 0U);
    }
  }
}

TEST_F(SpillToFileTest, AGraphOutlivesThePolicy) {
  at::Tensor x = sample({1000});
  at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos(); }, spilling({"aten::sin"}));
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(SpillToFileTest, ThreadsShareAPolicy) {
  const Policy policy = spilling({"aten::sin", "aten::cos"}, {.queue_bytes = 9000, .file_bytes = 10000});
  std::vector<std::thread> threads;
  std::vector<char> same(4, 0);
  for (size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] {
      bool all = true;
      for (int step = 0; step < 20; ++step) {
        at::Tensor x = at::linspace(0, double(i + 1), 1000).requires_grad_();
        const auto fn = [&] { return x.sin().cos().sin().cos(); };
        at::Tensor y = apply_ac_policy_fn(fn, policy);
        at::Tensor spilled = torch::autograd::grad({y.sum()}, {x})[0];
        all = all && at::equal(spilled, torch::autograd::grad({fn().sum()}, {x})[0]);
      }
      same[i] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(same.begin(), same.end(), 1), 4);
}

TEST_F(SpillToFileTest, ScopesOfThePolicyNest) {
  const Policy policy = spilling({"aten::sin"});
  at::Tensor x = sample({100}), y;
  {
    PolicyScope outer(policy);
    PolicyScope inner(policy);
    y = x.sin().cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(SpillToFileTest, ChangedBytesAreAnErrorThatNamesOpAndFile) {
  const Policy policy = spilling({"aten::sin"}, {.queue_bytes = 0});
  const auto run = [&](auto damage) {
    at::Tensor x = sample({1000});
    at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos(); }, policy);
    const std::vector<std::string> files = open_spill_files();
    ASSERT_EQ(files.size(), 1U);
    const int descriptor = ::open(files[0].c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(descriptor, 0);
    damage(descriptor);
    ::close(descriptor);
    gradient_of(y, x);
  };
  expect_error([&] { run([](int file) { EXPECT_EQ(::pwrite(file, "x", 1, 1234), 1); }); },
               {"spill_to_file", "the result of aten::sin", directory_.c_str(), "4000 bytes", "checksum differs"});
  expect_next_region_works();
  expect_error([&] { run([](int file) { EXPECT_EQ(::ftruncate(file, 100), 0); }); },
               {"spill_to_file", "the result of aten::sin", directory_.c_str(), "the file ends at byte 100"});
  expect_next_region_works();
}

// As a disk that is full: no file of the process may be larger.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(SpillToFileTest, ADiskThatIsFullIsAnErrorThatSaysWhatToDo) {
  // The test's own log is a file too.
  constexpr rlim_t kLimit = 8 << 20;
  for (const int64_t queue_bytes : {0, 64 << 20}) {
    const Policy policy = spilling({"aten::sin"}, {.queue_bytes = queue_bytes});
    at::Tensor x = sample({1 << 20});
    const auto step = [&] {
      at::Tensor y;
      {
        PolicyScope scope(policy);
        y = x.sin().sin().sin().sin().cos();  // 4 MiB each
      }
      return gradient_of(y, x);
    };
    std::string error;
    {
      const FileSizeLimit limit(kLimit);
      error = error_of([&] { step(); });
    }
    for (const char* phrase : {"spill_to_file", "the result of aten::sin", directory_.c_str(), "File too large",
                               "after 8388608 bytes", "Free space"}) {
      EXPECT_NE(error.find(phrase), std::string::npos) << error;
    }
    // Once there is room, the same step is right; nothing of the error is left.
    EXPECT_TRUE(same_bits(step(), gradient_of(x.sin().sin().sin().sin().cos(), x)));
  }
}

TEST_F(SpillToFileTest, AnErrorThatNobodySawGoesWithItsGraph) {
  const Policy policy = spilling({"aten::sin"});
  at::Tensor x = sample({1 << 20});
  const auto forward = [&] { return apply_ac_policy_fn([&] { return x.sin().cos(); }, policy); };
  for (int i = 0; i < 10; ++i) {
    // Before, while, or after its bytes are written.
    const FileSizeLimit limit(1 << 20);
    forward();
  }
  EXPECT_TRUE(same_bits(gradient_of(forward(), x), gradient_of(x.sin().cos(), x)));
}

TEST_F(SpillToFileTest, NamesBadInput) {
  const std::string file = directory_ + "/file", missing = directory_ + "/missing";
  std::ofstream(file) << "not a directory";
  expect_error([&] { spill_to_file(file, {"aten::sin"}); },
               {"spill_to_file cannot make a file in", file.c_str(), "Not a directory", "Give an existing directory"});
  expect_error([&] { spill_to_file(missing, {"aten::sin"}); }, {missing.c_str(), "No such file or directory"});
  std::filesystem::remove(file);
  expect_error([&] { spill_to_file("", {"aten::sin"}); }, {"spill_to_file", "directory", "path"});
  expect_error([&] { spilling({"aten::sinn"}); }, {"spill_to_file", "aten::sinn", "aten::sin"});
  expect_error([&] { spilling({"aten::sin"}, {.queue_bytes = -1}); }, {"queue of -1 bytes"});
  expect_error([&] { spilling({"aten::sin"}, {.file_bytes = 0}); }, {"files of 0 bytes"});
  // A directory that is gone by the time it is needed.
  std::filesystem::create_directory(missing);
  const Policy policy = spill_to_file(missing, {"aten::sin"}, {.queue_bytes = 0});
  std::filesystem::remove(missing);
  at::Tensor x = sample({10});
  expect_error([&] { apply_ac_policy_fn([&] { return x.sin().cos(); }, policy); },
               {"the result of aten::sin", missing.c_str(), "No such file or directory"});
  expect_next_region_works();
}

TEST_F(SpillToFileTest, MetaTensorsTakeNoFile) {
  const SaveWithHooks hooks = hooks_of(spilling({"aten::sin"}), "aten::sin");
  const c10::IValue packed = hooks.pack(constant({3, 4}).to(at::kMeta));
  EXPECT_EQ(packed_bytes(packed), 0);
  EXPECT_EQ(hooks.unpack(packed).sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_TRUE(open_spill_files().empty());
}

}  // namespace
}  // namespace ac2::test
