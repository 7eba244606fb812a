// Data-parallel training with two real processes: regions change no bit and no collective.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/testing/run_ranks.h"
#include "examples/compare.h"
#include "examples/data_parallel.h"
#include "examples/job.h"
#include "examples/trainer.h"
#include "tests/processes/in_ranks.h"
#include "tests/support/regions.h"
#include "tests/support/some_text.h"

namespace ac2::test {
namespace {

gpt::TrainOptions tiny_options(const gpt::Job& job) {
  // The processes share the machine, and so do tests.
  at::set_num_threads(1);
  gpt::TrainOptions options;
  options.model = {.vocabulary = 0, .context = 16, .layers = 2, .dim = 16, .heads = 2, .dropout = 0.1};
  options.batch = 4;
  options.steps = 4;
  options.group = job.connect();
  return options;
}

// The bits of rank 0's are those of this rank.
void expect_same_on_all_ranks(const gpt::TrainOptions& options, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    std::vector<at::Tensor> of_rank_0 = {parameter.detach().clone()};
    options.group->broadcast(of_rank_0)->wait();
    EXPECT_TRUE(same_bits(parameter.detach(), of_rank_0[0]));
  }
}

TEST(DataParallelTest, GradientsAreTheMeanOverTheRanks) {
  in_ranks(2, [](const gpt::Job& job) {
    const at::Tensor weight = at::full({8, 8}, 0.5 + job.rank).requires_grad_();
    gpt::DataParallel parallel(job.connect(), {weight});
    EXPECT_TRUE(same_bits(weight.detach(), at::full({8, 8}, 0.5)));  // rank 0's
    const auto gradient_on = [&](int rank) {
      const at::Tensor x = at::arange(64, at::kFloat).view({8, 8}).div(10 + rank);
      PolicyScope scope("recompute_all");
      return at::mm(x, weight).sin().cos().sum();
    };
    const at::Tensor expected = torch::autograd::grad({gradient_on(0)}, {weight})[0] / 2 +
                                torch::autograd::grad({gradient_on(1)}, {weight})[0] / 2;
    weight.mutable_grad().reset();
    parallel.before_forward();
    const at::Tensor loss = gradient_on(job.rank);
    parallel.before_backward();
    loss.backward();
    EXPECT_TRUE(same_bits(weight.grad(), expected));
    EXPECT_EQ(parallel.reduced().calls, 1);
    EXPECT_EQ(parallel.reduced().bytes, 8 * 8 * 4);
    EXPECT_EQ(parallel.mean(static_cast<float>(job.rank)), 0.5F);
  });
}

TEST(DataParallelTest, EveryPolicyTrainsBitForBitAlikeWithTheSameCollectives) {
  in_ranks(2, [](const gpt::Job& job) {
    const gpt::TextData text = some_text();
    const gpt::TrainOptions options = tiny_options(job);
    std::vector<std::string> names = gpt::policy_names();
    names.insert(names.end(), {"48KiB", "1GiB"});
    for (const auto& policy : gpt::compare_policies(text, options, names, [](int64_t) {})) {
      EXPECT_TRUE(policy.same_losses) << policy.name;
      EXPECT_TRUE(policy.same_parameters) << policy.name;
      EXPECT_TRUE(policy.same_reduced) << policy.name;
      EXPECT_EQ(policy.reduced.calls, options.steps) << policy.name;  // one bucket
      EXPECT_GT(policy.reduced.bytes, 0) << policy.name;
    }
    EXPECT_EQ(live_node_count(), 0);
  });
}

TEST(DataParallelTest, RegionsAroundBlocksStepsAndTheWholeLoopTrainBitForBitAlike) {
  in_ranks(2, [](const gpt::Job& job) {
    const gpt::TextData text = some_text();
    const gpt::TrainOptions options = tiny_options(job);
    gpt::Trainer plain(text, options, "none"), step(text, options, "recompute_all", gpt::RegionSpan::kStep);
    std::vector<float> losses;
    for (int i = 0; i < options.steps; ++i) {
      losses.push_back(plain.step().loss);
      EXPECT_EQ(step.step().loss, losses.back());
    }
    EXPECT_NE(losses.front(), losses.back());
    gpt::Trainer loop(text, options, "recompute_all", gpt::RegionSpan::kLoop);
    for (const float loss : losses) EXPECT_EQ(loop.step().loss, loss);
    loop.end_loop();
    for (const gpt::Trainer* trainer : {&plain, &step, &loop}) {
      expect_same_on_all_ranks(options, trainer->model()->parameters());
    }
    EXPECT_EQ(live_node_count(), 0);
  });
}

// The buckets are those of the order in which the first backward made the gradients.
TEST(DataParallelTest, ABucketIsReducedWhileBackwardStillRuns) {
  in_ranks(2, [](const gpt::Job& job) {
    constexpr int64_t kDim = 600;  // so that a weight fills the first bucket, of 1 MiB
    at::set_num_threads(1);
    std::vector<at::Tensor> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(at::full({kDim, kDim}, 0.001 * (i + 1)).requires_grad_());
    gpt::DataParallel parallel(job.connect(), weights);
    const at::Tensor x = at::full({4, kDim}, 1. + job.rank);
    for (const bool is_first : {true, false}) {
      const int64_t before = parallel.reduced().calls;
      int64_t reduced_by_then = 0;
      parallel.before_forward();
      at::Tensor loss;
      {
        PolicyScope scope("recompute_all");
        const at::Tensor first = at::mm(x, weights[0]).tanh();
        first.register_hook([&](const at::Tensor&) { reduced_by_then = parallel.reduced().calls - before; });
        loss = at::mm(at::mm(first, weights[1]).tanh(), weights[2]).tanh().sum();
      }
      parallel.before_backward();
      loss.backward();
      if (!is_first) {
        EXPECT_GE(reduced_by_then, 1);
      }
      EXPECT_EQ(parallel.reduced().calls - before, 2);
    }
    EXPECT_EQ(parallel.reduced().bytes, 2 * 3 * kDim * kDim * 4);
  });
}

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(listener);
  return ntohs(address.sin_port);
}

TEST(DataParallelTest, RanksMeetAtTheAddressThatTorchrunSets) {
  in_ranks(2, [](const gpt::Job& job) {
    const auto of_run_ranks = job.store();
    if (job.rank == 0) {
      const std::string port = std::to_string(free_port());
      of_run_ranks->set("port", std::vector<uint8_t>(port.begin(), port.end()));
    }
    const std::vector<uint8_t> port = of_run_ranks->get("port");
    ::unsetenv(testing::kStoreVariable);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::string(port.begin(), port.end()).c_str(), 1);
    const std::optional<gpt::Job> of_torchrun = gpt::Job::of_environment();
    ASSERT_TRUE(of_torchrun);
    EXPECT_EQ(of_torchrun->rank, job.rank);
    EXPECT_EQ(of_torchrun->ranks, 2);
    EXPECT_EQ(of_torchrun->ranks_here, 2);
    std::vector<at::Tensor> sum = {at::full({4}, job.rank + 1.)};
    of_torchrun->connect()->allreduce(sum)->wait();
    EXPECT_TRUE(same_bits(sum[0], at::full({4}, 3.)));
  });
}

}  // namespace
}  // namespace ac2::test
