// The chains of record_benchmark in sections that callgrind can tell apart; count_instructions.sh runs it and makes the
// table. Alone it only prints the names of the sections, in the order in which they run. With an argument it has only
// the section of that name, for a profile:
//
//   valgrind --tool=callgrind --toggle-collect=counted_section bazel-bin/benchmarks/chain_sections "cos recompute_all
//   forward"
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

std::string only;  // the section that counts; empty: all

using Link = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor leaf() {
  return torch::ones({8}, torch::requires_grad());
}

void run_chain(const Link& link, const std::string& op, const std::string& policy, bool counted) {
  const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(policy);
  const at::Tensor gradient = torch::ones({8});
  const auto section = [&](const char* name, const std::function<void()>& body) {
    const std::string full_name = op + " " + policy + " " + name;
    if (!counted || (!only.empty() && full_name != only)) {
      return body();
    }
    std::printf("%s %ld\n", full_name.c_str(), static_cast<long>(kLength));
    counted_section(body);
  };
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
  only = argc > 1 ? argv[1] : "";
  at::set_num_threads(1);
  for (const std::string op : {"cos", "mul"}) {
    const at::Tensor weight = leaf();
    const Link cos = [](const at::Tensor& x) { return x.cos(); };
    const Link mul = [&weight](const at::Tensor& x) { return x * weight; };
    for (const std::string policy : {"none", "recompute_all", "must_save_all", "1024GiB"}) {
      // What is looked up once, and the first chunks of every pool, are no cost of an op.
      run_chain(op == "cos" ? cos : mul, op, policy, /*counted=*/false);
      run_chain(op == "cos" ? cos : mul, op, policy, /*counted=*/true);
    }
  }
  return EXIT_SUCCESS;
}
