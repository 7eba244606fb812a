#include "tests/random/compare.h"

#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <sstream>

#include "tests/random/dice.h"
#include "tests/support/leak_check.h"

namespace ac2::test {

namespace {

struct Outcome {
  Tensors tensors;  // everything that must be the same, in order
  std::string error;
  int64_t replayed_ops = 0;
  int64_t evicted_values = 0;
};

Tensors derivative(const Tensors& outputs, const Tensors& inputs, bool retain_graph, bool create_graph) {
  Tensors roots, output_gradients, leaves;
  for (const at::Tensor& output : outputs) {
    if (output.requires_grad() && output.numel() > 0) {
      roots.push_back(output);
      output_gradients.push_back(at::linspace(0.5, 1.5, output.numel(), output.options()).view(output.sizes()));
    }
  }
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  if (roots.empty()) return {};
  return torch::autograd::grad(roots, leaves, output_gradients, retain_graph, create_graph, /*allow_unused=*/true);
}

void append(Tensors& to, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) to.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
}

Outcome run(const ProgramFn& program, uint32_t input_seed, Backward backward, const Setting* setting) {
  Outcome outcome;
  at::manual_seed(input_seed);
  const Tensors inputs = inputs_of(input_seed);
  std::vector<std::shared_ptr<const Trace>> traces;
  try {
    Tensors outputs;
    {
      Regions regions(setting);
      outputs = program(inputs, regions);
      traces = regions.traces();
    }
    append(outcome.tensors, outputs);
    append(outcome.tensors, inputs);
    outcome.tensors.push_back(generator_state());
    if (backward == Backward::kTwoDerivatives) {
      const Tensors first = derivative(outputs, inputs, /*retain_graph=*/true, /*create_graph=*/true);
      append(outcome.tensors, first);
      Tensors curved;
      for (const at::Tensor& gradient : first) {
        if (gradient.defined() && gradient.requires_grad()) curved.push_back(gradient);
      }
      append(outcome.tensors, derivative(curved, inputs, /*retain_graph=*/false, /*create_graph=*/false));
    } else {
      const int times = backward == Backward::kThreeTimes ? 3 : 1;
      for (int i = 1; i <= times; ++i) {
        append(outcome.tensors, derivative(outputs, inputs, /*retain_graph=*/i < times, /*create_graph=*/false));
      }
    }
    outcome.tensors.push_back(generator_state());
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  for (const auto& trace : traces) {
    outcome.replayed_ops += trace->stats().recomputed_ops;
    outcome.evicted_values += trace->stats().evicted_values;
  }
  return outcome;
}

}  // namespace

Way Way::draw(uint32_t seed) {
  Dice dice(seed + 77);
  Way way;
  way.setting.must = dice.roll(3);
  const uint32_t policy = dice.roll(5);
  way.setting.policy = policy < 3 ? policy : 3 + dice.roll(1000);
  way.setting.verify = dice.roll(4) == 0;
  way.setting.budget = dice.roll(3) == 0 ? 0 : 32 << dice.roll(8);
  const int backward = dice.roll(4);
  way.backward = backward == 0 ? Backward::kThreeTimes : backward == 1 ? Backward::kTwoDerivatives : Backward::kOnce;
  way.setting.names = dice.roll(2) == 0;
  return way;
}

std::string Way::source() const {
  static constexpr const char* kNames[] = {"kOnce", "kThreeTimes", "kTwoDerivatives"};
  std::ostringstream text;
  text << "{.setting = {.policy = " << setting.policy << ", .must = " << setting.must
       << ", .verify = " << (setting.verify ? "true" : "false") << ", .budget = " << setting.budget
       << ", .names = " << (setting.names ? "true" : "false")
       << "}, .backward = Backward::" << kNames[static_cast<int>(backward)] << "}";
  return text.str();
}

Verdict compare(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  const Outcome expected = [&] {
    const LeaksAreLibTorchs guard;
    return run(program, input_seed, way.backward, nullptr);
  }();
  if (!expected.error.empty()) {
    Verdict none;
    none.counts = false;
    return none;
  }
  const int64_t nodes_before = live_node_count();
  std::ostringstream difference;
  Verdict verdict;
  {
    const Outcome actual = run(program, input_seed, way.backward, &way.setting);
    verdict.replayed_ops = actual.replayed_ops;
    verdict.evicted_values = actual.evicted_values;
    if (way.setting.budget > 0 && is_of_budget(actual.error)) {
      verdict.counts = false;  // but nothing may be left behind
    } else if (!actual.error.empty()) {
      difference << "in regions it throws: " << actual.error << "\n";
    } else if (actual.tensors.size() != expected.tensors.size()) {
      difference << actual.tensors.size() << " results instead of " << expected.tensors.size() << "\n";
    } else {
      for (size_t i = 0; i < expected.tensors.size(); ++i) {
        const auto same = same_bits(actual.tensors[i], expected.tensors[i]);
        if (!same) difference << "result " << i << ": " << same.message() << "\n";
      }
    }
  }
  if (!verdict.counts) {
    // After an error LibTorch keeps the tasks that it did not come to until the thread's next backward.
    at::ones({}).requires_grad_().sin().backward();
  }
  if (live_node_count() != nodes_before) difference << live_node_count() - nodes_before << " nodes are left behind\n";
  if (is_checkpoint_enabled()) difference << "a region is left open\n";
  verdict.difference = difference.str();
  return verdict;
}

}  // namespace ac2::test
