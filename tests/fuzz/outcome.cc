#include "tests/fuzz/outcome.h"

#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <functional>
#include <optional>
#include <sstream>

#include "tests/support/leak_check.h"
#include "tests/support/side_stream.h"
#include "tests/support/wait_for_engine.h"

namespace ac2::test {

namespace {

struct Start {
  Tensors inputs, leaves;
};

struct Runnable {
  const ProgramFn& program;
  std::function<Start()> start;
  bool retains_graph = false;
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

Outcome run(const Runnable& what, const Way& way, const Setting* setting) {
  std::optional<LeaksAreLibTorchs> leaks;
  if (setting == nullptr) leaks.emplace();
  Outcome outcome;
  std::vector<std::shared_ptr<const Trace>> traces;
  const auto look = [&] {
    if (setting == nullptr || !setting->look) return;
    for (const auto& trace : traces) setting->look(*trace);
  };
  try {
    const auto [inputs, leaves] = what.start();
    Tensors outputs;
    {
      Regions regions(setting, way.end);
      outputs = what.program(inputs, regions);
      traces = regions.traces();
      if (!way.device.is_cpu()) {
        for (const auto& trace : traces) outcome.offloaded_bytes += trace->stats().offloaded_bytes;
      }
    }
    look();
    append(outcome.tensors, outputs);
    append(outcome.tensors, inputs);
    outcome.tensors.push_back(generator_state());
    if (way.backward == Backward::kTwoDerivatives) {
      const Tensors first = derivative(outputs, leaves, /*retain_graph=*/true, /*create_graph=*/true);
      append(outcome.tensors, first);
      look();
      Tensors curved;
      for (const at::Tensor& gradient : first) {
        if (gradient.defined() && gradient.requires_grad()) curved.push_back(gradient);
      }
      append(outcome.tensors, derivative(curved, leaves, what.retains_graph, /*create_graph=*/false));
    } else {
      const int times = way.backward == Backward::kThreeTimes ? 3 : 1;
      for (int i = 1; i <= times; ++i) {
        append(outcome.tensors, derivative(outputs, leaves, what.retains_graph || i < times, /*create_graph=*/false));
        look();
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

}  // namespace

Outcome run(const ProgramFn& program, uint32_t input_seed, const Way& way, const Setting* setting) {
  const auto start = [&]() -> Start {
    at::manual_seed(input_seed);
    const Tensors inputs = inputs_of(input_seed, way.device);
    return {inputs, inputs};
  };
  return run({program, start}, way, setting);
}

Outcome run_on(const ProgramFn& program, const Tensors& inputs, const Tensors& leaves, const Way& way,
               const Setting* setting) {
  const auto start = [&]() -> Start { return {inputs, leaves}; };
  return run({program, start, /*retains_graph=*/true}, way, setting);
}

std::string differences(const Outcome& actual, const Outcome& expected) {
  std::ostringstream text;
  if (!actual.error.empty()) {
    text << "in regions it throws: " << actual.error << "\n";
  } else if (actual.tensors.size() != expected.tensors.size()) {
    text << actual.tensors.size() << " results instead of " << expected.tensors.size() << "\n";
  } else {
    for (size_t i = 0; i < expected.tensors.size(); ++i) {
      const auto same = same_bits(actual.tensors[i], expected.tensors[i]);
      if (!same) text << "result " << i << ": " << same.message() << "\n";
    }
  }
  return text.str();
}

void let_engine_go(c10::Device device) {
  at::ones({}).requires_grad_().sin().backward();
  wait_for_engine(device);
}

}  // namespace ac2::test
