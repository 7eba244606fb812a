// write_report(): one page that needs nothing else, whose figures are the trace's.
#include "ac2/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ac2/names.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportTest : public CleanTest {
 protected:
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  // The data that the page's scripts read.
  static Json data_of(const std::string& page) {
    const std::string open = "<script type=\"application/json\" id=\"data\">";
    const size_t begin = page.find(open) + open.size();
    return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }

  // Rows as objects.
  static std::vector<Json> rows(const Json& region, const std::string& table) {
    const Json& columns = region.at(table).at("columns");
    std::vector<Json> rows;
    for (const Json& row : region.at(table).at("rows")) {
      EXPECT_EQ(row.size(), columns.size());
      Json object;
      for (size_t i = 0; i < columns.size(); ++i) {
        object[columns[i].get<std::string>()] = row[i];
      }
      rows.push_back(std::move(object));
    }
    return rows;
  }

  std::shared_ptr<const Trace> train(const at::Tensor& x, ScopeOptions options = {.timeline = true}) {
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope(policies::save_compute_intensive(), options);
      trace = scope.trace();
      at::Tensor hidden = x.mm(x).relu_().sin();
      tag_with_policy(hidden, CheckpointPolicy::MUST_SAVE);
      y = hidden.mm(x).tanh().cos();
      hidden.mul_(2);
      y = y * hidden;
    }
    in_forward_ = trace->stats();
    y.sum().backward();
    return trace;
  }

  const std::string path_ = ::testing::TempDir() + "report_test.html";
  TraceStats in_forward_;
};

TEST_F(ReportTest, NeedsNothingButItself) {
  write_report(*train(sample({16, 16})), path_);
  const std::string page = read(path_);
  EXPECT_EQ(page.find("<!doctype html>"), 0U);
  // An XML namespace is a name, not an address that anybody opens.
  std::string rest = page;
  const std::string svg = "\"http://www.w3.org/2000/svg\"";
  ASSERT_NE(rest.find(svg), std::string::npos);
  rest.erase(rest.find(svg), svg.size());
  for (const char* reference : {"://", "src=", "href=", "url(", "@import", "<link", "<iframe", "<img", "import(",
                                "fetch(", "XMLHttpRequest", "WebSocket", "Worker("}) {
    EXPECT_THAT(rest, Not(HasSubstr(reference)));
  }
  for (const char* section : {"id=\"memory\"", "id=\"ops\"", "id=\"graph\""}) {
    EXPECT_THAT(page, HasSubstr(section));
  }
}

TEST_F(ReportTest, ListsReplaysThatReachFarBackTheLongestFirst) {
  const at::Tensor x = sample({16});
  const PolicyScope scope("recompute_all");
  at::Tensor left, right;
  {
    at::Tensor near = constant({16}), far = constant({16});
    for (int i = 0; i < 40; ++i) near = near.sin();
    for (int i = 0; i < 60; ++i) far = far.cos();
    left = x * near;
    right = x * far;
  }
  write_report(*scope.trace(), path_);
  const Json region = data_of(read(path_)).at("regions").at(0);
  const std::vector<Json> ops = rows(region, "ops"), values = rows(region, "values");
  const std::vector<Json> replays = rows(region, "long_replays");
  ASSERT_EQ(replays.size(), 2U);
  EXPECT_EQ(replays[0].at("ops"), 60);
  EXPECT_EQ(ops.at(replays[0].at("first")).at("index"), 40);
  EXPECT_EQ(ops.at(values.at(replays[0].at("value")).at("op")).at("index"), 99);
  EXPECT_EQ(replays[1].at("ops"), 40);
  EXPECT_THAT(read(path_), HasSubstr("id=\"long\""));
  gradient_of(left + right, x);
}

TEST_F(ReportTest, ItsFiguresAreTheTraces) {
  const std::shared_ptr<const Trace> trace = train(sample({16, 16}));
  write_report(*trace, path_);
  const Json region = data_of(read(path_)).at("regions").at(0);
  const TraceStats stats = trace->stats();
  EXPECT_EQ(region.at("stats"), Json({{"recorded_ops", stats.recorded_ops},
                                      {"live_nodes", stats.live_nodes},
                                      {"saved_bytes", stats.saved_bytes},
                                      {"recomputed_ops", stats.recomputed_ops},
                                      {"recomputed_bytes", stats.recomputed_bytes},
                                      {"copied_bytes", stats.copied_bytes},
                                      {"evicted_values", stats.evicted_values},
                                      {"packed_values", stats.packed_values},
                                      {"offloaded_bytes", stats.offloaded_bytes}}));
  const std::vector<Json> ops = rows(region, "ops"), replays = rows(region, "replays");
  EXPECT_EQ(static_cast<int64_t>(ops.size()), stats.recorded_ops);
  EXPECT_EQ(static_cast<int64_t>(replays.size()), stats.recomputed_ops);
  ASSERT_GT(stats.recomputed_ops, 0);
  std::map<int64_t, int64_t> replays_of;
  for (const Json& replay : replays) {
    ++replays_of[replay.at("op")];
    EXPECT_LE(replay.at("begin"), replay.at("end"));
    EXPECT_NE(replay.at("consumer"), "");
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(ops[i].at("index"), i);
    EXPECT_EQ(ops[i].at("replays"), replays_of[static_cast<int64_t>(i)]) << ops[i];
    EXPECT_LE(ops[i].at("begin"), ops[i].at("end"));
  }

  int64_t saved = 0, replayed = 0, copied = 0, saved_at_close = -1, last = 0;
  std::map<int64_t, int64_t> held;
  for (const Json& event : rows(region, "events")) {
    const int64_t bytes = event.at("bytes"), time = event.at("time");
    EXPECT_LE(last, time);
    last = time;
    if (saved_at_close < 0 && time > region.at("closed").get<int64_t>()) {
      saved_at_close = saved;
    }
    const std::string change = event.at("change");
    const int64_t sign = change == "hold" || change == "replayed" ? 1 : -1;
    if (change == "copy") {
      copied += bytes;
    } else if (change == "hold" || change == "release") {
      saved += sign * bytes;
      held[event.at("value")] += sign * bytes;
      EXPECT_GE(held[event.at("value")], 0);
    } else {
      replayed += sign * bytes;
    }
    EXPECT_GE(saved, 0);
    EXPECT_GE(replayed, 0);
  }
  EXPECT_EQ(saved_at_close, in_forward_.saved_bytes);
  EXPECT_EQ(saved, stats.saved_bytes);
  EXPECT_EQ(replayed, stats.recomputed_bytes);
  EXPECT_EQ(copied, stats.copied_bytes);
  ASSERT_GT(copied, 0);

  ASSERT_EQ(rows(region, "backwards").size(), 1U);
  EXPECT_EQ(rows(region, "scopes")[0].at("policy"), "save_compute_intensive");
  for (const Json& op : ops) {
    if (op.at("node").get<bool>()) {
      EXPECT_EQ(op.at("decision"), op.at("name") == "aten::mm" ? "MUST_SAVE" : "PREFER_RECOMPUTE");
      EXPECT_EQ(op.at("scope"), 0);
    }
  }
}

// The counted bytes are at no moment more than the budget, once room was made. The others are held all the same.
TEST_F(ReportTest, ShowsTheMemoryAgainstTheBudget) {
  constexpr int64_t kBytes = 64 * 4;
  at::Tensor x = sample({64});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = 4 * kBytes, .modelled_costs = true, .timeline = true});
      trace = scope.trace();
      y = sines(x, 20);
    }
    gradient_of(y, x);
  }
  write_report(*trace, path_);
  const std::string page = read(path_);
  const Json region = data_of(page).at("regions").at(0);
  EXPECT_EQ(region.at("bound"), Json({{"kind", "strict"}, {"bytes", 4 * kBytes}, {"budget", 0}, {"shared_bytes", 0}}));
  ASSERT_EQ(rows(region, "limits").size(), 1U);
  EXPECT_EQ(rows(region, "limits")[0].at("bytes"), 4 * kBytes);
  const std::map<std::string, int64_t> sign = {{"hold", 1}, {"release", -1}, {"replayed", 1}, {"drop", -1}};
  int64_t held = 0, counted = 0, most_held = 0, most_counted = 0, evictions = 0;
  for (const Json& event : rows(region, "events")) {
    const auto change = sign.find(event.at("change"));
    evictions += event.at("change") == "evict" ? 1 : 0;
    if (change == sign.end()) continue;
    if (change->second > 0) {
      most_counted = std::max(most_counted, counted);
      most_held = std::max(most_held, held);
    }
    held += change->second * event.at("bytes").get<int64_t>();
    counted = held - event.at("shared").get<int64_t>();
    // The page's line of what counts is below what is held, also while backward releases and nothing comes.
    EXPECT_LE(event.at("counted"), counted);
    EXPECT_LE(event.at("counted"), 4 * kBytes);
  }
  EXPECT_EQ(most_counted, 4 * kBytes);
  EXPECT_EQ(most_held, 5 * kBytes);  // with x
  EXPECT_EQ(held, 0);
  ASSERT_EQ(evictions, trace->stats().evicted_values);
  const std::vector<Json> effects = rows(data_of(page), "effects");
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_EQ(effects[0].at("kind"), "dropped");
  EXPECT_EQ(effects[0].at("op"), "aten::sin");
  EXPECT_EQ(effects[0].at("values"), evictions);
  EXPECT_EQ(effects[0].at("bytes"), evictions * kBytes);
  EXPECT_EQ(effects[0].at("times"), trace->stats().recomputed_ops);
  EXPECT_LT(effects[0].at("first"), effects[0].at("last"));
  for (const char* part : {"id=\"budget-note\"", "id=\"effects\"", "drawBound(plot);"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

// A bound on the peak is one on what is allocated, which the page has beside what the region holds.
TEST_F(ReportTest, ShowsWhatIsAllocatedAgainstABoundOnThePeak) {
  std::shared_ptr<const Trace> trace;
  {
    const MemoryBudget budget = MemoryBudget::peak(int64_t{1} << 40);
    const at::Tensor x = sample({64}), mine = at::zeros({1000}, at::kByte);
    PolicyScope scope({.memory_budget = budget, .timeline = true});
    trace = scope.trace();
    gradient_of(sines(x, 3), x);
  }
  write_report(*trace, path_);
  const Json region = data_of(read(path_)).at("regions").at(0);
  EXPECT_EQ(region.at("bound").at("kind"), "peak");
  EXPECT_EQ(region.at("bound").at("bytes"), int64_t{1} << 40);
  const std::vector<Json> events = rows(region, "events");
  ASSERT_FALSE(events.empty());
  for (const Json& event : events) {
    EXPECT_GE(event.at("allocated"), 1000 + 64 * 4);
  }
}

TEST_F(ReportTest, WithoutATimelineShowsWhatIsHeldNow) {
  at::Tensor x = sample({64});
  PolicyScope scope(saving({"aten::cos"}));
  const at::Tensor y = x.sin().cos().tan();
  write_report(*scope.trace(), path_);
  const Json region = data_of(read(path_)).at("regions").at(0);
  EXPECT_EQ(region.at("timed"), false);
  EXPECT_EQ(region.at("begin"), nullptr);
  int64_t held = 0;
  for (const Json& value : rows(region, "values")) {
    held += value.at("held_bytes").get<int64_t>();
  }
  EXPECT_EQ(held, scope.trace()->stats().saved_bytes);
  EXPECT_EQ(held, 2 * 64 * 4);
  EXPECT_TRUE(rows(region, "events").empty());
}

TEST_F(ReportTest, PutsSeveralRegionsOnOneTimeLine) {
  const std::vector<std::shared_ptr<const Trace>> traces = {train(sample({8, 8})), train(sample({16, 16}))};
  write_report(traces, path_);
  const Json regions = data_of(read(path_)).at("regions");
  ASSERT_EQ(regions.size(), 2U);
  EXPECT_EQ(regions[0].at("begin"), 0);
  EXPECT_LE(rows(regions[0], "backwards")[0].at("end"), regions[1].at("begin"));
  EXPECT_EQ(regions[1].at("stats").at("recorded_ops"), traces[1]->stats().recorded_ops);
}

TEST_F(ReportTest, ATimelineThatBeginsLateBeginsWithWhatIsHeld) {
  at::Tensor x = sample({64});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      PolicyScope outer(saving({"aten::cos"}));
      trace = outer.trace();
      y = x.sin().cos().sin();
      PolicyScope inner("recompute_all", {.timeline = true});
      y = y.cos();
    }
    y.sum().backward();
  }
  write_report(*trace, path_);
  const Json region = data_of(read(path_)).at("regions").at(0);
  std::map<int64_t, int64_t> held;
  for (const Json& event : rows(region, "events")) {
    const std::string change = event.at("change");
    const int64_t bytes = event.at("bytes");
    if (change == "hold" || change == "release") {
      held[event.at("value")] += change == "hold" ? bytes : -bytes;
      EXPECT_GE(held[event.at("value")], 0);
    }
  }
  EXPECT_EQ(held.size(), 2U);  // x, and the first cos's result
  for (const auto& [value, bytes] : held) {
    EXPECT_EQ(bytes, 0);
    EXPECT_GT(rows(region, "values")[value].at("hooks"), 0);
  }
}

TEST_F(ReportTest, NamesCannotBreakThePage) {
  const std::string name = "</script><b>\"\\ \xff";
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(Policy::constant(CheckpointPolicy::MUST_SAVE).named(name), {.timeline = true});
    trace = scope.trace();
    y = name_tensor(sample({4}).sin(), name).cos();
  }
  write_report(*trace, path_);
  const std::string page = read(path_);
  EXPECT_THAT(page, Not(HasSubstr("<b>\"")));
  const std::string shown = "</script><b>\"\\ \xef\xbf\xbd";
  const Json region = data_of(page).at("regions").at(0);
  EXPECT_EQ(rows(region, "scopes")[0].at("policy"), shown);
  const std::vector<Json> values = rows(region, "values");
  EXPECT_TRUE(std::any_of(values.begin(), values.end(), [&](const Json& value) { return value.at("name") == shown; }));
  // What makes elements or code of a text. The page's scripts make text of it.
  for (const char* parser :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "DOMParser",
        "srcdoc", "eval(", "new Function", "\"on", "javascript:"}) {
    EXPECT_THAT(page, Not(HasSubstr(parser)));
  }
  EXPECT_TRUE(Json::accept(to_chrome_trace(*trace)));
}

TEST_F(ReportTest, AnEmptyRegionHasAPageToo) {
  std::shared_ptr<const Trace> trace = PolicyScope("recompute_all", {.timeline = true}).trace();
  write_report(*trace, path_);
  EXPECT_TRUE(rows(data_of(read(path_)).at("regions").at(0), "ops").empty());
}

TEST_F(ReportTest, SaysWhyItCannotBeWritten) {
  const std::shared_ptr<const Trace> trace = PolicyScope().trace();
  expect_error([&] { write_report(*trace, "/nowhere/at/all.html"); },
               {"Cannot write the report to \"/nowhere/at/all.html\"", "No such file or directory"});
  expect_error([&] { write_report(*trace, "/dev/full"); }, {"\"/dev/full\"", "No space left on device"});
  expect_error([&] { write_report(std::vector<std::shared_ptr<const Trace>>{}, path_); }, {"no trace"});
  expect_error(
      [&] {
        write_report(std::vector<std::shared_ptr<const Trace>>{trace, nullptr}, path_);
      },
      {"null trace at position 1 of 2"});
}

}  // namespace
}  // namespace ac2::test
