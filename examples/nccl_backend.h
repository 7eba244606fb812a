// NCCL, by which the processes of a job exchange tensors of their GPUs; in a build for CUDA (bazel build
// --config=cuda).
//
//   group->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::NCCL, gpt::nccl_backend(store, rank, ranks));
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace gpt {

// Number `rank` of `ranks` processes, each of which has a GPU of its own. They meet at the store when the first
// collective runs. Throws c10::Error if the program was built without CUDA, or with the headers of another NCCL than
// LibTorch's.
c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks);

}  // namespace gpt
