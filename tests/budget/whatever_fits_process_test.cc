// A process whose memory ends: a GPT that needs 1.5 GiB trains in one that has 1 GiB.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/testing/counting_allocator.h"
#include "examples/gpt_model.h"

namespace ac2::test {
namespace {

constexpr char kChild[] = "AC2_WHATEVER_FITS_CHILD";
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kProcess = 1024 * kMiB;

// LibTorch's libraries, threads and their stacks are there by now, and do not count.
void leave_address_space(int64_t bytes) {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

void start_threads() {
  const at::Tensor x = torch::ones({256, 256}, at::requires_grad());
  (at::gelu(at::mm(x, x)) * x).sum().backward();
}

uint64_t hash_of(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 14695981039346656037u;
  for (const at::Tensor& tensor : tensors) {
    const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  }
  return hash;
}

// Two steps of a GPT.
uint64_t train(bool in_region) {
  const gpt::GptOptions options{.vocabulary = 96, .context = 128, .layers = 12, .dim = 64, .heads = 4, .dropout = 0.1};
  torch::manual_seed(5);
  gpt::Gpt model(options);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 2; ++step) {
    const at::Tensor text = at::randint(0, options.vocabulary, {224, options.context + 1}, at::kLong);
    at::Tensor loss;
    {
      std::unique_ptr<PolicyScope> scope;
      if (in_region) scope = std::make_unique<PolicyScope>(ScopeOptions{.memory_budget = whatever_fits()});
      const at::Tensor logits = model->forward(text.slice(1, 0, options.context), std::nullopt);
      loss = at::cross_entropy_loss(logits.flatten(0, 1), text.slice(1, 1).flatten());
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return hash_of(model->parameters());
}

struct Trained {
  std::string hash;  // "error" if there was one
  double peak_mib = 0;
  std::string all;
};

// This program once more, in a process of its own: "plain" or "region", and "limited" if it is.
Trained train_in_process(const std::string& how) {
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  const std::string command = std::string(kChild) + "='" + how + "' '" + std::string(self.data(), length) +
                              "' --gtest_filter=WhateverFitsProcessTest.Child 2>&1";
  Trained trained;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> line{};
  while (fgets(line.data(), line.size(), pipe) != nullptr) {
    std::array<char, 64> hash{};
    trained.all += line.data();
    if (std::sscanf(line.data(), "trained: %63s peak %lf", hash.data(), &trained.peak_mib) == 2) {
      trained.hash = hash.data();
    }
  }
  EXPECT_EQ(pclose(pipe), 0) << trained.all;
  return trained;
}

TEST(WhateverFitsProcessTest, Child) {
  const char* const how = std::getenv(kChild);
  if (how == nullptr) GTEST_SKIP() << "the other test runs it in processes of its own";
  const std::string name = how;
  auto& memory = testing::CountingAllocator::install();
  start_threads();
  if (name.find("limited") != std::string::npos) leave_address_space(kProcess);
  std::string hash;
  try {
    hash = std::to_string(train(name.find("region") != std::string::npos));
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << '\n';
    hash = "error";
  }
  std::printf("trained: %s peak %.2f\n", hash.c_str(), static_cast<double>(memory.peak_bytes()) / kMiB);
  std::cout << "budget " << whatever_fits().bytes() << '\n';
}

TEST(WhateverFitsProcessTest, AGptThatNeedsMoreThanTheProcessHasTrainsToTheBitsOfPlainTraining) {
  const Trained plain = train_in_process("plain");
  EXPECT_GT(plain.peak_mib, 1536) << plain.all;
  const Trained without = train_in_process("plain limited");
  EXPECT_EQ(without.hash, "error") << without.all;
  const Trained fits = train_in_process("region limited");
  EXPECT_EQ(fits.hash, plain.hash) << fits.all;
  EXPECT_LT(fits.peak_mib, 1024) << fits.all;
  EXPECT_GT(fits.peak_mib, 512) << fits.all;  // what there is is used
  std::cout << "plain " << plain.peak_mib << " MiB; in a process that has 1024: " << fits.peak_mib << " MiB\n"
            << fits.all;
  // Where there is enough, nothing is dropped.
  const Trained roomy = train_in_process("region");
  EXPECT_EQ(roomy.hash, plain.hash) << roomy.all;
  EXPECT_NE(roomy.all.find("budget 9223372036854775807"), std::string::npos) << roomy.all;
}

}  // namespace
}  // namespace ac2::test
