// The programs of random_programs_test on the fake accelerator, under policies that offload: what comes out must be
// what plain autograd says, every access must be ordered however late copies run, and nothing may be left in any
// memory.
//
//   ./bazelw run //tests/fuzz:random_offload_test -- --first_seed=0 --seeds=100000
#include <optional>
#include <sstream>
#include <string>

#include "ac2/offload.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/dice.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/outcome.h"
#include "tests/fuzz/program.h"
#include "tests/support/fake_accelerator.h"

namespace ac2::test {
namespace {

// Copies are fast or slow, so that budgets which may copy instead of drop do both.
void restart(FakeAccelerator& fake, uint32_t input_seed) {
  fake.restart(input_seed);
  fake.copies_take(input_seed % 2 == 0 ? 1e-6 : 1);
}

class RandomOffloadTest : public CleanTest {
 protected:
  const c10::Device device = FakeAccelerator::install().device();
};

// The bytes and events that a run leaves when all that is queued has run; on the device beyond `device_bytes`.
std::string left_on_device(FakeAccelerator& fake, int64_t device_bytes) {
  std::ostringstream left;
  if (offload_memory().bytes_in_use != 0) left << offload_memory().bytes_in_use << " pinned bytes are in use\n";
  fake.finish();
  release_offload_memory();
  if (fake.device_bytes() != device_bytes) left << fake.device_bytes() - device_bytes << " device bytes are left\n";
  if (fake.pinned_bytes() != 0) left << fake.pinned_bytes() << " pinned bytes are left\n";
  if (fake.live_events() != 0) left << fake.live_events() << " events are left\n";
  return left.str();
}

// With copies that make progress as the seed says. What plain autograd leaves on the device, where a saved tensor that
// is written to makes a circle of its nodes, is not looked at; nor is the order of accesses where its own, which adds
// up gradients of several streams in place, is none (program 11446).
Verdict compare_on_device(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  FakeAccelerator& fake = FakeAccelerator::install();
  restart(fake, input_seed);
  int64_t left_by_plain = 0;
  bool plain_is_ordered = true;
  std::ostringstream wrong;
  Verdict verdict = compare(program, input_seed, way, [&] {
    fake.finish();
    left_by_plain = fake.device_bytes();
    plain_is_ordered = fake.take_errors().empty();
  });
  wrong << left_on_device(fake, left_by_plain);
  for (const std::string& error : fake.take_errors()) {
    if (plain_is_ordered) wrong << error << "\n";
  }
  verdict.difference += wrong.str();
  return verdict;
}

TEST_F(RandomOffloadTest, GivesWhatPlainAutogradGives) {
  const Tally tally = run_campaign(
      {.seeds = 500,
       .draw = [](uint32_t seed) { return Way::draw_offloading(seed, FakeAccelerator::install().device()); },
       .judge = &compare_on_device,
       .fixture = "RandomOffloadTest",
       .judge_name = "compare_on_device"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared / 2);
  EXPECT_GE(tally.offloaded_bytes, 64 * int64_t{tally.compared});
}

// Device memory runs out somewhere first, in forward, in a replay or when bytes come back: nothing may be left of that.
Verdict compare_after_fault_on_device(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  FakeAccelerator& fake = FakeAccelerator::install();
  // The error, and in `wrong` what is left.
  std::ostringstream wrong;
  const auto run_and_clean_up = [&] {
    const int64_t nodes = live_node_count(), device_bytes = fake.device_bytes();
    std::string error = run(program, input_seed, way, &way.setting).error;
    fake.fail_after(-1);
    wrong << left_behind(way, nodes);
    wrong << left_on_device(fake, device_bytes);
    fake.take_errors();
    return error;
  };
  restart(fake, input_seed);
  const int64_t before = fake.device_allocations();
  Verdict verdict;
  verdict.counts = run_and_clean_up().empty();
  const int64_t allocations = fake.device_allocations() - before;
  if (verdict.counts && allocations > 0) {
    Dice dice(input_seed);
    restart(fake, input_seed);
    fake.fail_after(dice.roll(static_cast<int>(allocations)));
    const std::string error = run_and_clean_up();
    const bool of_budget = way.setting.budget > 0 && is_of_budget(error);
    if (!error.empty() && !of_budget && error.find("out of memory") == std::string::npos) {
      wrong << "after a fault it says: " << error << "\n";
    }
  }
  if (!verdict.counts || !wrong.str().empty()) {
    verdict.difference = wrong.str();
    return verdict;
  }
  return compare_on_device(program, input_seed, way);
}

TEST_F(RandomOffloadTest, LeavesNothingBehindWhereDeviceMemoryRunsOut) {
  const Tally tally = run_campaign(
      {.seeds = 500,
       .draw = [](uint32_t seed) { return Way::draw_offloading(seed, FakeAccelerator::install().device()); },
       .judge = &compare_after_fault_on_device,
       .fixture = "RandomOffloadTest",
       .judge_name = "compare_after_fault_on_device"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}
