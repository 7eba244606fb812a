// The C++ side of compare_peers, tiny: every model trains bit for bit alike in every form, and bad requests are
// answered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace ac2 {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The answers of peer_models, line by line, from one process.
std::vector<Json> ask_lines(const std::vector<std::string>& lines) {
  const std::string path = ::testing::TempDir() + "requests";
  {
    std::ofstream file(path);
    for (const std::string& line : lines) file << line << '\n';
  }
  const test::Printed ran = test::run_program("benchmarks/peer_models --tiny < " + path);
  EXPECT_EQ(ran.status, EXIT_SUCCESS) << ran.output;
  std::vector<Json> answers;
  std::istringstream output(ran.output);
  for (std::string line; std::getline(output, line);) answers.push_back(Json::parse(line));
  EXPECT_EQ(answers.size(), lines.size());
  answers.resize(lines.size());
  return answers;
}

std::vector<Json> ask(const std::vector<Json>& requests) {
  std::vector<std::string> lines;
  for (const Json& request : requests) lines.push_back(request.dump());
  return ask_lines(lines);
}

class PeerModelsTest : public ::testing::Test {
 protected:
  const Json description_ = ask_lines({R"({"do": "describe"})"})[0];
};

TEST_F(PeerModelsTest, EveryModelTrainsAlikeInEveryForm) {
  const std::string path = ::testing::TempDir() + "gradients";
  ASSERT_THAT(description_.at("order"), SizeIs(6));
  for (const std::string model : description_.at("order")) {
    std::vector<Json> requests;
    for (const std::string form : description_.at("forms")) {
      for (const char* what : {"count", "step", "gradients"}) {
        requests.push_back({{"do", what}, {"model", model}, {"form", form}, {"file", path + form}});
      }
    }
    const std::vector<Json> answers = ask(requests);
    int64_t parameters = 0;
    for (const Json& sizes : description_.at("models").at(model)) {
      int64_t count = 1;
      for (const int64_t size : sizes) count *= size;
      parameters += count;
    }
    const Json& plain = answers[1];
    const std::string gradients = content(path + "none");
    EXPECT_EQ(gradients.size(), parameters * sizeof(float)) << model;
    for (size_t i = 0; i < answers.size(); i += 3) {
      const std::string form = requests[i].at("form");
      SCOPED_TRACE(model + ", " + form);
      const bool replays = form == "recompute_all" || form == "save_compute_intensive";
      EXPECT_EQ(answers[i].at("replayed_ops") > 0, replays) << answers[i];
      const Json& step = answers[i + 1];
      EXPECT_GT(step.at("seconds"), 0);
      if (form == "recompute_all") {
        EXPECT_LT(step.at("held_bytes"), plain.at("held_bytes"));
      }
      EXPECT_GE(step.at("forward_peak_bytes"), step.at("held_bytes"));
      EXPECT_GE(step.at("backward_peak_bytes"), step.at("held_bytes"));
      EXPECT_EQ(answers[i + 2].at("bytes"), gradients.size());
      EXPECT_TRUE(content(path + form) == gradients) << "gradients differ";
      std::filesystem::remove(path + form);
    }
  }
}

TEST_F(PeerModelsTest, ABadRequestIsAnsweredAndTheNextOneSucceeds) {
  const std::string good = R"({"do": "step", "model": "chain", "form": "recompute_all"})";
  const std::vector<std::pair<std::string, const char*>> bad = {
      {R"({"do": "step", "model": "gtp", "form": "none"})", "Unknown model \"gtp\". Choose one of: chain, gpt"},
      {R"({"do": "step", "model": "gpt", "form": "recompute"})", "Unknown policy \"recompute\""},
      {R"({"do": "stop", "model": "gpt", "form": "none"})", "Unknown request \"stop\""},
      {R"({"do": "gradients", "model": "gpt", "form": "none", "file": "/no/such/folder/f"})",
       "Cannot write /no/such/folder/f"},
      {R"({"do": "step", "model": "gpt"})", "form"},
      {"no JSON", "parse error"},
  };
  std::vector<std::string> lines;
  for (const auto& [line, phrase] : bad) {
    lines.push_back(line);
    lines.push_back(good);
  }
  const std::vector<Json> answers = ask_lines(lines);
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THAT(answers[2 * i].value("error", ""), HasSubstr(bad[i].second));
    EXPECT_TRUE(answers[2 * i + 1].contains("held_bytes")) << answers[2 * i + 1];
  }
}

TEST(ListReplaysTest, NamesEachReplayedOpAndWhoAskedForIt) {
  const test::Printed ran = test::run_program("benchmarks/list_replays --tiny --region=0");
  EXPECT_EQ(ran.status, EXIT_SUCCESS);
  EXPECT_THAT(ran.output, AllOf(HasSubstr("gpt under recompute_all, region 0 of 2.\n27 ops recorded, 8 replayed:\n"),
                                HasSubstr("| aten::gelu (op 21)"), HasSubstr("AddmmBackward0 |\n")));
  EXPECT_THAT(test::run_program("benchmarks/list_replays --tiny --explain").output, HasSubstr("\nRecomputed: 8 ops"));
}

TEST(ListReplaysTest, RefusesWhatThereIsNot) {
  for (const auto& [arguments, phrase] :
       {std::pair("--policy=none", "opens no region"), std::pair("--region=2", "region is 2; gpt has regions 0 to 1"),
        std::pair("--model=gtp", "Unknown model \"gtp\"")}) {
    const test::Printed ran = test::run_program(std::string("benchmarks/list_replays --tiny ") + arguments);
    EXPECT_EQ(ran.status, EXIT_FAILURE);
    EXPECT_THAT(ran.output, HasSubstr(phrase));
  }
}

TEST(ComparePeersTest, SaysThatThereIsNoPython) {
  const std::string script = std::filesystem::path(__FILE__).parent_path() / "../../benchmarks/compare_peers";
  const test::Printed ran = test::run_program("PYTHON=/no/such/python " + script + " --quick");
  EXPECT_EQ(ran.status, EXIT_FAILURE);
  EXPECT_THAT(ran.output, HasSubstr("no Python found as \"/no/such/python\"; install python3, or set PYTHON"));
  const test::Printed without_venv = test::run_program("PYTHON=false " + script);
  EXPECT_EQ(without_venv.status, EXIT_FAILURE);
  EXPECT_THAT(without_venv.output, HasSubstr("false has no venv; install python3-venv"));
}

}  // namespace
}  // namespace ac2
