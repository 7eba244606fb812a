// tag_with_policy: one tensor's own decision.
#include <c10/core/InferenceMode.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using TagTest = CleanTest;
using enum CheckpointPolicy;

constexpr int64_t kBytes = 4 * 4;  // of one of the tensors below: four floats

struct Result {
  int64_t recomputed_ops, saved_bytes, copied_bytes;
};

// cos(tagged sin(x)) in a region, compared with plain autograd. cos needs sin's result.
Result tag_sin(const Policy& policy, const PolicyDecision& decision,
               const std::function<at::Tensor(const at::Tensor&)>& tagged_part = nullptr) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(policy);
    trace = scope.trace();
    at::Tensor s = x.sin();
    tag_with_policy(tagged_part ? tagged_part(s) : s, decision);
    y = s.cos();
  }
  int64_t saved = trace->stats().saved_bytes;
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  return {trace->stats().recomputed_ops, saved, trace->stats().copied_bytes};
}

TEST_F(TagTest, SavesUnderAPolicyThatRecomputes) {
  for (CheckpointPolicy decision : {MUST_SAVE, PREFER_SAVE, MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD}) {
    for (CheckpointPolicy policy : {PREFER_RECOMPUTE, MUST_RECOMPUTE}) {
      SCOPED_TRACE(std::string(to_string(decision)) + " against " + to_string(policy));
      Result result = tag_sin(Policy::constant(policy), decision);
      EXPECT_EQ(result.recomputed_ops, 0);
      EXPECT_EQ(result.saved_bytes, 2 * kBytes);  // x for sin, sin's result for cos
      EXPECT_EQ(result.copied_bytes, 0);
    }
  }
}

TEST_F(TagTest, RecomputesUnderAPolicyThatSaves) {
  for (CheckpointPolicy decision : {MUST_RECOMPUTE, PREFER_RECOMPUTE}) {
    for (CheckpointPolicy policy : {PREFER_SAVE, MUST_SAVE, MUST_CPU_OFFLOAD}) {
      SCOPED_TRACE(std::string(to_string(decision)) + " against " + to_string(policy));
      Result result = tag_sin(Policy::constant(policy), decision);
      EXPECT_EQ(result.recomputed_ops, 1);
      EXPECT_EQ(result.saved_bytes, kBytes);  // x, for sin and to recompute it
    }
  }
}

TEST_F(TagTest, TakesBoolsAndHooks) {
  EXPECT_EQ(tag_sin("recompute_all", true).recomputed_ops, 0);
  EXPECT_EQ(tag_sin("must_save_all", false).recomputed_ops, 1);
  int packs = 0, unpacks = 0;
  SaveWithHooks hooks = {[&](const at::Tensor& t) {
                           ++packs;
                           return c10::IValue(t.clone());
                         },
                         [&](const c10::IValue& v) {
                           ++unpacks;
                           return v.toTensor();
                         }};
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    EXPECT_EQ(tag_sin(policy, hooks).recomputed_ops, 0);
    EXPECT_EQ(std::exchange(packs, 0), 1);
    EXPECT_EQ(std::exchange(unpacks, 0), 1);
  }
}

TEST_F(TagTest, AViewStandsForItsStorage) {
  auto view = [](const at::Tensor& s) { return s.slice(0, 1, 3).view({2, 1}); };
  EXPECT_EQ(tag_sin("recompute_all", MUST_SAVE, view).recomputed_ops, 0);
  EXPECT_EQ(tag_sin("recompute_all", MUST_SAVE, view).saved_bytes, 2 * kBytes);
  auto detached = [](const at::Tensor& s) { return s.detach(); };
  EXPECT_EQ(tag_sin("recompute_all", MUST_SAVE, detached).recomputed_ops, 0);
}

// Of views that are conjugated or negated only when somebody reads them, the hooks see the bytes that there are.
TEST_F(TagTest, ALazilyChangedViewStandsForTheBytesOfItsStorage) {
  const auto clones = [](std::vector<bool>* lazy) {
    return SaveWithHooks{[lazy](const at::Tensor& t) {
                           lazy->push_back(t.is_neg() || t.is_conj());
                           return c10::IValue(t.clone());
                         },
                         [](const c10::IValue& packed) { return packed.toTensor(); }};
  };
  for (const bool whole : {true, false}) {
    std::vector<bool> lazy;
    const auto part = [&](const at::Tensor& t) { return whole ? t : t.slice(0, 1, 3); };
    expect_same_gradients(
        [&](const Tensors& in) {
          const at::Tensor real = in[0].sin();
          tag_with_policy(at::_neg_view(part(real)), clones(&lazy));
          const at::Tensor complex = at::complex(real, in[0].cos());
          tag_with_policy(part(complex).conj(), clones(&lazy));
          return Tensors{real.exp(), at::view_as_real(complex.exp()), at::imag(complex.conj()).cos()};
        },
        {sample({4})});
    EXPECT_EQ(lazy, (std::vector<bool>{false, false}));
  }
}

TEST_F(TagTest, HoldsForOneTensorAlone) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor a = x.sin();
    tag_with_policy(a, MUST_SAVE);
    at::Tensor b = a.sin();  // the same op, untagged
    y = b.sin();
  }
  EXPECT_EQ(trace->stats().saved_bytes, 2 * kBytes);  // x and a
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().sin().sin(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);  // b, from a
}

TEST_F(TagTest, TheLastTagOfATensorCounts) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    tag_with_policy(s, MUST_SAVE);
    tag_with_policy(s, MUST_RECOMPUTE);  // no conflict: a tag is no policy of the stack
    y = s.cos();
  }
  gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

TEST_F(TagTest, MayComeAfterAutogradHasAskedForTheTensor) {
  for (bool save : {true, false}) {
    at::Tensor x = sample({4});
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope(save ? "recompute_all" : "must_save_all");
      trace = scope.trace();
      at::Tensor s = x.sin();
      y = s.cos();
      tag_with_policy(s, save);
    }
    EXPECT_EQ(trace->stats().saved_bytes, save ? 2 * kBytes : kBytes);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
    EXPECT_EQ(trace->stats().recomputed_ops, save ? 0 : 1);
  }
}

TEST_F(TagTest, ALaterWriteIsDecidedAnew) {
  for (bool save : {true, false}) {
    at::Tensor x = sample({4});
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope(save ? "must_save_all" : "recompute_all");
      trace = scope.trace();
      at::Tensor s = x.sin();
      tag_with_policy(s, save ? MUST_RECOMPUTE : PREFER_RECOMPUTE);
      s.add_(1);
      y = s.cos();
    }
    EXPECT_EQ(trace->stats().copied_bytes, 0);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x.sin() + 1).cos(), x)));
    EXPECT_EQ(trace->stats().recomputed_ops, save ? 0 : 2);  // sin and add_
  }
}

TEST_F(TagTest, ATaggedTensorThatIsOverwrittenBeforeItIsNeededIsNotCopied) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    tag_with_policy(s, MUST_SAVE);
    s.add_(1);
    y = s.cos();
  }
  // Keeping what add_ wrote costs no more than keeping what it wrote over.
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  EXPECT_EQ(trace->stats().saved_bytes, 2 * kBytes);  // x and the sum
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x.sin() + 1).cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

TEST_F(TagTest, ATaggedTensorThatIsNeededIsCopiedBeforeItIsOverwritten) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    tag_with_policy(s, MUST_SAVE);
    at::Tensor c = (s + 2).cos();  // recomputing the sum needs s
    s.add_(1);
    y = s.cos() + c;
  }
  EXPECT_EQ(trace->stats().copied_bytes, kBytes);
  EXPECT_EQ(trace->stats().saved_bytes, 2 * kBytes);  // x and the copy
  at::Tensor s = x.sin();
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((s + 1).cos() + (s + 2).cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // both sums, from the copy
}

TEST_F(TagTest, AWrittenTensorIsSavedAsItIsNow) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    s.add_(1);
    tag_with_policy(s, MUST_SAVE);
    y = s.cos();
  }
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x.sin() + 1).cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

TEST_F(TagTest, RecomputingARegionsInputIsNoOp) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    tag_with_policy(x, MUST_RECOMPUTE);
    tag_with_policy(x, PREFER_RECOMPUTE);
    tag_with_policy(x, MUST_SAVE);
    y = x.sin().cos();
  }
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(TagTest, OutsideARegionATagIsNoOp) {
  at::Tensor x = sample({4});
  at::Tensor s = x.sin();
  for (CheckpointPolicy decision : {MUST_SAVE, MUST_RECOMPUTE, PREFER_CPU_OFFLOAD}) {
    tag_with_policy(s, decision);
  }
  at::Tensor y = s.cos();
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(TagTest, AnUndefinedTensorIsRefused) {
  PolicyScope scope("recompute_all");
  expect_error([] { tag_with_policy(at::Tensor(), MUST_SAVE); }, {"undefined"});
  expect_error([] { tag_with_policy(at::Tensor(), MUST_RECOMPUTE); }, {"undefined"});
}

TEST_F(TagTest, AnInferenceTensorCannotBeSaved) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    at::Tensor inference;
    {
      c10::InferenceMode guard;
      inference = x.detach().exp();
    }
    for (CheckpointPolicy decision : {MUST_SAVE, PREFER_SAVE, MUST_CPU_OFFLOAD}) {
      expect_error([&] { tag_with_policy(inference, decision); }, {"Saving inference tensors is not supported"});
    }
    tag_with_policy(inference, MUST_RECOMPUTE);
    y = x.sin().cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(TagTest, RecomputingFromAPackedTensorPacksItAtOnce) {
  int packs = 0;
  SaveWithHooks hooks = {[&](const at::Tensor& t) {
                           ++packs;
                           return c10::IValue(t.clone());
                         },
                         [](const c10::IValue& v) { return v.toTensor(); }};
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("must_save_all");
    trace = scope.trace();
    at::Tensor a = x * 2;
    tag_with_policy(a, hooks);
    at::Tensor b = a + 1;
    EXPECT_EQ(packs, 0);  // nothing needs a yet
    tag_with_policy(b, MUST_RECOMPUTE);
    EXPECT_EQ(packs, 1);
    y = b.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x * 2 + 1).cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

TEST_F(TagTest, RecomputingWhatWasDrawnUnderAPolicyThatSavesIsNoOp) {
  const auto fn = [](const Tensors& in) {
    at::Tensor noise = at::rand_like(in[0]);
    tag_with_policy(noise, MUST_RECOMPUTE);
    return Tensors{in[0] * noise};
  };
  expect_same_gradients_and_replays(fn, {sample({4})}, 0, "must_save_all");
  expect_same_gradients_and_replays(fn, {sample({4})}, 1, [](const OpContext&) { return MUST_SAVE; });
}

TEST_F(TagTest, WorksInsideAnInnerScope) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope outer("recompute_all");
    trace = outer.trace();
    at::Tensor s = x.sin();
    {
      PolicyScope inner("recompute_all");
      tag_with_policy(s, MUST_SAVE);
    }
    y = s.cos();
  }
  gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

}  // namespace
}  // namespace ac2::test
