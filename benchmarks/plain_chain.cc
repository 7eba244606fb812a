#include "benchmarks/plain_chain.h"

#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

extern "C" [[gnu::noinline]] void counted_section(const std::function<void()>& section) {
  section();
  asm volatile("" ::: "memory");  // no tail call, which would end the count too early
}

namespace benchmarks {
namespace {

constexpr int64_t kLength = 2'000;

using Link = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor leaf() {
  return torch::ones({8}, torch::requires_grad());
}

void run_chain(const Link& link, const std::string& counted) {
  const at::Tensor gradient = torch::ones({8});
  const auto section = [&](const char* name, const std::function<void()>& body) {
    if (counted != name) return body();
    counted_section(body);
  };
  at::Tensor y = leaf();
  section("forward", [&] {
    for (int64_t i = 0; i < kLength; ++i) y = link(y);
  });
  section("backward", [&] {
    y.backward(gradient);
    y.reset();
  });
}

}  // namespace

int run_plain_chain(int argc, char** argv) {
  const std::string op = argc > 1 ? argv[1] : "", counted = argc > 2 ? argv[2] : "";
  if ((op != "cos" && op != "mul") || (counted != "forward" && counted != "backward")) {
    std::fprintf(stderr, "usage: %s cos|mul forward|backward\n", argv[0]);
    return EXIT_FAILURE;
  }
  const at::Tensor weight = leaf();
  const Link cos = [](const at::Tensor& x) { return x.cos(); };
  const Link mul = [&weight](const at::Tensor& x) { return x * weight; };
  const Link& link = op == "cos" ? cos : mul;
  run_chain(link, "");
  run_chain(link, counted);
  return EXIT_SUCCESS;
}

}  // namespace benchmarks
