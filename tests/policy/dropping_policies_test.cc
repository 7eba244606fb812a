// Policies of the program's own that drop tensors while an op runs that reads them.
#include <functional>
#include <utility>
#include <vector>

#include "ac2/names.h"
#include "ac2/policy_instance.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;
using DroppingPoliciesTest = CleanTest;

// The variables through which ops are called, and what drops them.
struct Variables {
  at::Tensor h;
  at::Tensor t;
  std::vector<at::Tensor> others;  // references besides

  void make(const at::Tensor& x) {
    h = x.sin();
    t = at::ones({4});
  }
  void drop(bool others_have_them) {
    if (others_have_them && h.defined()) others = {h, t};
    h = t = at::Tensor();
  }
};

// Made of other ops, which read the variables after the first of them has run.
at::Tensor loss_of(const Variables& variables) {
  return at::cosine_embedding_loss(variables.h, variables.h, variables.t);
}

// The gradient of that loss for x, without a region.
at::Tensor expected_gradient(const at::Tensor& x) {
  Variables variables;
  variables.make(x);
  return gradient_of(loss_of(variables), x);
}

using Drop = std::function<void()>;
using MakePolicy = std::function<Policy(const Drop&)>;

std::vector<std::pair<const char*, MakePolicy>> policies_that_drop() {
  const MakePolicy callable = [](const Drop& drop) {
    return Policy([drop](const OpContext&) {
      drop();
      return PREFER_RECOMPUTE;
    });
  };
  const MakePolicy by_operator = [](const Drop& drop) {
    return Policy::by_operator([drop](const c10::OperatorHandle&) {
      drop();
      return PREFER_RECOMPUTE;
    });
  };
  return {
      {"callable", callable},
      {"by operator", by_operator},
      {"factory",
       [](const Drop& drop) {
         return Policy::factory([drop] {
           return [drop](const OpContext&) {
             drop();
             return PREFER_SAVE;
           };
         });
       }},
      {"per region",
       [](const Drop& drop) {
         return policy_per_region([drop] {
           PolicyInstance instance = enter_policy(Policy::constant(PREFER_SAVE));
           instance.constant.reset();
           instance.fn = [drop](const OpContext&) {
             drop();
             return PREFER_SAVE;
           };
           return instance;
         });
       }},
      {"first_of",
       [=](const Drop& drop) {
         return policies::first_of({policies::save_ops({"aten::mm"}), callable(drop)});
       }},
      {"overridden", [=](const Drop& drop) { return policies::per_op_override(by_operator(drop), {}); }},
      {"under another name", [=](const Drop& drop) { return callable(drop).named("mine"); }},
  };
}

using Op = std::function<at::Tensor(const Variables&)>;

const std::vector<std::pair<const char*, Op>>& ops() {
  static const auto& ops = *new std::vector<std::pair<const char*, Op>>{
      {"cos", [](const Variables& v) { return v.h.cos(); }},
      {"mul", [](const Variables& v) { return v.h * v.h; }},
      {"mm", [](const Variables& v) { return v.h.mm(v.h); }},
      {"a view", [](const Variables& v) { return v.h.t(); }},
      {"linear, made of other ops", [](const Variables& v) { return at::linear(v.h, v.h, v.h[0]); }},
      {"cosine_embedding_loss, made of other ops", &loss_of},
      {"a write",
       [](const Variables& v) {
         return at::ones({4, 4}).mul_(v.h);
       }},
      {"a list",
       [](const Variables& v) {
         return at::einsum("ij,jk,kl->il", {v.h, v.h, v.h});
       }},
  };
  return ops;
}

// The first test, since each later region holds the arguments of its ops.
// The region is open, under a policy without functions, when the decision with functions comes.
TEST_F(DroppingPoliciesTest, PackFunctionsOfATagMayDropTheArgumentsOfTheOpThatRuns) {
  const at::Tensor x = sample({4, 4});
  const at::Tensor expected = expected_gradient(x);
  Variables variables;
  const auto forward = [&] {
    variables.make(x);
    tag_with_policy(variables.h, SaveWithHooks{[&](const at::Tensor& tensor) {
                                                 variables.drop(false);
                                                 return c10::IValue(tensor.clone());
                                               },
                                               [](const c10::IValue& packed) { return packed.toTensor(); }});
    return loss_of(variables);
  };
  const at::Tensor y = apply_ac_policy_fn(forward, "recompute_all");
  EXPECT_FALSE(variables.h.defined());
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(DroppingPoliciesTest, MayDropTheArgumentsOfTheOpThatRuns) {
  const at::Tensor x = sample({4, 4});
  for (const auto& [policy_name, make_policy] : policies_that_drop()) {
    for (const auto& [op_name, op] : ops()) {
      for (const bool others_have_them : {false, true}) {
        SCOPED_TRACE(std::string(policy_name) + ", " + op_name);
        Variables variables;
        bool armed = false;
        const auto run = [&, op = op] {
          variables.make(x);
          armed = true;
          const at::Tensor result = op(variables);
          armed = false;
          return result.square();
        };
        const at::Tensor expected = gradient_of(run(), x);
        const Policy policy = make_policy([&] {
          if (armed) variables.drop(others_have_them);
        });
        const at::Tensor y = apply_ac_policy_fn(run, policy);
        EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
      }
    }
  }
}

// The inner scope's policy drops nothing: the outer one is asked all the same.
TEST_F(DroppingPoliciesTest, MayBeThoseOfAScopeAroundTheInnermost) {
  const at::Tensor x = sample({4, 4});
  const at::Tensor expected = expected_gradient(x);
  Variables variables;
  const auto forward = [&] {
    variables.make(x);
    PolicyScope inner(policies::save_compute_intensive());
    return loss_of(variables);
  };
  int asked = 0;
  const at::Tensor y = apply_ac_policy_fn(forward, [&](const OpContext&) {
    if (++asked > 1) variables.drop(true);
    return PREFER_RECOMPUTE;
  });
  EXPECT_FALSE(variables.h.defined());
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(DroppingPoliciesTest, NamesMayDropTheTensorThatIsNamed) {
  const at::Tensor x = sample({4, 4});
  const at::Tensor expected = gradient_of(x.sin().cos(), x);
  at::Tensor h;
  const Policy policy = Policy("recompute_all").with_names([&](const NamedTensor&) -> std::optional<PolicyDecision> {
    h = at::Tensor();
    return PREFER_SAVE;
  });
  const at::Tensor y = apply_ac_policy_fn(
      [&] {
        h = x.sin();
        const at::Tensor named = name_tensor(h, "h");
        return named.cos();
      },
      policy);
  EXPECT_FALSE(h.defined());
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

}  // namespace
}  // namespace ac2::test
