// A chain of record_benchmark in sections that callgrind can tell apart: `chain_sections cos recompute_all` runs it
// once to warm up and once for the count, and prints the names of its sections, "forward" and "backward", in that
// order; count_instructions.sh makes the table. With the name of a section behind it, it has only that one, for a
// profile:
//
//   valgrind --tool=callgrind --toggle-collect=counted_section bazel-bin/benchmarks/chain_sections cos recompute_all
//   forward
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "ac2/ac2.h"
#include "examples/checkpointing.h"

// Callgrind counts what runs in here, under this name, and writes one file each time it ends.
extern "C" [[gnu::noinline]] void counted_section(const std::function<void()>& section) {
  section();
  asm volatile("" ::: "memory");  // no tail call, which would end the count too early
}

namespace {

constexpr int64_t kLength = 2'000;

using Link = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor leaf() {
  return torch::ones({8}, torch::requires_grad());
}

Link make_link(const std::string& op) {
  if (op == "cos") return [](const at::Tensor& x) { return x.cos(); };
  TORCH_CHECK(op == "mul", "Unknown op \"", op, "\"; there are chains of cos and of mul.");
  return [weight = leaf()](const at::Tensor& x) { return x * weight; };
}

using Section = std::function<void(const char* name, const std::function<void()>& body)>;

void run_chain(const Link& link, const gpt::Checkpointing& checkpointing, const Section& section) {
  const at::Tensor gradient = torch::ones({8});
  at::Tensor y = leaf();
  section("forward", [&] {
    gpt::checkpointed(checkpointing, [&] {
      for (int64_t i = 0; i < kLength; ++i) y = link(y);
    });
  });
  section("backward", [&] {
    y.backward(gradient);
    y.reset();
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: chain_sections cos|mul POLICY [forward|backward]\n");
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  const Link link = make_link(argv[1]);
  const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(argv[2]);
  const std::string only = argc > 3 ? argv[3] : "";
  // What is looked up once, and the first chunks of every pool, are no cost of an op.
  run_chain(link, checkpointing, [](const char*, const std::function<void()>& body) { body(); });
  run_chain(link, checkpointing, [&](const char* name, const std::function<void()>& body) {
    if (!only.empty() && only != name) return body();
    std::printf("%s %ld\n", name, static_cast<long>(kLength));
    counted_section(body);
  });
  return EXIT_SUCCESS;
}
