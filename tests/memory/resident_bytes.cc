// Trains 20 layers with tensors of 8 MiB and says how many bytes the process had resident at most, over those that it
// had at first. resident_bytes_test starts it:
//
//   resident_bytes peak 260        // MemoryBudget::peak() of 260 MiB
//   resident_bytes number 200      // a budget of 200 MiB
//   resident_bytes resident 400    // whatever_fits(), where the limit is on resident bytes, as a cgroup's is
//   resident_bytes data 400        // whatever_fits(), under RLIMIT_DATA
//   resident_bytes plain 0
//
// It prints "hash H resident R": of the gradients, and R MiB.
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "ac2/internal/allocator/machine_memory.h"
#include "ac2/internal/allocator/retrying_allocator.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"

namespace {

using ac2::internal::MachineMemory;
using ac2::internal::MemoryRoom;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kLayers = 20;
constexpr int64_t kElements = 8 * kMiB / 4;

// Of /proc/self/status.
int64_t bytes_of(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == name && file >> kib) {
      return kib * 1024;
    }
  }
  return 0;
}

// As a cgroup counts, of this process alone.
class ResidentBytes final : public ac2::internal::MemoryGauge {
 public:
  explicit ResidentBytes(int64_t limit) : limit_(limit) {}
  MemoryRoom room() const override {
    return MachineMemory::room_of(limit_, bytes_of("VmRSS:"), MemoryRoom::Limit::kMachine, "the test's limit");
  }

 private:
  const int64_t limit_;
};

void limit_data(int64_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = static_cast<rlim_t>(bytes);
  setrlimit(RLIMIT_DATA, &limit);
}

at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor y = (x * weight).sin();
  return at::gelu(at::tanh(y * y.exp()) + x).mul(0.5);
}

uint64_t hash_of(const at::Tensor& tensor, uint64_t hash) {
  const at::Tensor dense = tensor.contiguous();
  const auto* words = static_cast<const uint32_t*>(dense.const_data_ptr());
  for (int64_t i = 0; i < dense.numel(); ++i) {
    hash = (hash ^ words[i]) * 1099511628211u;
  }
  return hash;
}

}  // namespace

int main(int, char** arguments) {
  const std::string kind = arguments[1];
  const int64_t bytes = std::atoll(arguments[2]) * kMiB;
  at::set_num_threads(2);
  torch::manual_seed(3);
  const at::Tensor x = at::randn({kElements});
  const at::Tensor weight = at::randn({1}).requires_grad_();
  at::mul(x.slice(0, 0, 65536).requires_grad_(), weight).sum().backward();  // threads start

  const int64_t before = bytes_of("VmRSS:");
  std::optional<ac2::MemoryBudget> budget;
  if (kind == "peak") {
    budget = ac2::MemoryBudget::peak(bytes, /*modelled_costs=*/true);
  } else if (kind == "number") {
    budget = ac2::MemoryBudget(bytes, /*modelled_costs=*/true);
  } else if (kind != "plain") {
    budget = ac2::whatever_fits();
  }
  if (kind == "resident") {
    ac2::internal::RetryingAllocator::set_gauge(std::make_shared<ResidentBytes>(before + bytes));
  } else if (kind == "data") {
    limit_data(bytes_of("VmData:") + bytes);
  }
  uint64_t hash = 14695981039346656037u;
  for (int step = 0; step < 2; ++step) {
    weight.mutable_grad() = at::Tensor();
    at::Tensor loss;
    {
      std::optional<ac2::PolicyScope> scope;
      if (budget) {
        scope.emplace(ac2::ScopeOptions{.memory_budget = *budget});
      }
      at::Tensor y = x;
      for (int i = 0; i < kLayers; ++i) {
        y = layer(y, weight);
      }
      loss = y.sum();
    }
    loss.backward();
    hash = hash_of(weight.grad(), hash);
  }
  std::printf("hash %llu resident %.1f\n", static_cast<unsigned long long>(hash),
              static_cast<double>(bytes_of("VmHWM:") - before) / kMiB);
  return 0;
}
