// Memory that LibTorch did not allocate, and that changes without any op.
#include <sys/mman.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "ac2/memory_budget.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ForeignMemoryTest = CleanTest;

constexpr int64_t kNumbers = 16;
constexpr int64_t kFloats = kNumbers * static_cast<int64_t>(sizeof(float));

// A buffer of the program's own, and a tensor over it.
template <class Number>
class Buffer {
 public:
  explicit Buffer(Number number = 1) : numbers_(kNumbers, number) {}
  at::Tensor tensor() { return at::from_blob(numbers_.data(), {4, 4}, c10::CppTypeToScalarType<Number>::value); }
  void fill(Number number) { std::fill(numbers_.begin(), numbers_.end(), number); }

 private:
  std::vector<Number> numbers_;
};

using Scope = std::unique_ptr<PolicyScope>;
using OpenScope = std::function<Scope()>;

Scope none() {
  return nullptr;
}

std::vector<OpenScope> scopes() {
  std::vector<OpenScope> all;
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), saving({"aten::_to_copy"}),
                               saving({"aten::cos", "aten::mul.Tensor"})}) {
    all.emplace_back([policy] { return std::make_unique<PolicyScope>(policy); });
  }
  all.emplace_back([] { return std::make_unique<PolicyScope>(ScopeOptions{.memory_budget = int64_t{1} << 20}); });
  all.emplace_back(
      [] { return std::make_unique<PolicyScope>("recompute_all", ScopeOptions{.memory_budget = 8 * kFloats}); });
  all.emplace_back([] { return std::make_unique<PolicyScope>("recompute_all", ScopeOptions{.verify = true}); });
  all.emplace_back(
      [] { return std::make_unique<PolicyScope>([](const OpContext&) { return CheckpointPolicy::MUST_RECOMPUTE; }); });
  return all;
}

// `program` is given an input that requires a gradient, and returns a loss.
void expect_gradients_of_plain_autograd(const std::function<at::Tensor(const at::Tensor&)>& program) {
  const at::Tensor x = sample({4, 4});
  const auto gradient = [&](const OpenScope& open) {
    at::Tensor loss;
    {
      const Scope scope = open();
      loss = program(x);
    }
    return gradient_of(loss, x);
  };
  const at::Tensor expected = gradient(none);
  int which = 0;
  for (const OpenScope& open : scopes()) {
    EXPECT_TRUE(same_bits(gradient(open), expected)) << "scope " << which;
    ++which;
  }
}

TEST_F(ForeignMemoryTest, WhatWasComputedFromABufferIsComputedFromWhatItHeldThen) {
  expect_gradients_of_plain_autograd([](const at::Tensor& x) {
    Buffer<uint8_t> buffer;
    const at::Tensor frame = buffer.tensor();
    at::Tensor loss = (frame.to(at::kFloat) / 255 * x).sum();
    buffer.fill(200);
    return loss + (frame.to(at::kFloat) / 255 * x).sin().sum();
  });
}

TEST_F(ForeignMemoryTest, ABufferThatIsFilledAfterTheRegionChangesNothing) {
  const at::Tensor x = sample({4, 4});
  Buffer<float> buffer;
  at::Tensor loss = apply_ac_policy_fn([&] { return (buffer.tensor().exp() * x).sum(); }, "recompute_all");
  buffer.fill(7);
  EXPECT_TRUE(same_bits(gradient_of(loss, x), gradient_of((at::ones({4, 4}).exp() * x).sum(), x)));
}

// Plain autograd holds it by reference too.
TEST_F(ForeignMemoryTest, WhatAutogradSavesOfABufferIsWhatTheBufferHoldsInBackward) {
  expect_gradients_of_plain_autograd([](const at::Tensor& x) {
    auto buffer = std::make_shared<Buffer<float>>();
    at::Tensor loss = (buffer->tensor() * x).sum();
    buffer->fill(200);
    x.register_hook([buffer](const at::Tensor&) {});  // which keeps it
    return loss;
  });
}

TEST_F(ForeignMemoryTest, WhatOpsWriteIntoABufferIsNotComputedAgain) {
  expect_gradients_of_plain_autograd([](const at::Tensor& x) {
    auto buffer = std::make_shared<Buffer<float>>();
    at::Tensor inside = buffer->tensor();
    at::mul_out(inside, x.detach(), x.detach());
    const at::Tensor before = inside.exp() * x;
    inside.add_(1);
    buffer->fill(3);
    x.register_hook([buffer](const at::Tensor&) {});
    return (before.sin() + inside * x).sum();
  });
}

TEST_F(ForeignMemoryTest, WhateverTakesFewerBytesIsHeld) {
  const at::Tensor x = sample({4, 4});
  Buffer<uint8_t> bytes;
  Buffer<float> floats;
  at::Tensor loss;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    loss = (bytes.tensor().to(at::kFloat) * x).sum();  // a copy of the buffer
    EXPECT_EQ(trace->stats().copied_bytes, kNumbers);
    EXPECT_EQ(trace->stats().saved_bytes, kFloats + kNumbers);  // x, too
    loss = loss + (floats.tensor().sum(0) * x).sum();           // the result
    EXPECT_EQ(trace->stats().copied_bytes, kNumbers);
    EXPECT_EQ(trace->stats().saved_bytes, kFloats + kNumbers + kFloats / 4);
  }
  gradient_of(loss, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

TEST_F(ForeignMemoryTest, ABufferIsCopiedOnceForAllThatReadItAsLongAsItStays) {
  const at::Tensor x = sample({4, 4});
  Buffer<uint8_t> buffer;
  at::Tensor loss;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    loss = (buffer.tensor().to(at::kFloat) * x).sum();
    const at::Tensor again = buffer.tensor();
    loss = loss + (again.to(at::kFloat) * x).sum() + (again.to(at::kDouble) * x).sum();
    EXPECT_EQ(trace->stats().copied_bytes, 2 * kNumbers);  // two tensors: to a region they are two storages
    buffer.fill(2);
    loss = loss + (again.to(at::kFloat) * x).sum();
    EXPECT_EQ(trace->stats().copied_bytes, 3 * kNumbers);
  }
  gradient_of(loss, x);
  EXPECT_EQ(trace->stats().saved_bytes, 0);
}

TEST_F(ForeignMemoryTest, WhatNothingComesToNeedIsNotHeld) {
  Buffer<uint8_t> buffer;
  const PolicyScope scope("recompute_all");
  { const at::Tensor dropped = buffer.tensor().to(at::kFloat) + 1; }
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
}

TEST_F(ForeignMemoryTest, AWeightInABufferIsHeldAsInPlainAutograd) {
  const at::Tensor x = sample({4, 4});
  Buffer<float> buffer;
  const at::Tensor w = buffer.tensor().requires_grad_();
  const PolicyScope scope("must_save_all");
  const at::Tensor y = x.mm(w);
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 2 * kFloats);  // x and w
  EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
}

// As from_dlpack() gives it.
at::Tensor over_the_same_bytes(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options());
}

TEST_F(ForeignMemoryTest, AWriteThroughAnAliasIsAWriteToWhatARegionHasComputed) {
  expect_gradients_of_plain_autograd([](const at::Tensor& x) {
    const at::Tensor v = x.detach() * 2;
    const at::Tensor before = (v.cos() * x).exp();
    at::Tensor alias = over_the_same_bytes(v);
    alias.mul_(3);
    return (before + v.sin() * x).sum();
  });
}

TEST_F(ForeignMemoryTest, AWriteThroughAnAliasIsAWriteToWhatCameFromOutside) {
  const at::Tensor given = constant({4, 4});
  expect_gradients_of_plain_autograd([&](const at::Tensor& x) {
    const at::Tensor v = given.clone();
    v.zero_();
    const at::Tensor before = (v.cos() * x).exp();
    over_the_same_bytes(v)[1].fill_(3);
    const at::Tensor between = (v.cos() * x).exp();
    over_the_same_bytes(v).add_(1);
    return (before * between + v.cos() * x).sum();
  });
}

TEST_F(ForeignMemoryTest, AWriteThroughAnAliasIsSeenByRegionsThatAreOverOrDisabled) {
  const auto gradient = [](const Policy* policy, bool over) {
    const at::Tensor x = at::linspace(-1, 1, 8).requires_grad_();
    at::Tensor outside = at::linspace(0.5, 2, 8), made, y;
    const auto clamp_both = [&] {
      for (const at::Tensor& tensor : {outside, made}) {
        at::from_blob(tensor.mutable_data_ptr(), {8}).clamp_(0.6, 0.9);
      }
    };
    {
      std::optional<PolicyScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      made = outside * 2;
      y = ((x + outside).sin() + (x + made).cos()).exp();
      if (!over) {
        const DisableCheckpointing disabled;
        clamp_both();
      }
    }
    if (over) clamp_both();
    return gradient_of(y, x);
  };
  for (const bool over : {true, false}) {
    for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all")}) {
      EXPECT_TRUE(same_bits(gradient(&policy, over), gradient(nullptr, over)));
    }
  }
}

TEST_F(ForeignMemoryTest, WhatAutogradHasSavedFollowsAWriteThroughAnAlias) {
  expect_gradients_of_plain_autograd([](const at::Tensor& x) {
    const at::Tensor v = x.detach().sin();
    const at::Tensor saved = v * x;
    over_the_same_bytes(v).mul_(3);
    return saved.sum();
  });
}

TEST_F(ForeignMemoryTest, AWriteIntoABufferCopiesNothingThatLiesElsewhere) {
  const at::Tensor x = sample({4, 4});
  Buffer<float> buffer;
  const PolicyScope scope("must_save_all");
  const at::Tensor y = x.sin().cos();
  buffer.tensor().add_(1);
  EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
}

// `tensor` is recomputed from, not copied and not saved.
void expect_to_be_read_again(const at::Tensor& tensor) {
  const at::Tensor x = sample(tensor.sizes());
  at::Tensor loss;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    loss = (tensor.cos().exp() * x).sum();
  }
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  gradient_of(loss, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
}

TEST_F(ForeignMemoryTest, WhatWasLoadedIsReadAgain) {
  std::stringstream file;
  torch::save(std::vector<at::Tensor>{constant({4, 4})}, file);
  std::vector<at::Tensor> loaded;
  torch::load(loaded, file);
  expect_to_be_read_again(loaded.at(0));
}

constexpr int64_t kInFile = int64_t{16} << 10;
constexpr int64_t kFileBytes = kInFile * static_cast<int64_t>(sizeof(float));

// A file of floats that is removed at the end.
class File {
 public:
  File() {
    const std::vector<float> numbers(kInFile, 0.5f);
    EXPECT_EQ(write(descriptor_, numbers.data(), kFileBytes), kFileBytes);
  }
  ~File() {
    close(descriptor_);
    unlink(name_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // As weights are by torch.load(mmap=True).
  at::Tensor loaded(bool shared) const { return at::from_file(name_, shared, kInFile, at::kFloat); }
  // As by programs that map files themselves.
  at::Tensor mapped(int protection, int flags) const {
    void* memory = mmap(nullptr, kFileBytes, protection, flags, descriptor_, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return at::from_blob(
        memory, {kInFile}, [](void* bytes) { munmap(bytes, kFileBytes); }, at::kFloat);
  }

 private:
  std::string name_ = ::testing::TempDir() + "foreign_memory_XXXXXX";
  int descriptor_ = mkstemp(name_.data());
};

TEST_F(ForeignMemoryTest, AMappedFileThatNobodyWritesToIsReadAgain) {
  const File file;
  expect_to_be_read_again(file.loaded(/*shared=*/false));
  expect_to_be_read_again(file.mapped(PROT_READ, MAP_PRIVATE));
  expect_to_be_read_again(file.mapped(PROT_READ, MAP_SHARED));
}

TEST_F(ForeignMemoryTest, AMappedFileThatOthersMayWriteToIsNotReadAgain) {
  const File file;
  const at::Tensor x = sample({kInFile});
  for (const at::Tensor& tensor : {file.loaded(/*shared=*/true), file.mapped(PROT_READ | PROT_WRITE, MAP_SHARED),
                                   file.mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE)}) {
    tensor.fill_(0.5);
    const at::Tensor expected = gradient_of((tensor.exp() * x).sum(), x);
    at::Tensor loss = apply_ac_policy_fn([&] { return (tensor.exp() * x).sum(); }, "recompute_all");
    std::fill_n(static_cast<float*>(tensor.data_ptr()), kInFile, 7.0f);
    EXPECT_TRUE(same_bits(gradient_of(loss, x), expected));
  }
}

}  // namespace
}  // namespace ac2::test
