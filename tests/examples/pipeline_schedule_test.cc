// The order of micro-batches in a pipeline, and the time of a step, against sums worked out by hand.
#include "examples/mesh/pipeline_schedule.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gpt {
namespace {

using ::testing::ElementsAre;

constexpr MicroBatchTurn forward(int64_t micro_batch) {
  return {.is_forward = true, .micro_batch = micro_batch};
}

constexpr MicroBatchTurn backward(int64_t micro_batch) {
  return {.is_forward = false, .micro_batch = micro_batch};
}

TEST(PipelineScheduleTest, AStageBeginsWithAsManyForwardsAsItHasInFlight) {
  EXPECT_THAT(turns_of_stage(3, 0, 4), ElementsAre(forward(0), forward(1), forward(2), backward(0), forward(3),
                                                   backward(1), backward(2), backward(3)));
  EXPECT_THAT(turns_of_stage(3, 1, 4), ElementsAre(forward(0), forward(1), backward(0), forward(2), backward(1),
                                                   forward(3), backward(2), backward(3)));
  EXPECT_THAT(turns_of_stage(3, 2, 2), ElementsAre(forward(0), backward(0), forward(1), backward(1)));
  EXPECT_THAT(turns_of_stage(3, 0, 1), ElementsAre(forward(0), backward(0)));
}

TEST(PipelineScheduleTest, OneStageWaitsForNobody) {
  const PipelineTimes times = pipeline_times({{.forward = 1, .backward = 2, .after = 5}}, 3);
  EXPECT_EQ(times.step, 3 * 3 + 5);
  EXPECT_THAT(times.waits, ElementsAre(0));
}

TEST(PipelineScheduleTest, EqualStagesTakeTheMicroBatchesAndTheStagesLessOne) {
  for (const int64_t stages : {1, 2, 4, 7}) {
    for (const int64_t micro_batches : {1, 3, 7, 20}) {
      const std::vector<StageTimes> equal(stages, {.forward = 1, .backward = 2});
      const PipelineTimes times = pipeline_times(equal, micro_batches);
      EXPECT_EQ(times.step, 3 * (micro_batches + stages - 1)) << stages << ", " << micro_batches;
      EXPECT_EQ(times.waits, std::vector<double>(stages, 3 * (stages - 1))) << stages << ", " << micro_batches;
    }
  }
}

// Stage 1 forward 1-3, backward 3-7, forward 7-9, backward 9-13; stage 0 forward 0-2, backward 7-9 and 13-15.
TEST(PipelineScheduleTest, AStageThatWaitsPaysOnceForWhatItReplays) {
  const StageTimes quick{.forward = 1, .backward = 2}, slow{.forward = 2, .backward = 4};
  const PipelineTimes times = pipeline_times({quick, slow}, 2);
  EXPECT_EQ(times.step, 15);
  EXPECT_THAT(times.waits, ElementsAre(9, 3));
  // The last backward alone, 13-16 now, has nothing to hide behind.
  StageTimes replays = quick;
  replays.backward += 1;
  EXPECT_EQ(pipeline_times({replays, slow}, 2).step, 16);
  EXPECT_EQ(pipeline_times({replays, slow}, 20).step, pipeline_times({quick, slow}, 20).step + 1);
  // The slow stage pays for each of its micro-batches.
  replays = slow;
  replays.backward += 1;
  EXPECT_EQ(pipeline_times({quick, replays}, 2).step, 17);
}

// Stage 1 ends its backwards at 4 and 7, and is at its optimizer until 11. Stage 0 has backwards from 4 and 7 on.
TEST(PipelineScheduleTest, AStageThatEndsEarlyMayReplayForNothing) {
  const StageTimes first{.forward = 1, .backward = 2}, last{.forward = 1, .backward = 2, .after = 4};
  EXPECT_EQ(pipeline_times({first, last}, 2).step, 7 + 4);
  EXPECT_EQ(pipeline_times({{.forward = 1, .backward = 3}, last}, 2).step, 7 + 4);
  EXPECT_EQ(pipeline_times({{.forward = 1, .backward = 4}, last}, 2).step, 8 + 4);
}

// Stage 0: forward 0-1 and 1-2. Stage 1 has the first output at 1 + 3, ends its backward at 7, and takes the second
// output, which could be sent at 4, from 7 on: it is there at 7 + 3. Its backward ends at 13. The gradients arrive 1
// later.
TEST(PipelineScheduleTest, ATensorGoesOverTheWireWhenBothStagesAreThere) {
  const StageTimes first{.forward = 1, .backward = 2, .to_next = 3};
  const StageTimes last{.forward = 1, .backward = 2, .to_before = 1};
  const PipelineTimes times = pipeline_times({first, last}, 2);
  EXPECT_EQ(times.step, 13 + 1 + 2);
  EXPECT_THAT(times.waits, ElementsAre(10, 10));
}

// Stage 1 begins with micro-batch 1 at 11. Stage 0 has made micro-batch 2 at 3, but waits until 11 to send it, and for
// this reason takes the gradient of micro-batch 0 no earlier.
TEST(PipelineScheduleTest, AStageWaitsUntilWhatItSentBeforeHasArrived) {
  const StageTimes first{.forward = 1, .backward = 0}, second{.forward = 10, .backward = 0}, third{};
  EXPECT_EQ(pipeline_times({first, second, third}, 3).step, 1 + 3 * 10);
  // With a wire of 5: stage 1 has micro-batch 0 at 6, 1 at 21 and 2 at 36, and gives the last gradient back at 46.
  const StageTimes sends{.forward = 1, .backward = 0, .to_next = 5};
  EXPECT_EQ(pipeline_times({sends, second, third}, 3).step, 46);
}

TEST(PipelineScheduleTest, RefusesPipelinesWithoutStagesAndSteps) {
  EXPECT_THROW(pipeline_times({}, 1), c10::Error);
  EXPECT_THROW(pipeline_times({{}}, 0), c10::Error);
}

}  // namespace
}  // namespace gpt
