// A chain in a process without ac2; see chain.h.
#include "benchmarks/chain.h"

int main(int argc, char** argv) {
  return benchmarks::run_plain_sections(argc, argv);
}
