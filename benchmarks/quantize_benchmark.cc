// How fast results are packed into fewer bits and unpacked again, beside a copy of the same tensor.
//
//   ./bazelw run //benchmarks:quantize_benchmark
//   ./bazelw run --config=cuda //benchmarks:quantize_benchmark -- --device=cuda
//
// Bytes per second are those of the tensor, not of its packed form. Each works on 16 MiB with LibTorch's threads;
// --benchmark_filter chooses. A clone is what keeping an exact copy costs, the allocation included.
//
// With --device=cuda each works on 1 GiB, is timed by the device's events, and bytes are those read and written, so
// that they compare with those of the copy from device memory to device memory: to be fast is to be near it.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <benchmark/benchmark.h>
#include <c10/core/Event.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "ac2/policy_instance.h"
#include "policies/quantize_ops.h"

namespace {

constexpr int64_t kBytes = 16 << 20;
constexpr int64_t kDeviceBytes = 1 << 30;

ac2::SaveWithHooks hooks_of(int64_t bits, const char* op) {
  const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(op, "");
  const ac2::FormPtr form = enter_policy(ac2::policies::quantize_ops({op}, bits)).decide(handle)->form();
  return {[form](const at::Tensor& tensor) { return form->pack(tensor); },
          [form](const c10::IValue& packed) { return form->unpack(packed); }};
}

at::Tensor numbers(at::ScalarType type) {
  return at::randn({kBytes / static_cast<int64_t>(at::elementSize(type))}).to(type);
}

void count(benchmark::State& state, const at::Tensor& tensor) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(tensor.nbytes()));
}

void copy_bytes(benchmark::State& state) {
  const at::Tensor from = numbers(at::kFloat), to = at::empty_like(from);
  for (auto _ : state) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    benchmark::ClobberMemory();
  }
  count(state, from);
}

void clone_tensor(benchmark::State& state, at::ScalarType type) {
  const at::Tensor from = numbers(type);
  for (auto _ : state) benchmark::DoNotOptimize(from.clone());
  count(state, from);
}

void pack(benchmark::State& state, const ac2::SaveWithHooks& hooks, const at::Tensor& tensor) {
  for (auto _ : state) benchmark::DoNotOptimize(hooks.pack(tensor));
  count(state, tensor);
}

void unpack(benchmark::State& state, const ac2::SaveWithHooks& hooks, const at::Tensor& tensor) {
  const c10::IValue packed = hooks.pack(tensor);
  for (auto _ : state) benchmark::DoNotOptimize(hooks.unpack(packed));
  count(state, tensor);
}

void both(const std::string& name, const ac2::SaveWithHooks& hooks, const at::Tensor& tensor) {
  for (const auto& [step, fn] : {std::pair{"pack", &pack}, std::pair{"unpack", &unpack}}) {
    benchmark::RegisterBenchmark((name + "/" + step).c_str(), fn, hooks, tensor)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

int64_t packed_bytes(const c10::IValue& packed) {
  int64_t bytes = 0;
  packed.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) bytes += static_cast<int64_t>(part.toTensor().nbytes());
    return false;
  });
  return bytes;
}

// `fn` once a round, between two events.
template <class Fn>
void time_on_device(benchmark::State& state, int64_t bytes_moved, Fn&& fn) {
  const c10::DeviceIndex device = at::accelerator::getDeviceIndex();
  const c10::Stream stream = at::accelerator::getCurrentStream(device);
  fn();
  for (auto _ : state) {
    c10::Event begin(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    fn();
    end.record(stream);
    end.synchronize();
    state.SetIterationTime(begin.elapsedTime(end) * 1e-3);
  }
  state.SetBytesProcessed(state.iterations() * bytes_moved);
}

template <class Fn>
void on_device(const std::string& name, Fn fn) {
  benchmark::RegisterBenchmark(name.c_str(), fn)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void device_pair(const std::string& name, int64_t bits, const char* op, at::Tensor (*make)(at::ScalarType),
                 at::ScalarType type, bool unpacks) {
  const ac2::SaveWithHooks hooks = hooks_of(bits, op);
  on_device(name + "/pack", [hooks, make, type](benchmark::State& state) {
    const at::Tensor tensor = make(type);
    const int64_t moved = static_cast<int64_t>(tensor.nbytes()) + packed_bytes(hooks.pack(tensor));
    time_on_device(state, moved, [&] { hooks.pack(tensor); });
  });
  if (!unpacks) return;
  on_device(name + "/unpack", [hooks, make, type](benchmark::State& state) {
    const at::Tensor tensor = make(type);
    const c10::IValue packed = hooks.pack(tensor);
    time_on_device(state, static_cast<int64_t>(tensor.nbytes()) + packed_bytes(packed), [&] { hooks.unpack(packed); });
  });
}

at::Tensor numbers_on_device(at::ScalarType type) {
  return at::randn({kDeviceBytes / static_cast<int64_t>(at::elementSize(type))}, at::TensorOptions(at::kCUDA)).to(type);
}

at::Tensor positive_on_device(at::ScalarType type) {
  return numbers_on_device(type).relu_();
}

at::Tensor mask_on_device(at::ScalarType) {
  return at::randint(0, 2, {kDeviceBytes}, at::TensorOptions(at::kCUDA).dtype(at::kByte)).to(at::kBool);
}

void register_device_benchmarks() {
  TORCH_CHECK(at::hasCUDA(), "There is no CUDA device here, or this was built without --config=cuda.");
  on_device("copy", [](benchmark::State& state) {
    const at::Tensor from = numbers_on_device(at::kFloat), to = at::empty_like(from);
    time_on_device(state, 2 * kDeviceBytes, [&] { to.copy_(from); });
  });
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const int64_t bits : {8, 4}) {
      device_pair(std::to_string(bits) + " bits/" + toString(type), bits, "aten::mm", numbers_on_device, type, true);
    }
    // Its unpack belongs to ReLU's gradient, and does what a mask's does.
    device_pair(std::string("relu/") + toString(type), 1, "aten::relu", positive_on_device, type, false);
  }
  device_pair("mask/Bool", 1, "aten::mm", mask_on_device, at::kBool, true);
}

void register_cpu_benchmarks() {
  benchmark::RegisterBenchmark("memcpy", copy_bytes)->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const std::string dtype = toString(type);
    const at::Tensor x = numbers(type);
    benchmark::RegisterBenchmark(("clone/" + dtype).c_str(), clone_tensor, type)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    for (const int64_t bits : {8, 4}) both(std::to_string(bits) + " bits/" + dtype, hooks_of(bits, "aten::mm"), x);
    both("mask/" + dtype, hooks_of(1, "aten::mm"), (x > 0).to(type));
    // Its unpack belongs to ReLU's gradient, and does what a mask's does.
    benchmark::RegisterBenchmark(("relu/" + dtype + "/pack").c_str(), pack, hooks_of(1, "aten::relu"), x.relu())
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  both("mask/Bool", hooks_of(1, "aten::mm"), at::randn({kBytes}) > 0);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const bool on_cuda = argc > 1 && std::string(argv[argc - 1]) == "--device=cuda";
  if (on_cuda) --argc;
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  try {
    on_cuda ? register_device_benchmarks() : register_cpu_benchmarks();
  } catch (const c10::Error& error) {
    std::cerr << "quantize_benchmark: " << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return EXIT_SUCCESS;
}
