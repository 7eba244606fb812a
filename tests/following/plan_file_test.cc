// Plans in files: that the plan that is read is the one that was written, and what is said of files that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ac2/old_names.h"
#include "ac2/plan.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

at::Tensor forward(const Tensors& in) {
  at::Tensor x = in[0];
  for (int i = 0; i < 6; ++i) x = at::gelu(at::linear(x, in[1], in[2])).tanh().view({-1, 16}).mul(in[3]);
  return x.sum();
}

// The text of the error, if there is one.
std::string error_or_nothing(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

// The CRC-32 of zlib and PNG, bit by bit.
uint32_t crc32_of(const std::string& bytes) {
  uint32_t sum = ~uint32_t{0};
  for (const char byte : bytes) {
    sum ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~sum;
}

class PlanFileTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    std::filesystem::create_directory(directory_);
  }
  void TearDown() override {
    std::filesystem::remove_all(directory_);
    CleanTest::TearDown();
  }

  static StepPlanner planner(const Tensors& in) {
    return StepPlanner([&] { forward(in); }, {.modelled_costs = true});
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  // The file with one place of it changed and the checksum of that, read again.
  std::string error_with(const std::string& from, const std::string& to) const {
    const std::string good = text();
    const size_t at = good.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in " << good;
    std::string bad = good;
    bad = bad.replace(at, from.size(), to);
    const std::string body = bad.substr(0, bad.rfind(",\"crc32\""));
    std::ostringstream sealed;
    sealed << body << ",\"crc32\":\"" << std::hex << std::setw(8) << std::setfill('0') << crc32_of(body) << "\"}\n";
    write(sealed.str());
    const std::string error = error_of([this] { Plan::load(path_); });
    write(good);
    return error;
  }
  size_t files() const {
    return std::distance(std::filesystem::directory_iterator(directory_), std::filesystem::directory_iterator());
  }

  const std::string directory_ = ::testing::TempDir() + "plan_file_test";
  const std::string path_ = directory_ + "/plan.json";
  const Tensors inputs_ = {sample({8, 16}), sample({16, 16}), sample({16}), sample({16})};
};

TEST_F(PlanFileTest, APlanThatWasReadReplaysAndHoldsWhatTheOneThatWasWrittenDoes) {
  StepPlanner planner = this->planner(inputs_);
  const Tensors expected = torch::autograd::grad({forward(inputs_)}, inputs_);
  const auto run = [&](const Policy& policy) {
    TraceStats forward_stats;
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      PolicyScope scope(policy);
      trace = scope.trace();
      loss = forward(inputs_);
    }
    forward_stats = trace->stats();
    expect_same_bits(torch::autograd::grad({loss}, inputs_), expected, "gradients");
    return std::pair(forward_stats.saved_bytes, trace->stats().recomputed_ops);
  };
  const int64_t least = planner.smallest().summary().peak_bytes;
  for (const int64_t bytes : {least, 2 * least}) {
    const StepPlanner::Plan plan = planner.plan(bytes);
    plan.save(path_);
    EXPECT_THAT(warnings_of([&] { EXPECT_EQ(run(Plan::load(path_)), run(plan)); }), ::testing::IsEmpty());
    // The file of a plan that was read has every byte of the file that it was read from.
    const std::string first = text();
    Plan::load(path_).save(path_);
    EXPECT_EQ(text(), first);
  }
  EXPECT_EQ(files(), 1);
}

TEST_F(PlanFileTest, APlanThatWasReadSaysWhatTheOneThatWasWrittenSays) {
  StepPlanner::Plan plan = planner(inputs_).smallest();
  plan.save(path_);
  const Plan again = Plan::load(path_);
  const PlanSummary &written = plan.summary(), &read = again.summary();
  EXPECT_GT(written.replayed_ops, 0);
  EXPECT_EQ(read.forward_bytes, written.forward_bytes);
  EXPECT_EQ(read.peak_bytes, written.peak_bytes);
  EXPECT_EQ(read.replayed_ops, written.replayed_ops);
  EXPECT_EQ(read.replay_cost, written.replay_cost);
  EXPECT_EQ(read.forward_cost, written.forward_cost);
  EXPECT_EQ(read.step_peak_bytes, written.step_peak_bytes);
  EXPECT_TRUE(read.uses.empty());
}

TEST_F(PlanFileTest, ThePolicyOfAPlanIsSavedAndLoadedByTheOldNames) {
  const Plan plan = planner(inputs_).smallest();
  const Policy policy = plan;
  save_plan(policy, path_);
  EXPECT_EQ(Plan::load(path_).summary().peak_bytes, plan.summary().peak_bytes);
  const Policy loaded = load_plan(path_);
  PolicyScope scope(loaded);
  EXPECT_THAT(warnings_of([&] { forward(inputs_).backward(); }), ::testing::IsEmpty());
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, plan.summary().replayed_ops);
}

TEST_F(PlanFileTest, APlanForAnotherStepWarnsAndStaysWithinItsBytes) {
  const int64_t bytes = planner(inputs_).smallest().summary().peak_bytes;
  planner(inputs_).plan(bytes).save(path_);
  const at::Tensor x = sample({64});
  const auto warnings = warnings_of([&] {
    PolicyScope scope(Plan::load(path_));
    x.sin().cos().sum().backward();
  });
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_THAT(warnings[0], HasSubstr("the program is not the one that was planned: op 0"));
}

TEST_F(PlanFileTest, APolicyThatIsNoPlanCannotBeSaved) {
  EXPECT_THAT(error_of([&] { save_plan("recompute_all", path_); }),
              HasSubstr("was given the policy \"recompute_all\", which is no plan"));
  EXPECT_THAT(error_of([&] { save_plan(Policy([](const OpContext&) { return true; }), path_); }),
              HasSubstr("was given a policy without a name, which is no plan"));
  const Plan plan = planner(inputs_).smallest();
  const Policy with_names = plan.with_names([](const NamedTensor&) { return std::nullopt; });
  EXPECT_THAT(error_of([&] { save_plan(with_names, path_); }), HasSubstr("which is no plan"));
  EXPECT_EQ(files(), 0);
}

TEST_F(PlanFileTest, AFileThatCannotBeWrittenIsAnErrorAndTheOldOneStays) {
  const Plan plan = planner(inputs_).smallest();
  const std::string nowhere = directory_ + "/missing/plan.json";
  EXPECT_THAT(error_of([&] { plan.save(nowhere); }),
              ::testing::AllOf(HasSubstr("cannot be written to \"" + nowhere), HasSubstr("No such file or directory")));
  std::filesystem::create_directories(path_ + "/in_the_way");
  EXPECT_THAT(error_of([&] { plan.save(path_); }), HasSubstr("cannot be written to \"" + path_));
  EXPECT_EQ(files(), 1);
}

TEST_F(PlanFileTest, AFileThatIsNoPlanIsAnErrorThatSaysWhatIsWrong) {
  EXPECT_THAT(error_of([&] { Plan::load(path_); }),
              ::testing::AllOf(HasSubstr(path_), HasSubstr("No such file or directory")));
  for (const char* const other : {"", "[]", "7", "{}", "{\"bytes\": 8}"}) {
    write(other);
    EXPECT_THAT(error_of([&] { Plan::load(path_); }), HasSubstr("The plan \"" + path_ + "\" cannot be read")) << other;
  }
  planner(inputs_).smallest().save(path_);
  const std::string good = text();
  // A file that ends early, wherever it ends.
  for (size_t length = 0; length < good.size() - 2; length += 7) {
    write(good.substr(0, length));
    EXPECT_THAT(error_of([&] { Plan::load(path_); }), HasSubstr("cannot be read")) << length;
  }
  write(good);
  EXPECT_THAT(error_with("\"ac2_plan\":5", "\"ac2_plan\":4"), HasSubstr("of version 4, and this ac2 reads version 5"));
  EXPECT_THAT(error_with("\"ac2_plan\":5", "\"ac2_plan\":[[]]"), HasSubstr("its version is an array"));
  EXPECT_THAT(error_with("\"MUST_RECOMPUTE\"", "\"SaveWithHooks\""), HasSubstr("\"SaveWithHooks\" is no decision"));
  for (const char* const form :
       {"quantized 3 bits, seed 0", "quantized 8 bits, seed 0 and more", "quantized", "narrow Float", "file", ""}) {
    EXPECT_THAT(
        error_with("\"MUST_RECOMPUTE\"", std::string("{\"form\":\"") + form + "\"}"),
        HasSubstr("it packs results in the form \"" + std::string(form) + "\", which this process does not have"));
  }
  EXPECT_THAT(error_with("aten::gelu", "aten::gelv"),
              HasSubstr("the operator \"aten::gelv\", which this process does"));
  EXPECT_THAT(error_with("\"bytes\":", "\"bytes\":-"), HasSubstr("\"bytes\" is -"));
  EXPECT_THAT(error_with("\"bytes\":", "\"bytes\":1e"), HasSubstr("cannot be read"));
  EXPECT_THAT(error_with("\"bytes\":", "\"bytes\":99999999999999999999"), HasSubstr("cannot be read"));
  EXPECT_THAT(error_with("modelled", "guessed"), HasSubstr("\"costs\" is \"guessed\""));
  EXPECT_THAT(error_with("\"MUST_RECOMPUTE\"", "\"MUST_GUESS\""), HasSubstr("\"MUST_GUESS\" is no decision"));
  EXPECT_THAT(error_with(",[0,", ",[99,"), HasSubstr("the operator of a call is 99"));
  EXPECT_THAT(error_with(",[0,", ",[0.5,"), HasSubstr("the operator of a call is 0.5; expected a whole number"));
  EXPECT_THAT(error_with(",[0,", ",[0,0,0,"), HasSubstr("expected an operator, a number of bytes, and a decision"));
  EXPECT_THAT(error_with("\"calls\":[", "\"calls\":{\"a\":["), HasSubstr("cannot be read"));
  EXPECT_NO_THROW(Plan::load(path_));  // the file is whole again
}

TEST_F(PlanFileTest, AChangeOfAnyBitIsAnError) {
  planner(inputs_).smallest().save(path_);
  const std::string good = text();
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << i % 8));
    write(bad);
    EXPECT_THAT(error_of([&] { Plan::load(path_); }), HasSubstr("cannot be read")) << "bit " << i;
  }
  for (const std::string& bad : {good + "\n", good + " ", "\xef\xbb\xbf" + good, " " + good}) {
    write(bad);
    EXPECT_THAT(error_of([&] { Plan::load(path_); }), HasSubstr("it is damaged: its bytes do not have the checksum"));
  }
  std::string bad = good;
  const size_t at = bad.find("\"bytes\":") + 8;
  bad[at] = bad[at] == '1' ? '2' : '1';
  write(bad);
  EXPECT_THAT(error_of([&] { Plan::load(path_); }), HasSubstr("it is damaged: its bytes do not have the checksum"));
  write(good);
  EXPECT_NO_THROW(Plan::load(path_));
}

// A list of entries that each new one is looked up in would take minutes for so many.
TEST_F(PlanFileTest, AFileOfManyNamesIsReadAtOnce) {
  planner(inputs_).smallest().save(path_);
  std::string names = "\"unknown\":{\"\":0";
  for (int i = 0; i < 200'000; ++i) names += ",\"" + std::to_string(i) + "\":0";
  EXPECT_THAT(error_with("\"calls\":", names + "},\"calls\":null,\"calls \":"), HasSubstr("\"calls\" is no array"));
}

TEST_F(PlanFileTest, ErrorsAreValidTextWhateverTheFileHas) {
  for (const char* const bytes : {"\xff\xfe", "{\"ac2_plan\":\"\xff\"}", "{\"ac2_plan\xff\":2}", "\x01"}) {
    write(bytes);
    const std::string error = error_of([&] { Plan::load(path_); });
    EXPECT_THAT(error, HasSubstr("it is damaged, or was not written by a plan's save()"));
    EXPECT_TRUE(std::all_of(error.begin(), error.end(), [](char byte) { return byte >= ' ' && byte <= '~'; })) << error;
  }
  const std::string error = error_of([&] { Plan::load(directory_ + "/\xff"); });
  EXPECT_THAT(error, HasSubstr("plan_file_test/\xef\xbf\xbd\" cannot be read"));  // U+FFFD for what is no UTF-8
}

TEST_F(PlanFileTest, ADeviceIsNotRead) {
  EXPECT_THAT(error_of([&] { Plan::load("/dev/zero"); }), HasSubstr("it is a device, a pipe or a socket"));
}

TEST_F(PlanFileTest, ADirectoryIsNoPlan) {
  EXPECT_THAT(error_of([&] { Plan::load(directory_); }),
              ::testing::AllOf(HasSubstr("The plan \"" + directory_ + "\" cannot be read: it is a directory"),
                               HasSubstr("Give load() a file that a plan's save() wrote")));
}

TEST_F(PlanFileTest, ThreadsMayWriteAndReadOnePath) {
  const Plan plan = planner(inputs_).smallest();
  plan.save(path_);
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (std::string& error : errors) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200 && error.empty(); ++i) {
        error = error_or_nothing([&] {
          plan.save(path_);
          Plan::load(path_);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, ::testing::Each(::testing::IsEmpty()));
  EXPECT_EQ(files(), 1);
}

TEST_F(PlanFileTest, ASymbolicLinkIsFollowedAndStays) {
  const Plan plan = planner(inputs_).smallest();
  std::filesystem::create_directory(directory_ + "/there");
  const std::string link = directory_ + "/link.json", target = directory_ + "/there/plan.json";
  std::filesystem::create_symlink("second.json", link);
  std::filesystem::create_symlink("there/plan.json", directory_ + "/second.json");
  for (int i = 0; i < 2; ++i) {  // the target does not exist at first, then it does
    plan.save(link);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_TRUE(std::filesystem::is_symlink(directory_ + "/second.json"));
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(target)));
    EXPECT_NO_THROW(Plan::load(target));
    EXPECT_EQ(files(), 3);
  }
  std::filesystem::remove(link);
  std::filesystem::create_symlink("link.json", link);  // to itself
  EXPECT_THAT(error_of([&] { plan.save(link); }), HasSubstr("cannot be written to \"" + link));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(PlanFileTest, WhatIsNoRegularFileIsAnErrorAndIsLeftAlone) {
  const Plan plan = planner(inputs_).smallest();
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const std::string link = directory_ + "/link.json";
  std::filesystem::create_symlink("plan.json", link);
  for (const std::string& path : {path_, link}) {
    EXPECT_THAT(error_of([&] { plan.save(path); }), HasSubstr("cannot be written to \"" + path + "\": it is a pipe"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_THAT(error_of([&] { plan.save(directory_); }), HasSubstr("it is a directory"));
  EXPECT_EQ(files(), 2);
}

}  // namespace
}  // namespace ac2::test
