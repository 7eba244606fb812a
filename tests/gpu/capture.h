// Capturing and replaying a CUDA graph, for which LibTorch has no interface without CUDA's headers.
#pragma once

#include <functional>

namespace ac2::test {

// Runs `step` as it is, then captures it, replays the graph `replays` times, and calls `check` after each. Nothing in
// builds without CUDA.
void capture_and_replay(const std::function<void()>& step, int replays, const std::function<void()>& check);

}  // namespace ac2::test
