// For tests that need a GPU: they skip, and say why, where there is none or where LibTorch's CUDA part is not linked.
#pragma once

#include "tests/support/regions.h"

namespace ac2::test {

// As CleanTest, with kernels that give the same bits each time.
class GpuTest : public CleanTest {
 protected:
  void SetUp() override;
  void TearDown() override;
};

// As sample() and constant(), on the current device.
at::Tensor gpu_sample(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);
at::Tensor gpu_constant(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);

// Whether this LibTorch has the next function's answer.
bool tells_requested_bytes();
// Requested from the current device's allocator and not given back: exact, whatever blocks it keeps.
int64_t requested_bytes();

}  // namespace ac2::test
