// A chain in a process without ac2; see plain_chain.h.
#include <ATen/Parallel.h>

#include "benchmarks/plain_chain.h"

int main(int argc, char** argv) {
  at::set_num_threads(1);
  return benchmarks::run_plain_chain(argc, argv);
}
