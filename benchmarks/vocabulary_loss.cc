// The logits of a large vocabulary and their cross entropy, forward and backward: plain, in chunks, and by
// linear_cross_entropy(). Prints the most bytes of tensors during a step, on top of what was there before, and the
// least time of a few steps as a ratio of the plain one's.
//
//   vocabulary_loss [ROWS [COLUMNS [WORDS]]]      2,048 rows of 256 numbers and 16,384 words, if not given
//                                                 peers/chunked_loss.py is the same from Python
#include <ATen/ATen.h>
#include <absl/strings/numbers.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "ac2/in_chunks.h"
#include "ac2/linear_cross_entropy.h"
#include "ac2/testing/counting_allocator.h"

namespace {

constexpr int kRounds = 4;  // the first of which warms up

struct Way {
  std::string name;
  std::function<at::Tensor()> loss;
  double least = std::numeric_limits<double>::infinity();  // seconds
  int64_t most_bytes = 0;
};

}  // namespace

int main(int argc, char** argv) {
  auto& memory = ac2::testing::CountingAllocator::install();
  int64_t sizes[] = {2048, 256, 16384};
  for (int i = 1; i < argc; ++i) {
    if (i > 3 || !absl::SimpleAtoi(argv[i], &sizes[i - 1]) || sizes[i - 1] <= 0) {
      std::cerr << "vocabulary_loss: expected at most three positive numbers, as in vocabulary_loss 2048 256 16384\n";
      return EXIT_FAILURE;
    }
  }
  at::manual_seed(0);
  const at::Tensor hidden = at::randn({sizes[0], sizes[1]}).set_requires_grad(true);
  const at::Tensor words = at::randn({sizes[2], sizes[1]}).set_requires_grad(true);
  const at::Tensor target = at::randint(sizes[2], {sizes[0]}, at::kLong);

  const auto plain = [&](const at::Tensor& rows, const at::Tensor& classes) {
    return at::cross_entropy_loss(at::linear(rows, words), classes, {}, at::Reduction::Sum);
  };
  const auto in_chunks = [&](int64_t chunks) {
    return [&, chunks] { return ac2::in_chunks(plain, {hidden, target}, {.chunks = chunks, .reduce = "sum"}); };
  };
  const auto fused = [&](int64_t chunks) {
    return [&, chunks] {
      return ac2::linear_cross_entropy(hidden, words, target, {.reduction = "sum", .chunks = chunks});
    };
  };
  std::vector<Way> ways = {{"plain", [&] { return plain(hidden, target); }},
                           {"in_chunks, 4", in_chunks(4)},
                           {"in_chunks, 16", in_chunks(16)},
                           {"linear_cross_entropy, 4", fused(4)},
                           {"linear_cross_entropy, 16", fused(16)},
                           {"linear_cross_entropy, 64", fused(64)}};
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : ways) {
      hidden.mutable_grad().reset();
      words.mutable_grad().reset();
      memory.reset_peak();
      const int64_t before = memory.current_bytes();
      const auto start = std::chrono::steady_clock::now();
      way.loss().backward();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      way.most_bytes = memory.peak_bytes() - before;
      if (round > 0) way.least = std::min(way.least, taken.count());
    }
  }
  for (const Way& way : ways) {
    std::printf("%-26s %7.1f MiB   %.2f of plain's time\n", way.name.c_str(),
                static_cast<double>(way.most_bytes) / (1 << 20), way.least / ways[0].least);
  }
  return EXIT_SUCCESS;
}
