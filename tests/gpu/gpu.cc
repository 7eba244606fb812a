#include "tests/gpu/gpu.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "examples/device_meter.h"
#include "tests/support/wait_for_engine.h"

namespace ac2::test {

void GpuTest::SetUp() {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) GTEST_SKIP() << "built without CUDA";
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  CleanTest::SetUp();
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  // Else memory is never what lay there.
  context.setDeterministicFillUninitializedMemory(false);
}

void GpuTest::TearDown() {
  if (!IsSkipped()) {
    wait_for_engine(at::kCUDA);
    at::accelerator::synchronizeDevice(at::accelerator::getDeviceIndex());
  }
  CleanTest::TearDown();
}

at::Tensor gpu_constant(at::IntArrayRef sizes, at::ScalarType type) {
  DisableCheckpointing disable;
  return constant(sizes, type).to(at::kCUDA);
}

at::Tensor gpu_sample(at::IntArrayRef sizes, at::ScalarType type) {
  return gpu_constant(sizes, type).requires_grad_(true);
}

namespace {

c10::Device current_gpu() {
  return {at::kCUDA, at::accelerator::getDeviceIndex()};
}

}  // namespace

bool tells_requested_bytes() {
  return gpt::DeviceMeter::can_count(current_gpu());
}

int64_t requested_bytes() {
  return gpt::DeviceMeter(current_gpu()).current_bytes();
}

}  // namespace ac2::test
