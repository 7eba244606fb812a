// The bytes that a chain holds for backward after forward, in bytes of malloc an op, all included: tensors, autograd's
// nodes and ac2's. Without a region and under policies, for chains of several lengths.
//
//   chain_bytes            cos and mul on 8 elements
#include <ATen/Parallel.h>
#include <malloc.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "benchmarks/chain.h"
#include "examples/checkpointing.h"

namespace {

int64_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

double bytes_an_op(const std::string& op, const gpt::Checkpointing& checkpointing, int64_t length) {
  const benchmarks::Link link = benchmarks::make_link(op);
  const at::Tensor x = benchmarks::leaf();
  const int64_t before = bytes_in_use();
  at::Tensor y;
  gpt::checkpointed(checkpointing, [&] { y = benchmarks::run_chain(link, x, length); });
  return static_cast<double>(bytes_in_use() - before) / static_cast<double>(length);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  std::printf("| op, policy | %10d | %10d | %10d |\n|---|---:|---:|---:|\n", 1'000, 10'000, 100'000);
  for (const char* op : {"cos", "mul"}) {
    for (const char* policy : {"none", "recompute_all", "must_save_all"}) {
      const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(policy);
      bytes_an_op(op, checkpointing, 1'000);  // what the first region and op make once
      std::printf("| %s, %s |", op, policy);
      for (const int64_t length : {1'000, 10'000, 100'000}) {
        std::printf(" %10.0f |", bytes_an_op(op, checkpointing, length));
      }
      std::printf("\n");
    }
  }
  return EXIT_SUCCESS;
}
