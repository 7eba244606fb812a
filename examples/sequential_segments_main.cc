#include "examples/sequential_segments.h"

int main(int argc, char** argv) {
  return example::run_main(argc, argv, example::sequential_segments);
}
