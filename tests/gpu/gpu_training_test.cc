// train_gpt's trainer on a GPU, alone and as a job: regions change no bit, and no collective runs twice.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "examples/compare.h"
#include "examples/job.h"
#include "examples/trainer.h"
#include "tests/gpu/gpu.h"
#include "tests/processes/in_ranks.h"
#include "tests/support/regions.h"
#include "tests/support/some_text.h"

namespace ac2::test {
namespace {

class GpuTrainingTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !tells_requested_bytes()) GTEST_SKIP() << "this LibTorch does not tell requested bytes";
  }
};

gpt::TrainOptions small_options() {
  gpt::TrainOptions options;
  options.model = {.vocabulary = 0, .context = 64, .layers = 3, .dim = 64, .heads = 2, .dropout = 0.1};
  options.batch = 4;
  options.steps = 4;
  options.device = c10::Device(c10::kCUDA, at::accelerator::getDeviceIndex());
  return options;
}

// Returns what the policies held, in the order of `names`.
std::vector<gpt::ComparedPolicy> expect_trains_alike(const gpt::TrainOptions& options,
                                                     const std::vector<std::string>& names) {
  const gpt::TextData text = some_text();
  std::vector<gpt::ComparedPolicy> compared = gpt::compare_policies(text, options, names, [](int64_t) {});
  for (const gpt::ComparedPolicy& policy : compared) {
    EXPECT_TRUE(policy.same_losses) << policy.name;
    EXPECT_TRUE(policy.same_parameters) << policy.name;
    EXPECT_TRUE(policy.same_reduced) << policy.name;
  }
  EXPECT_EQ(live_node_count(), 0);
  return compared;
}

TEST_F(GpuTrainingTest, EveryPolicyTrainsBitForBitAlike) {
  std::vector<std::string> names = gpt::policy_names();
  names.insert(names.end(), {"1MiB", gpt::kWhateverFits, "offload", "offload_inputs"});
  expect_trains_alike(small_options(), names);
}

TEST_F(GpuTrainingTest, ABudgetHoldsLessThanPlainTraining) {
  const auto compared = expect_trains_alike(small_options(), {"none", "recompute_all", "1MiB"});
  EXPECT_LT(compared[1].held_bytes, compared[0].held_bytes / 2);
  EXPECT_LT(compared[2].held_bytes, compared[0].held_bytes);
  EXPECT_LT(compared[1].peak_bytes, compared[0].peak_bytes);
}

// In each of `ranks` processes.
void expect_job_trains_alike(int ranks, const std::string& backend) {
  in_ranks(ranks, [&](const gpt::Job& job) {
    gpt::TrainOptions options = small_options();
    options.device = job.device(c10::kCUDA);
    at::accelerator::setDeviceIndex(options.device.index());
    options.group = job.connect(options.device);
    EXPECT_EQ(options.group->getBackend(c10::kCUDA)->getBackendName(), backend);
    for (const auto& policy :
         expect_trains_alike(options, {"none", "recompute_all", "save_compute_intensive", "1MiB"})) {
      EXPECT_EQ(policy.reduced.calls, options.steps) << policy.name;  // one bucket
      EXPECT_GT(policy.reduced.bytes, 0) << policy.name;
    }
  });
}

TEST_F(GpuTrainingTest, AJobOfOneProcessTrainsByNccl) {
  expect_job_trains_alike(1, "nccl");
}

TEST_F(GpuTrainingTest, MoreProcessesThanGpusTrainByGloo) {
  expect_job_trains_alike(at::accelerator::deviceCount() + 1, "gloo");
}

TEST_F(GpuTrainingTest, AProcessForEachGpuTrainsByNccl) {
  if (at::accelerator::deviceCount() < 2) GTEST_SKIP() << "one GPU; this needs two";
  expect_job_trains_alike(at::accelerator::deviceCount(), "nccl");
}

}  // namespace
}  // namespace ac2::test
