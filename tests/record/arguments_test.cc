// Every kind of argument and result that a schema can have is recorded and replayed.
//
// In each case the op under test is followed by sin(), whose backward needs its result, so that it
// must be replayed, and its inputs are results of sin() as well, which it must be replayed from.
#include <ATen/ScalarOps.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/front_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

struct Case {
  const char* name;
  int64_t replays;
  TensorFn op;
  Tensors (*inputs)() = [] { return Tensors{sample({4, 6}), sample({4, 6})}; };
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class ArgumentsTest : public CleanTest, public ::testing::WithParamInterface<Case> {};

Tensors sines(const Tensors& tensors) {
  Tensors results;
  for (const at::Tensor& t : tensors) {
    results.push_back(t.defined() && t.is_floating_point() ? t.sin() : t);
  }
  return results;
}

TEST_P(ArgumentsTest, AreReplayedAsTheyWere) {
  const Case& c = GetParam();
  auto fn = [&c](const Tensors& in) { return sines(c.op(sines(in))); };
  Tensors inputs = c.inputs();
  expect_same_gradients_and_replays(fn, inputs, c.replays);
  // Saved instead of recomputed: nothing is replayed, and the gradients are still the same.
  expect_same_gradients_and_replays(fn, inputs, 0, "must_save_all");
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

Tensors one() {
  return {sample({4, 6})};
}
Tensors square() {
  return {sample({5, 5})};
}
Tensors images() {
  return {sample({2, 3, 4, 4})};
}
Tensors with_indices() {
  return {sample({4, 6}), at::tensor({int64_t{2}, int64_t{0}, int64_t{2}})};
}

c10::List<std::optional<at::Tensor>> at_columns(const at::Tensor& columns) {
  return c10::List<std::optional<at::Tensor>>({std::optional<at::Tensor>(), columns});
}

c10::List<std::optional<at::Tensor>> both(const at::Tensor& indices) {
  return c10::List<std::optional<at::Tensor>>({indices, indices});
}

// Replays: one sin per input that requires a gradient, and the op.
INSTANTIATE_TEST_SUITE_P(
    Lists, ArgumentsTest,
    ::testing::Values(
        Case{"cat", 3, [](const Tensors& t) { return Tensors{at::cat(t, 1)}; }},
        Case{"stack", 3, [](const Tensors& t) { return Tensors{at::stack(t)}; }},
        Case{"cat_of_one_tensor_twice", 2,
             [](const Tensors& t) {
               return Tensors{at::cat({t[0], t[0]})};
             },
             one},
        Case{"a_list_as_result", 4,  // sin, sin, _foreach_add, _foreach_exp
             [](const Tensors& t) { return at::_foreach_exp(at::_foreach_add(t, 1)); }},
        Case{"a_list_written_in_place", 3,
             [](const Tensors& t) {
               at::_foreach_mul_(t, 3);
               return t;
             }},
        Case{"index_with_tensors", 2, [](const Tensors& t) { return Tensors{at::index(t[0], both(t[1]))}; },
             with_indices},
        Case{"index_with_an_undefined_tensor", 2,
             [](const Tensors& t) { return Tensors{at::index(t[0], at_columns(t[1]))}; }, with_indices},
        Case{"index_put_with_tensors", 3,
             [](const Tensors& t) { return Tensors{at::index_put(t[0], at_columns(t[1]), t[2], /*accumulate=*/true)}; },
             [] {
               return Tensors{sample({4, 6}), at::tensor({int64_t{2}, int64_t{0}, int64_t{2}}), sample({4, 3})};
             }},
        Case{"list_of_integers", 2,
             [](const Tensors& t) {
               return Tensors{t[0].repeat({2, 1, 3})};
             },
             one},
        Case{"padding", 2,
             [](const Tensors& t) {
               return Tensors{at::constant_pad_nd(t[0], {1, -1, 0, 2}, 0.5)};
             },
             one},
        Case{"optional_list_of_numbers", 2,
             [](const Tensors& t) {
               return Tensors{at::upsample_nearest2d(t[0], std::nullopt, c10::ArrayRef<double>{2.0, 1.5})};
             },
             images}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Scalars, ArgumentsTest,
    ::testing::Values(Case{"keyword", 3, [](const Tensors& t) { return Tensors{at::add(t[0], t[1], 2.5)}; }},
                      Case{"float_scalar", 2, [](const Tensors& t) { return Tensors{t[0].mul(0.1)}; }, one},
                      Case{"integer_scalar", 2, [](const Tensors& t) { return Tensors{t[0].mul(3)}; }, one},
                      Case{"boolean_scalar", 2, [](const Tensors& t) { return Tensors{t[0].mul(true)}; }, one},
                      // pow(2, sin(x)) needs its own result too: the same one.
                      Case{"scalar_base", 2, [](const Tensors& t) { return Tensors{at::pow(2.0, t[0])}; }, one},
                      Case{"string", 2, [](const Tensors& t) { return Tensors{at::gelu(t[0], "tanh")}; }, one},
                      Case{"optional_string", 4,  // sin, sin, div, add
                           [](const Tensors& t) { return Tensors{at::div(t[0], t[1], "trunc") + t[0]}; }},
                      Case{"optional_scalar_given", 2,
                           [](const Tensors& t) { return Tensors{at::clamp(t[0], -0.5, std::nullopt)}; }, one},
                      Case{"optional_tensor_undefined", 3,
                           [](const Tensors& t) { return Tensors{at::clamp(t[0], std::nullopt, t[1])}; }},
                      Case{"a_number_in_a_tensor_does_not_promote", 2,
                           [](const Tensors& t) {
                             at::Tensor number = at::scalar_tensor(0.1, at::kDouble);
                             number.unsafeGetTensorImpl()->set_wrapped_number(true);
                             at::Tensor product = t[0] * number;
                             EXPECT_EQ(product.scalar_type(), at::kFloat);
                             return Tensors{product};
                           },
                           one},
                      // A double without dimensions does not promote either, one with dimensions does.
                      Case{"a_tensor_without_dimensions", 3, [](const Tensors& t) { return Tensors{t[0] * t[1]}; },
                           [] {
                             return Tensors{sample({3, 2}), sample({}, at::kDouble)};
                           }},
                      Case{"promotion_to_double", 3, [](const Tensors& t) { return Tensors{t[0] * t[1]}; },
                           [] {
                             return Tensors{sample({3, 2}), sample({2}, at::kDouble)};
                           }},
                      Case{"symbolic_sizes", 2,
                           [](const Tensors& t) {
                             return Tensors{t[0].expand({3, 4, 6}).clone()};
                           },
                           one}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    TypesAndFormats, ArgumentsTest,
    ::testing::Values(
        Case{"conversion_to_double", 2, [](const Tensors& t) { return Tensors{t[0].to(at::kDouble)}; }, one},
        Case{"sum_with_dtype", 2, [](const Tensors& t) { return Tensors{t[0].sum({1}, true, at::kDouble)}; }, one},
        Case{"cumsum_with_dtype", 2, [](const Tensors& t) { return Tensors{t[0].cumsum(0, at::kDouble)}; }, one},
        Case{"softmax_with_dtype", 3,  // sin, _to_copy, _softmax
             [](const Tensors& t) { return Tensors{at::softmax(t[0], 1, at::kDouble)}; }, one},
        Case{"half_precision", 3, [](const Tensors& t) { return Tensors{t[0].matmul(t[1])}; },
             [] {
               return Tensors{sample({3, 4}, at::kBFloat16), sample({4, 2}, at::kBFloat16)};
             }},
        Case{"channels_last_clone", 2,
             [](const Tensors& t) { return Tensors{t[0].contiguous(at::MemoryFormat::ChannelsLast)}; }, images},
        Case{"channels_last_kept", 3,
             [](const Tensors& t) {
               at::Tensor c = t[0].contiguous(at::MemoryFormat::ChannelsLast).mul(2);
               EXPECT_TRUE(c.is_contiguous(at::MemoryFormat::ChannelsLast));
               return Tensors{c};
             },
             images},
        Case{"transposed_input", 2, [](const Tensors& t) { return Tensors{t[0].t().mul(2)}; }, one},
        Case{"strided_input", 2, [](const Tensors& t) { return Tensors{t[0].slice(1, 0, 6, 2).t().mul(2)}; }, one},
        Case{"expanded_input", 2,
             [](const Tensors& t) {
               return Tensors{t[0].select(0, 1).expand({3, 6}).mul(2)};
             },
             one}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Results, ArgumentsTest,
    ::testing::Values(
        // Views: nothing to replay but sin's result, which they view.
        Case{"split", 1, [](const Tensors& t) { return t[0].split(3, 1); }, one},
        Case{"unbind", 1, [](const Tensors& t) { return t[0].unbind(1); }, one},
        Case{"chunk", 1, [](const Tensors& t) { return t[0].chunk(2); }, one},
        Case{"topk", 2, [](const Tensors& t) { return Tensors{std::get<0>(t[0].topk(3))}; }, one},
        Case{"both_of_topk", 2,
             [](const Tensors& t) {
               auto [values, indices] = t[0].topk(3);
               return Tensors{values, indices};
             },
             one},
        Case{"sort", 2, [](const Tensors& t) { return Tensors{std::get<0>(t[0].sort(1, true))}; }, one},
        Case{"var_mean", 2,
             [](const Tensors& t) {
               auto [variance, mean] = at::var_mean(t[0], at::OptionalIntArrayRef({1}), 0);
               return Tensors{variance, mean};
             },
             one},
        Case{"svd", 2,
             [](const Tensors& t) {
               auto [u, s, v] = at::linalg_svd(t[0], /*full_matrices=*/false);
               return Tensors{s};
             },
             one},
        Case{"max_with_dimension", 2, [](const Tensors& t) { return Tensors{std::get<0>(t[0].max(1))}; }, one},
        Case{"an_unused_integer_result", 4,  // sin, mul, add, slogdet; eye is kept
             [](const Tensors& t) {
               auto [sign, logarithm] = at::linalg_slogdet(t[0] + at::eye(5) * 3);
               return Tensors{logarithm};
             },
             square},
        Case{"undefined_arguments", 4,  // sin, sin, mul, layer norm
             [](const Tensors& t) {
               auto [y, mean, rstd] = at::native_layer_norm(t[0] * t[1], {6}, {}, {}, 1e-5);
               return Tensors{y};
             }},
        Case{"an_unused_result", 2, [](const Tensors& t) { return Tensors{std::get<0>(t[0].cummax(1))}; }, one}),
    case_name);

// Calls `ask` before each allocation, so in the middle of an op.
class AskingAllocator final : public FrontAllocator<c10::Allocator> {
 public:
  AskingAllocator() : FrontAllocator(*c10::GetCPUAllocator()) {}

  c10::DataPtr allocate(size_t nbytes) override {
    if (ask) ask();
    return behind_.allocate(nbytes);
  }

  std::function<void()> ask;
};

// With LibTorch 2.10 and later a second reference to a tensor that Python has takes the GIL.
TEST(CommonOpsTest, AreCalledWithoutAnotherReferenceToTheirTensors) {
  const at::Tensor x = sample({3, 3}).detach(), y = sample({3, 3}).detach(), positive = x > 0;
  AskingAllocator& allocator = installed_allocator<AskingAllocator>();
  const auto references_of_ops = [&] {
    std::vector<size_t> references;
    allocator.ask = [&] { references.push_back(x.use_count() + y.use_count()); };
    x.cos();
    x + y;
    at::where(positive, x, y);  // takes references itself
    x.clamp(0.25, 0.5);
    x.sum(at::IntArrayRef{0, 1}, true);
    x.mm(y);
    allocator.ask = nullptr;
    return references;
  };
  const std::vector<size_t> plain = references_of_ops();
  EXPECT_GE(plain.size(), 6);
  EXPECT_EQ(apply_ac_policy_fn(references_of_ops, "recompute_all"), plain);
  EXPECT_EQ(x.use_count() + y.use_count(), 2);
}

// A policy is code of the program's, and so may let go of whatever the program has.
TEST(CommonOpsTest, APolicyMayDropTheLastReferenceToAnArgument) {
  const at::Tensor x = sample({3, 3});
  using Op = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, Op>> ops = {
      {"aten::cos", [](const at::Tensor& h) { return h.cos(); }},
      {"aten::mul.Tensor", [](const at::Tensor& h) { return h * h; }},
      {"aten::mm", [](const at::Tensor& h) { return h.mm(h); }},
      {"aten::where.self", [](const at::Tensor& h) { return at::where(h > 0, h, h); }},
      {"aten::sum.dim_IntList", [](const at::Tensor& h) { return h.sum(at::IntArrayRef{0}, true); }},
      {"aten::_log_softmax", [](const at::Tensor& h) { return at::cross_entropy_loss(h, h.detach().softmax(1)); }},
      {"aten::logsumexp", [](const at::Tensor& h) { return h.logsumexp(at::IntArrayRef{0}); }},  // not a typed kernel
  };
  for (const auto& [name, op] : ops) {
    const at::Tensor expected = gradient_of(op(x.sin()).exp(), x);
    at::Tensor h = x.sin();
    const Policy policy = [&, name = name](const OpContext& context) {
      if (context.is(name)) h = at::Tensor();
      return CheckpointPolicy::PREFER_RECOMPUTE;
    };
    const at::Tensor y = apply_ac_policy_fn([&] { return op(h).exp(); }, policy);
    EXPECT_FALSE(h.defined()) << name;
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected)) << name;
  }
  expect_nothing_left();
}

}  // namespace
}  // namespace ac2::test
