// Timelines of random programs: after forward and after each backward the counters stand where stats() does, every op
// and every replay is there, nothing was ever held less than nothing, and explain() and to_dot() have something to say.
//
//   ./bazelw run //tests/fuzz:random_timeline_test -- --first_seed=0 --seeds=100000
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "ac2/report.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/program.h"

namespace ac2::test {
namespace {

using RandomTimelineTest = CleanTest;
using Json = nlohmann::json;

Way with_timeline(uint32_t seed) {
  Way way = Way::draw(seed);
  way.setting.timeline = true;
  return way;
}

// The mistakes of the timeline; empty if nothing.
std::string look_at(const Trace& trace) {
  const TraceStats stats = trace.stats();
  int64_t ops = 0, replays = 0, saved = 0, replayed = 0, least = 0;
  const Json timeline = Json::parse(to_chrome_trace(trace));
  for (const Json& event : timeline.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    ops += category == "forward" || category == "not recorded";
    replays += category == "replay";
    if (event.at("ph") == "C") {
      saved = event.at("args").at("saved");
      replayed = event.at("args").at("replayed");
      least = std::min({least, saved, replayed});
    }
  }
  std::ostringstream wrong;
  const auto expect_equal = [&wrong](const char* what, int64_t drawn, int64_t counted) {
    if (drawn != counted) wrong << what << ": the timeline has " << drawn << ", stats() " << counted << "\n";
  };
  expect_equal("ops", ops, stats.recorded_ops);
  expect_equal("replays", replays, stats.recomputed_ops);
  expect_equal("bytes saved", saved, stats.saved_bytes);
  expect_equal("bytes replayed", replayed, stats.recomputed_bytes);
  expect_equal("least bytes", least, 0);
  if (explain(trace).empty() || to_dot(trace).empty()) wrong << "nothing is explained or drawn\n";
  return wrong.str();
}

Verdict compare_and_look(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  std::string wrong;
  Way looked_at = way;
  looked_at.setting.look = [&wrong](const Trace& trace) { wrong += look_at(trace); };
  Verdict verdict = compare(program, input_seed, looked_at);
  verdict.difference += wrong;
  return verdict;
}

TEST_F(RandomTimelineTest, SayWhatStatsSayAndChangeNothing) {
  const Tally tally = run_campaign({.seeds = 500,
                                    .draw = &with_timeline,
                                    .judge = &compare_and_look,
                                    .fixture = "RandomTimelineTest",
                                    .judge_name = "compare_and_look"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared);
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}
