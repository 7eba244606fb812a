// Two processes that train at once on a machine that has too little for both: the limit is one for what they use
// together, as a cgroup's memory.max, or MemAvailable.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "ac2/internal/allocator/machine_memory.h"
#include "ac2/internal/allocator/retrying_allocator.h"
#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/testing/counting_allocator.h"
#include "ac2/trace.h"
#include "tests/support/front_allocator.h"
#include "tests/support/training_step.h"

namespace ac2::test {
namespace {

constexpr int kProcesses = 2;
constexpr int kSteps = 12;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr TrainingStep::Sizes kSizes{.layers = 8, .batch = 4096, .dim = 64};

// What the processes tell each other.
struct Told {
  std::atomic<int64_t> used{0};
  std::atomic<int64_t> most_together{0};
  std::atomic<int> steps{0};
  uint64_t hash = 0;
  int64_t shortages = 0;
  int64_t recorded_ops = 0;
  int64_t replayed_ops = 0;
  std::array<char, 1024> error{};
};

struct Shared {
  std::array<Told, kProcesses> of;
  std::atomic<int> ready{0};

  int64_t used() const {
    int64_t sum = 0;
    for (const Told& told : of) sum += told.used.load();
    return sum;
  }
};

// Tells others after each allocation how much this process uses.
class TellingAllocator final : public FrontAllocator<testing::CountingAllocator> {
 public:
  static TellingAllocator& install() { return installed_allocator<TellingAllocator>(); }

  void tell(Shared& shared, int process) {
    shared_ = &shared;
    told_ = &shared.of.at(process);
    tell();
  }
  void tell() {
    if (told_ != nullptr) {
      told_->used.store(testing::CountingAllocator::install().current_bytes());
      told_->most_together.store(std::max(told_->most_together.load(), shared_->used()));
    }
  }
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = behind_.allocate(bytes);
    tell();
    return data;
  }

 private:
  friend TellingAllocator& installed_allocator<TellingAllocator>();
  TellingAllocator() : FrontAllocator(testing::CountingAllocator::install()) {}

  Shared* shared_ = nullptr;
  Told* told_ = nullptr;
};

class SharedMemory final : public internal::MemoryGauge {
 public:
  SharedMemory(const Shared& shared, int64_t limit) : shared_(shared), limit_(limit) {}
  internal::MemoryRoom room() const override {
    TellingAllocator::install().tell();
    return internal::MachineMemory::room_of(limit_, shared_.used(), internal::MemoryRoom::Limit::kMachine,
                                            "the test's memory.max");
  }

 private:
  const Shared& shared_;
  const int64_t limit_;
};

uint64_t hash_of(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 14695981039346656037u;
  for (const at::Tensor& tensor : tensors) {
    const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  }
  return hash;
}

// `told`, if there is one, counts the steps.
uint64_t train(const std::function<void(const std::function<void()>&)>& around, Told* told = nullptr) {
  TrainingStep step(at::kCPU, kSizes);
  for (int i = 0; i < kSteps; ++i) {
    step.run(around);
    if (told != nullptr) ++told->steps;
  }
  return hash_of(step.state());
}

void plain(const std::function<void()>& forward) {
  forward();
}

void train_in_a_region(Told& told) {
  internal::Budget& budget = *internal::whatever_fits_budget(internal::CostSource::kModelled);
  std::vector<std::shared_ptr<const Trace>> traces;
  told.hash = train(
      [&](const std::function<void()>& forward) {
        const PolicyScope scope({.memory_budget = whatever_fits(true)});
        traces.push_back(scope.trace());
        forward();
      },
      &told);
  told.shortages = budget.hurried_drops();
  for (const auto& trace : traces) {
    told.recorded_ops += trace->stats().recorded_ops;
    told.replayed_ops += trace->stats().recomputed_ops;
  }
}

// The second process begins when the first one has done so many steps.
int in_a_process(Shared& shared, int process, int64_t limit, int head_start) {
  Told& told = shared.of.at(process);
  try {
    TellingAllocator::install().tell(shared, process);
    internal::RetryingAllocator::set_gauge(std::make_shared<SharedMemory>(shared, limit));
    ++shared.ready;
    while (shared.ready < kProcesses || (process > 0 && shared.of[0].steps < head_start)) sched_yield();
    train_in_a_region(told);
  } catch (const std::exception& error) {
    std::snprintf(told.error.data(), told.error.size(), "%s", error.what());
    return 1;
  }
  TellingAllocator::install().tell();
  return 0;
}

// By processes of their own: threads do not live on in a child, so the parent has none.
void run_processes(Shared& shared, int64_t limit, int head_start) {
  std::array<pid_t, kProcesses> children{};
  for (int i = 0; i < kProcesses; ++i) {
    children.at(i) = fork();
    if (children.at(i) == 0) {
      _exit(in_a_process(shared, i, limit, head_start));
    }
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

// The limit is `share` of what plain training takes at most. 16 MiB of it are a reserve, which is left alone.
void expect_that_both_train(double share, int head_start) {
  at::set_num_threads(1);
  auto& memory = testing::CountingAllocator::install();
  TellingAllocator::install();
  whatever_fits(true);
  const int64_t before = memory.current_bytes();
  memory.reset_peak();
  const uint64_t expected = train(&plain);
  const int64_t peak = memory.peak_bytes() - before;
  void* const mapped = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto& shared = *new (mapped) Shared;
  const int64_t limit = static_cast<int64_t>(static_cast<double>(peak) * share) + 16 * kMiB;
  run_processes(shared, limit, head_start);
  for (const Told& told : shared.of) {
    EXPECT_EQ(told.hash, expected) << told.error.data();
    EXPECT_LE(told.most_together.load(), limit);
    std::printf("plain %.1f MiB, limit %.1f: %ld shortages, %ld ops of %ld replayed, at most %.1f together\n",
                static_cast<double>(peak) / kMiB, static_cast<double>(limit) / kMiB, static_cast<long>(told.shortages),
                static_cast<long>(told.replayed_ops), static_cast<long>(told.recorded_ops),
                static_cast<double>(told.most_together.load()) / kMiB);
  }
  EXPECT_GT(shared.of[0].shortages + shared.of[1].shortages, 0);
  munmap(mapped, sizeof(Shared));
}

TEST(SharedLimitTest, TwoProcessesThatTogetherNeedMoreThanThereIsBothTrainToTheBitsOfPlainTraining) {
  expect_that_both_train(1.5, /*head_start=*/0);
}

TEST(SharedLimitTest, AProcessThatBeginsWhenAnotherHasTheMemoryTrainsToo) {
  expect_that_both_train(1.2, /*head_start=*/3);
}

}  // namespace
}  // namespace ac2::test
