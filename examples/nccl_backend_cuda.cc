#include <c10/util/Exception.h>

#include "examples/nccl_backend.h"

// The header of ProcessGroupNCCL asks for it. LibTorch's wheels for CUDA have the class.
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace gpt {
namespace {

// Ends its communicators when it is destroyed. LibTorch's own class warns if nobody has called shutdown() by then.
class NcclBackend : public c10d::ProcessGroupNCCL {
 public:
  using ProcessGroupNCCL::ProcessGroupNCCL;
  ~NcclBackend() override { shutdown(); }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks) {
  // ProcessGroupNCCL holds structures of nccl.h, whose size differs from one minor release to the next.
  constexpr uint64_t kBuiltWith = NCCL_VERSION_CODE;
  const uint64_t version = torch::cuda::nccl::version();  // major << 32 | minor << 16 | patch
  const uint64_t of_libtorch = (version >> 32) * 10000 + (version >> 16 & 0xffff) * 100 + (version & 0xffff);
  TORCH_CHECK(of_libtorch / 100 == kBuiltWith / 100, "LibTorch has NCCL ", of_libtorch,
              ", and this program was built with the nccl.h of ", kBuiltWith,
              " (major * 10000 + minor * 100 + patch). Build it with the nccl.h of LibTorch's NCCL.");
  return c10::make_intrusive<NcclBackend>(store, rank, ranks);
}

}  // namespace gpt
