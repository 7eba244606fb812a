#include "examples/job.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "ac2/testing/run_ranks.h"
#include "examples/nccl_backend.h"

// The header of ProcessGroupGloo asks for it. LibTorch's wheels have the class.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace gpt {
namespace {

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int number(const char* name, int least, int most) {
  const char* const text = variable(name);
  int value = 0;
  TORCH_CHECK(text != nullptr, "The environment has RANK or WORLD_SIZE, but no ", name,
              ". Start the job with torchrun, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or with "
              "--processes=N.");
  TORCH_CHECK(absl::SimpleAtoi(text, &value) && value >= least && value <= most, "The environment's ", name, " is \"",
              text, "\"; expected a number from ", least, " to ", most, ".");
  return value;
}

}  // namespace

std::optional<Job> Job::of_environment() {
  if (variable("RANK") == nullptr && variable("WORLD_SIZE") == nullptr) {
    return std::nullopt;
  }
  Job job;
  job.ranks = number("WORLD_SIZE", 1, std::numeric_limits<int>::max());
  job.rank = number("RANK", 0, job.ranks - 1);
  if (variable("LOCAL_WORLD_SIZE") != nullptr) job.ranks_here = number("LOCAL_WORLD_SIZE", 1, job.ranks);
  if (variable("LOCAL_RANK") != nullptr) job.rank_here = number("LOCAL_RANK", 0, job.ranks_here - 1);
  return job;
}

c10::intrusive_ptr<c10d::Store> Job::store() const {
  if (const char* const file = variable(ac2::testing::kStoreVariable)) {
    return c10::make_intrusive<c10d::FileStore>(file, ranks);
  }
  const char* const address = variable("MASTER_ADDR");
  TORCH_CHECK(address != nullptr,
              "The environment has RANK and WORLD_SIZE, and no MASTER_ADDR, where the processes of "
              "the job find each other. Start the job with torchrun, or with --processes=N.");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(number("MASTER_PORT", 1, std::numeric_limits<uint16_t>::max()));
  // Newer launchers keep a store open themselves.
  const char* const agent_store = variable("TORCHELASTIC_USE_AGENT_STORE");
  options.isServer = rank == 0 && (agent_store == nullptr || std::string(agent_store) != "True");
  options.numWorkers = ranks;
  // A launcher that starts the job again after a failure uses the same store.
  const char* const attempt = variable("TORCHELASTIC_RESTART_COUNT");
  return c10::make_intrusive<c10d::PrefixStore>("ac2/" + std::string(attempt != nullptr ? attempt : "0"),
                                                c10::make_intrusive<c10d::TCPStore>(address, options));
}

c10::Device Job::device(c10::DeviceType kind) const {
  if (kind == c10::kCPU) return c10::kCPU;
  const int devices = at::accelerator::deviceCount();
  return {kind, static_cast<c10::DeviceIndex>(devices == 0 ? 0 : rank_here % devices)};
}

c10::intrusive_ptr<c10d::ProcessGroup> Job::connect(c10::Device device) const {
  const c10::intrusive_ptr<c10d::Store> meeting = store();
  c10::intrusive_ptr<c10d::ProcessGroup> group = connect_group(meeting, rank, ranks);
  if (device.is_cpu()) return group;
  TORCH_CHECK(device.is_cuda(), "The processes of a job train on ", device,
              ", and only tensors of the CPU and of CUDA can be exchanged. Use --device=cpu or --device=cuda.");
  if (ranks_here > at::accelerator::deviceCount()) {
    group->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::GLOO, group->getBackend(c10::kCPU));
    return group;
  }
  const auto of_gpus = c10::make_intrusive<c10d::PrefixStore>("gpus", meeting);
  group->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::NCCL, nccl_backend(of_gpus, rank, ranks));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  return group;
}

c10::intrusive_ptr<c10d::ProcessGroup> connect_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                                     const BackendWrapper& wrapper) {
  const auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks, options);
  if (wrapper) backend = wrapper(std::move(backend));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, ranks);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace gpt
