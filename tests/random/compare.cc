#include "tests/random/compare.h"

#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <sstream>

#include "tests/random/dice.h"
#include "tests/random/functions.h"
#include "tests/support/leak_check.h"
#include "tests/support/wait_for_engine.h"

namespace ac2::test {

namespace {

struct Outcome {
  Tensors tensors;  // everything that must be the same, in order
  std::string error;
  int64_t replayed_ops = 0;
  int64_t evicted_values = 0;
  int64_t offloaded_bytes = 0;
  int64_t copied_bytes = 0;
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
  const Tensors found =
      torch::autograd::grad(roots, leaves, output_gradients, retain_graph, create_graph, /*allow_unused=*/true);
  // Computed on the streams of the ops, and read on this one.
  for (const at::Tensor& gradient : found) {
    if (gradient.defined()) use_on_current_stream(gradient);
  }
  return found;
}

void append(Tensors& to, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) to.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
}

Outcome run(const ProgramFn& program, uint32_t input_seed, const Way& way, const Setting* setting) {
  Outcome outcome;
  std::vector<std::shared_ptr<const Trace>> traces;
  try {
    at::manual_seed(input_seed);
    const Tensors inputs = inputs_of(input_seed, way.device);
    Tensors outputs;
    {
      Regions regions(setting);
      outputs = program(inputs, regions);
      traces = regions.traces();
      if (!way.device.is_cpu()) {
        for (const auto& trace : traces) outcome.offloaded_bytes += trace->stats().offloaded_bytes;
      }
    }
    append(outcome.tensors, outputs);
    append(outcome.tensors, inputs);
    outcome.tensors.push_back(generator_state());
    if (way.backward == Backward::kTwoDerivatives) {
      const Tensors first = derivative(outputs, inputs, /*retain_graph=*/true, /*create_graph=*/true);
      append(outcome.tensors, first);
      Tensors curved;
      for (const at::Tensor& gradient : first) {
        if (gradient.defined() && gradient.requires_grad()) curved.push_back(gradient);
      }
      append(outcome.tensors, derivative(curved, inputs, /*retain_graph=*/false, /*create_graph=*/false));
    } else {
      const int times = way.backward == Backward::kThreeTimes ? 3 : 1;
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
  // Not before: it would wait for the device.
  for (at::Tensor& tensor : outcome.tensors) {
    if (tensor.defined()) tensor = tensor.cpu();
  }
  for (const auto& trace : traces) {
    outcome.replayed_ops += trace->stats().recomputed_ops;
    outcome.evicted_values += trace->stats().evicted_values;
    outcome.copied_bytes += trace->stats().copied_bytes;
  }
  return outcome;
}

// After an error LibTorch keeps the tasks that it did not come to until the thread's next backward.
void let_engine_go(c10::Device device) {
  at::ones({}).requires_grad_().sin().backward();
  wait_for_engine(device);
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

Way Way::draw_offloading(uint32_t seed, c10::Device device) {
  Way way = draw(seed);
  Dice dice(seed + 7777);
  way.device = device;
  way.setting.must = dice.roll(4) == 0 ? way.setting.must : 3;
  way.setting.prefers_offload = dice.roll(2) == 0;
  if (way.setting.policy == 0) way.setting.policy = 3 + dice.roll(1000);
  if (dice.roll(2) == 0) way.setting.budget = 0;
  const auto bytes = [&dice] { return dice.roll(3) == 0 ? int64_t{1} << 20 : int64_t{32} << dice.roll(5); };
  way.setting.offload = {.min_bytes = dice.roll(4) == 0 ? 64 : 0,
                         .inputs = dice.roll(2) == 0,
                         .read_ahead_bytes = dice.roll(4) == 0 ? 0 : bytes(),
                         .in_flight_bytes = dice.roll(4) == 0 ? 0 : bytes()};
  if (dice.roll(4) == 0) way.setting.offload.max_pinned_bytes = 512 * dice.roll(20);
  return way;
}

std::string Way::source() const {
  static constexpr const char* kNames[] = {"kOnce", "kThreeTimes", "kTwoDerivatives"};
  std::ostringstream text;
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  text << "{.setting = {.policy = " << setting.policy << ", .must = " << setting.must
       << ", .verify = " << truth(setting.verify) << ", .budget = " << setting.budget
       << ", .names = " << truth(setting.names);
  if (!setting.inner_policies) text << ", .inner_policies = false";
  if (!setting.tags) text << ", .tags = false";
  if (!device.is_cpu()) {
    const OffloadOptions& offload = setting.offload;
    text << ", .prefers_offload = " << truth(setting.prefers_offload)
         << ", .offload = {.min_bytes = " << offload.min_bytes << ", .inputs = " << truth(offload.inputs)
         << ", .read_ahead_bytes = " << offload.read_ahead_bytes << ", .in_flight_bytes = " << offload.in_flight_bytes
         << ", .max_pinned_bytes = " << offload.max_pinned_bytes << "}";
  }
  text << "}, .backward = Backward::" << kNames[static_cast<int>(backward)];
  if (!device.is_cpu()) text << ", .device = device";
  text << "}";
  return text.str();
}

Verdict compare(const ProgramFn& program, uint32_t input_seed, const Way& way,
                const std::function<void()>& after_plain) {
  const Outcome expected = [&] {
    const LeaksAreLibTorchs guard;
    return run(program, input_seed, way, nullptr);
  }();
  let_engine_go(way.device);
  after_plain();
  if (!expected.error.empty()) {
    Verdict none;
    none.counts = false;
    return none;
  }
  const int64_t nodes_before = live_node_count();
  std::ostringstream difference;
  Verdict verdict;
  {
    const Outcome actual = run(program, input_seed, way, &way.setting);
    verdict.replayed_ops = actual.replayed_ops;
    verdict.evicted_values = actual.evicted_values;
    verdict.offloaded_bytes = actual.offloaded_bytes;
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
  verdict.difference = difference.str() + left_behind(way, nodes_before);
  return verdict;
}

Ended run_plain(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  const LeaksAreLibTorchs guard;
  return {.error = run(program, input_seed, way, nullptr).error};
}

Ended run_in_regions(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  const Outcome outcome = run(program, input_seed, way, &way.setting);
  return {.error = outcome.error, .copied_bytes = outcome.copied_bytes};
}

std::string left_behind(const Way& way, int64_t nodes_before) {
  let_engine_go(way.device);
  std::ostringstream left;
  if (live_node_count() != nodes_before) left << live_node_count() - nodes_before << " nodes are left behind\n";
  if (is_checkpoint_enabled()) left << "a region is left open\n";
  return left.str();
}

}  // namespace ac2::test
