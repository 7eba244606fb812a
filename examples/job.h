// A training job of several processes: which of them this one is, and what connects them.
//
//   const std::optional<Job> job = Job::of_environment();    // none: the program trains alone
//   if (job) std::cout << "rank " << job->rank << " of " << job->ranks << '\n';
//   c10::intrusive_ptr<c10d::ProcessGroup> group = job->connect();
//
// A process learns its rank from the variables that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or from
// those of ac2::testing::run_ranks, which starts all processes of a job on one machine.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace gpt {

struct Job {
  int rank = 0;
  int ranks = 1;
  int ranks_here = 1;  // on this machine
  int rank_here = 0;   // among those

  // Null if this process belongs to no job. Throws c10::Error for variables that contradict each other or are no
  // numbers.
  static std::optional<Job> of_environment();

  // The device of this process among those of its kind on this machine, in turn: `kind` itself on the CPU.
  c10::Device device(c10::DeviceType kind) const;

  // Waits for all processes of the job. Tensors of the CPU are exchanged by gloo, those of a GPU by NCCL. NCCL refuses
  // two processes on one GPU: where a machine has more processes than GPUs, gloo exchanges their tensors too.
  // Throws c10::Error for the tensors of any other device.
  c10::intrusive_ptr<c10d::ProcessGroup> connect(c10::Device device = c10::kCPU) const;

  // Where the processes find each other, for groups of some of them. To be asked for once, and not beside connect().
  c10::intrusive_ptr<c10d::Store> store() const;
};

using BackendWrapper = std::function<c10::intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Backend>)>;

// Waits for `ranks` processes that call it with the same store, of which this is number `rank`. `wrapper`, if there is
// one, is given the backend and returns the one that the group uses.
c10::intrusive_ptr<c10d::ProcessGroup> connect_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                                     const BackendWrapper& wrapper = nullptr);

}  // namespace gpt
