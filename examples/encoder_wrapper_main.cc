#include "examples/encoder_wrapper.h"

int main(int argc, char** argv) {
  return example::run_main(argc, argv, example::encoder_wrapper);
}
