#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "tests/gpu/capture.h"

namespace ac2::test {

void capture_and_replay(const std::function<void()>& step, int replays, const std::function<void()>& check) {
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard guard(stream);
  step();
  stream.synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  step();
  graph.capture_end();
  for (int i = 0; i < replays; ++i) {
    graph.replay();
    stream.synchronize();
    check();
  }
}

}  // namespace ac2::test
