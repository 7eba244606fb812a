#include "benchmarks/chain.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "benchmarks/counted_section.h"

namespace benchmarks {
namespace {

constexpr int64_t kLength = 2'000;

using Section = std::function<void(const char* name, const std::function<void()>& body)>;

void run_sections(const Link& link, const Around& around, const Section& section) {
  const at::Tensor gradient = torch::ones({8});
  at::Tensor y = leaf();
  section("forward", [&] { around([&] { y = run_chain(link, std::move(y), kLength); }); });
  section("backward", [&] {
    y.backward(gradient);
    y.reset();
  });
}

}  // namespace

at::Tensor leaf() {
  return torch::ones({8}, torch::requires_grad());
}

Link make_link(const std::string& op) {
  if (op == "cos") return [](const at::Tensor& x) { return x.cos(); };
  TORCH_CHECK(op == "mul", "Unknown op \"", op, "\"; there are chains of cos and of mul.");
  // One, so that a product of a million neither overflows nor becomes denormal.
  return [weight = leaf()](const at::Tensor& x) { return x * weight; };
}

at::Tensor run_chain(const Link& link, at::Tensor x, int64_t length) {
  for (int64_t i = 0; i < length; ++i) x = link(x);
  return x;
}

void run_counted_sections(const std::string& op, const std::string& only, const Around& around) {
  const Link link = make_link(op);
  // The first run is not counted: look-ups that happen once, and the first chunks of every pool, are no cost of an op.
  run_sections(link, around, [](const char*, const std::function<void()>& body) { body(); });
  run_sections(link, around, [&](const char* name, const std::function<void()>& body) {
    if (!only.empty() && only != name) return body();
    std::printf("%s %ld\n", name, static_cast<long>(kLength));
    counted_section(body);
  });
}

int run_plain_sections(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s cos|mul [forward|backward]\n", argv[0]);
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  run_counted_sections(argv[1], argc > 2 ? argv[2] : "", [](const std::function<void()>& forward) { forward(); });
  return EXIT_SUCCESS;
}

}  // namespace benchmarks
