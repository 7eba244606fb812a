// The result of a collective that is on its way is not copied to the host before its wait. The op here only counts its
// calls; its bytes come when a test says so.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <functional>
#include <string>

#include "ac2/names.h"
#include "ac2/scope.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;

at::Tensor exchange(const at::Tensor& x, const std::string& /*group_name*/) {
  return x * 2;
}

TORCH_LIBRARY_FRAGMENT(_c10d_functional, m) {
  m.def("ac2_offload_exchange(Tensor x, str name) -> Tensor");
}
TORCH_LIBRARY_IMPL(_c10d_functional, PrivateUse1, m) {
  m.impl("ac2_offload_exchange", &exchange);
}

at::Tensor call_exchange(const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("_c10d_functional::ac2_offload_exchange", "")
      .typed<at::Tensor(const at::Tensor&, const std::string&)>()
      .call(x, "0");
}

at::Tensor wait_for(const at::Tensor& result) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(result);
}

// As the collective writes: unseen, and after it has returned.
void arrive_with(const at::Tensor& result, const at::Tensor& bytes) {
  const DisableCheckpointing unseen;
  const at::NoGradGuard no_grad;
  result.detach().copy_(bytes);
}

class OffloadCollectivesTest : public OffloadTest {
 protected:
  // `decide` is called with the result before the wait.
  void expect_no_copy_before_the_wait(const Policy& policy, const std::function<void(const at::Tensor&)>& decide) {
    const at::Tensor factor = leaf(sample({kNumbers}));
    const at::Tensor bytes = leaf(constant({kNumbers})), sent = leaf(constant({kNumbers}));
    {
      const PolicyScope scope(policy, {.offload = all_sizes()});
      const at::Tensor result = call_exchange(sent);
      decide(result);
      const at::Tensor product = result * factor;  // autograd saves the result
      EXPECT_EQ(scope.trace()->stats().offloaded_bytes, 0);
      EXPECT_EQ(fake_.pending_copies(), 0);
      arrive_with(result, bytes);
      wait_for(result);
      product.sum().backward();
    }
    EXPECT_TRUE(same_bits(factor.grad().cpu(), bytes.cpu()));
  }
};

TEST_F(OffloadCollectivesTest, APolicyThatOffloadsCopiesNoResultBeforeTheWait) {
  for (const Policy& policy : {Policy(MUST_CPU_OFFLOAD), Policy(PREFER_CPU_OFFLOAD),
                               Policy([](const OpContext&) { return MUST_CPU_OFFLOAD; })}) {
    expect_no_copy_before_the_wait(policy, [](const at::Tensor&) {});
  }
}

TEST_F(OffloadCollectivesTest, ATagOrANameThatOffloadsCopiesNoResultBeforeTheWait) {
  expect_no_copy_before_the_wait("recompute_all",
                                 [](const at::Tensor& result) { tag_with_policy(result, MUST_CPU_OFFLOAD); });
  const auto offloads = [](const NamedTensor&) -> std::optional<PolicyDecision> { return MUST_CPU_OFFLOAD; };
  expect_no_copy_before_the_wait(Policy("recompute_all").with_names(offloads),
                                 [](const at::Tensor& result) { name_tensor(result, "result"); });
}

TEST_F(OffloadCollectivesTest, ATagAfterTheWaitOffloads) {
  const at::Tensor factor = leaf(sample({kNumbers})), bytes = leaf(constant({kNumbers}));
  {
    const PolicyScope scope("recompute_all", {.offload = all_sizes()});
    at::Tensor result = call_exchange(leaf(constant({kNumbers})));
    arrive_with(result, bytes);
    result = wait_for(result);
    tag_with_policy(result, MUST_CPU_OFFLOAD);
    const at::Tensor product = result * factor;
    EXPECT_EQ(scope.trace()->stats().offloaded_bytes, kBytes);
    product.sum().backward();
  }
  EXPECT_TRUE(same_bits(factor.grad().cpu(), bytes.cpu()));
}

}  // namespace
}  // namespace ac2::test
