#include "examples/two_segment_mlp.h"

int main(int argc, char** argv) {
  return example::run_main(argc, argv, example::two_segment_mlp);
}
