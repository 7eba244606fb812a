// A chain outside all regions, in a process that has had some; see plain_chain.h. instructions_by_part compares it with
// plain_sections.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "ac2/ac2.h"
#include "benchmarks/plain_chain.h"

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const at::Tensor x = torch::ones({8}, torch::requires_grad());
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    at::Tensor y;
    {
      const ac2::PolicyScope scope(policy);
      y = (x.cos() * x).cos();
    }
    y.sum().backward();
  }
  return benchmarks::run_plain_chain(argc, argv);
}
