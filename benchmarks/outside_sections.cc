// A chain outside all regions, in a process that has had some; see chain.h. instructions_by_part compares it with
// plain_sections.
#include "ac2/ac2.h"
#include "benchmarks/chain.h"

int main(int argc, char** argv) {
  const at::Tensor x = benchmarks::leaf();
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    at::Tensor y;
    {
      const ac2::PolicyScope scope(policy);
      y = (x.cos() * x).cos();
    }
    y.sum().backward();
  }
  return benchmarks::run_plain_sections(argc, argv);
}
