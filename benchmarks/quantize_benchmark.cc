// How fast results are packed into fewer bits and unpacked again, beside a copy of the same tensor.
//
//   ./bazelw run //benchmarks:quantize_benchmark
//
// Bytes per second are those of the tensor, not of its packed form. Each works on 16 MiB with LibTorch's threads;
// --benchmark_filter chooses. A clone is what keeping an exact copy costs, the allocation included.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>

#include "ac2/policy.h"
#include "policies/quantize_ops.h"

namespace {

constexpr int64_t kBytes = 16 << 20;

ac2::SaveWithHooks hooks_of(int64_t bits, const char* op) {
  const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(op, "");
  return *ac2::policies::quantize_ops({op}, bits).enter().decide(handle)->hooks();
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

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
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
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return EXIT_SUCCESS;
}
