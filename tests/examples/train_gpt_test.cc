// The main job, tiny: every policy trains bit for bit alike and holds less, and bad input is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "ac2/ac2.h"
#include "examples/checkpointing.h"
#include "examples/compare.h"
#include "examples/generate.h"
#include "examples/loss_curve.h"
#include "examples/text_data.h"
#include "examples/trainer.h"
#include "policies/by_name.h"
#include "tests/support/run_program.h"
#include "tests/support/some_text.h"

namespace gpt {
namespace {

using ac2::test::Printed;
using ac2::test::run_program;
using ac2::test::some_text;

using ::testing::AllOf;
using ::testing::HasSubstr;

// Tests run side by side; the spinning threads of several of them on few cores would take minutes for these seconds.
const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();

TrainOptions tiny_options() {
  TrainOptions options;
  options.model = {.vocabulary = 0, .context = 16, .layers = 2, .dim = 16, .heads = 2, .dropout = 0.1};
  options.batch = 4;
  options.steps = 6;
  return options;
}

// The text of the c10::Error when `fn` is called, or "" if it is not thrown.
template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

std::string temporary_file(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(TrainGptTest, PoliciesTrainBitForBitAlike) {
  const TextData text = some_text();
  int64_t rounds = 0;
  std::vector<std::string> names = policy_names();
  names.insert(names.end(), {"64KiB", "1GiB", "auto"});
  const auto compared = compare_policies(text, tiny_options(), names, [&](int64_t done) { rounds = done; });
  EXPECT_EQ(rounds, tiny_options().steps);
  ASSERT_EQ(compared.size(), names.size());
  EXPECT_LT(compared[4].held_bytes, compared[0].held_bytes);
  EXPECT_EQ(compared[5].held_bytes, compared[0].held_bytes);
  EXPECT_EQ(compared[6].held_bytes, compared[0].held_bytes);
  for (const auto& policy : compared) {
    EXPECT_TRUE(policy.same_losses) << policy.name;
    EXPECT_TRUE(policy.same_parameters) << policy.name;
    EXPECT_EQ(policy.final_loss, compared[0].final_loss) << policy.name;
  }
  std::ostringstream out;
  EXPECT_TRUE(print_comparison(out, compared));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("| save_compute_intensive |"), HasSubstr("same bits")));
  EXPECT_EQ(ac2::live_node_count(), 0);
}

TEST(TrainGptTest, PoliciesHoldWhatTheirNamesSay) {
  const TextData text = some_text();
  Trainer trainer(text, tiny_options(), "none");
  trainer.step();
  const auto held = [&](const char* policy) { return trainer.measure(checkpointing_by_name(policy)).held_bytes; };
  const int64_t none = held("none");
  EXPECT_LT(held("recompute_all"), held("save_compute_intensive"));
  EXPECT_LT(held("save_compute_intensive"), none);
  EXPECT_EQ(held("must_save_all"), none);
}

TEST(TrainGptTest, RegionsAroundBlocksStepsAndTheWholeLoopTrainBitForBitAlike) {
  const TextData text = some_text();
  for (const char* policy : {"recompute_all", "save_compute_intensive", "64KiB"}) {
    Trainer plain(text, tiny_options(), "none");
    Trainer block(text, tiny_options(), policy), step(text, tiny_options(), policy, RegionSpan::kStep);
    std::vector<float> losses;
    for (int i = 0; i < tiny_options().steps; ++i) {
      losses.push_back(plain.step().loss);
      EXPECT_EQ(block.step().loss, losses.back()) << policy;
      EXPECT_EQ(step.step().loss, losses.back()) << policy;
      EXPECT_EQ(ac2::live_node_count(), 0) << policy;
    }
    Trainer loop(text, tiny_options(), policy, RegionSpan::kLoop);
    int64_t held = 0;
    for (int i = 0; i < tiny_options().steps; ++i) {
      const StepResult result = loop.step();
      EXPECT_EQ(result.loss, losses[i]) << policy;
      // From the third on there is nothing new: the optimizer's state came into being in the first.
      if (i == 2) held = result.held_bytes;
      if (i < 2) continue;
      if (policy == std::string("64KiB")) {
        // The dropped values depend on how long ops took; the loss, which counts here, is not held for backward.
        EXPECT_LE(result.held_bytes, (64 << 10) + 512);
      } else {
        EXPECT_EQ(result.held_bytes, held) << policy;
      }
    }
    loop.end_loop();
    EXPECT_EQ(ac2::live_node_count(), 0) << policy;
    for (const auto& parameter : plain.model()->named_parameters()) {
      EXPECT_TRUE(parameter.value().equal(loop.model()->named_parameters()[parameter.key()])) << parameter.key();
    }
  }
}

TEST(TrainGptTest, EveryPolicyWithoutParametersTrainsAsNone) {
  const TextData text = some_text();
  Trainer trainer(text, tiny_options(), "none");
  trainer.step();
  const StepResult none = trainer.measure(std::nullopt);
  for (const std::string& name : ac2::policies::policy_names()) {
    const StepResult measured = trainer.measure(checkpointing_by_name(name));
    EXPECT_EQ(measured.loss, none.loss) << name;
    EXPECT_LE(measured.held_bytes, none.held_bytes) << name;
  }
  EXPECT_THAT(error_of([] { checkpointing_by_name("fastest"); }),
              AllOf(HasSubstr("Unknown policy \"fastest\""), HasSubstr("none, "), HasSubstr("speed")));
}

TEST(TrainGptTest, MeasuringLeavesTheTrainingAsItIs) {
  const TextData text = some_text();
  Trainer measured(text, tiny_options(), "recompute_all"), undisturbed(text, tiny_options(), "recompute_all");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(measured.step().loss, undisturbed.step().loss);
    EXPECT_EQ(measured.measure(std::nullopt).loss, measured.measure("recompute_all").loss);
  }
}

TEST(TrainGptTest, LossFalls) {
  const TextData text = some_text();
  TrainOptions options = tiny_options();
  options.steps = 60;
  Trainer trainer(text, options, "recompute_all");
  const float first = trainer.step().loss;
  float last = first;
  for (int64_t i = 1; i < options.steps; ++i) last = trainer.step().loss;
  EXPECT_LT(last, first - 0.3F);
}

TEST(TrainGptTest, DifferencesAreReported) {
  const TextData text = some_text();
  auto compared = compare_policies(text, tiny_options(), policy_names(), [](int64_t) {});
  compared[2].same_losses = false;
  std::ostringstream out;
  EXPECT_FALSE(print_comparison(out, compared));
  EXPECT_THAT(out.str(), HasSubstr("DIFFERENT from none: the losses under save_compute_intensive"));
}

TEST(TrainGptTest, BytesAreReadWithTheirUnit) {
  EXPECT_EQ(parse_bytes("40MiB"), 40 << 20);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("65536"), 65536);
  for (const char* text : {"", "MiB", "-1MiB", "0", "40MB", "nan", "1e40GiB"}) {
    EXPECT_THAT(error_of([&] { parse_bytes(text); }), HasSubstr("is not a number of bytes")) << text;
  }
}

TEST(TrainGptTest, GeneratesFromThePrompt) {
  const TextData text = some_text();
  Trainer trainer(text, tiny_options(), "none");
  trainer.step();
  const std::string sample = generate(trainer.model(), text, "line", 40, 0.8, 1);
  EXPECT_EQ(sample.size(), 44U);
  EXPECT_EQ(sample.substr(0, 4), "line");
  EXPECT_EQ(sample, generate(trainer.model(), text, "line", 40, 0.8, 1));
  EXPECT_THAT(error_of([&] { generate(trainer.model(), text, "Zebra", 1, 0.8, 1); }),
              HasSubstr("no token for byte 90 of \"Zebra\""));
}

TEST(TrainGptTest, ReadsAFileAndADirectory) {
  EXPECT_EQ(TextData::load(temporary_file("abc.txt", "cabba")).vocabulary(), 3);
  const std::string directory = ::testing::TempDir() + "headers";
  std::filesystem::create_directories(directory + "/sub");
  std::ofstream(directory + "/z.h") << "last";
  std::ofstream(directory + "/sub/a.h") << "first ";
  std::ofstream(directory + "/ignored.txt") << "no";
  EXPECT_EQ(TextData::load(directory).text(), "first last");
}

Printed train_by_program(const std::string& arguments) {
  return run_program("examples/train_gpt --threads=1 " + arguments);
}

nlohmann::json report_data(const std::string& path) {
  std::ostringstream page;
  page << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.str().find(open) + open.size();
  return nlohmann::json::parse(page.str().substr(begin, page.str().find("</script>", begin) - begin));
}

TEST(TrainGptTest, WritesAReport) {
  const std::string path = ::testing::TempDir() + "train_gpt_test.html";
  const std::string flags = "--steps=2 --layers=2 --dim=16 --heads=2 --context=16 --batch=2 --sample=0 --text=" +
                            temporary_file("report.txt", some_text().text().data()) + " --report=";
  const Printed run = train_by_program(flags + path);
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("What the regions of the first step did: " + path));
  const auto data = report_data(path);
  ASSERT_EQ(data.at("regions").size(), 2U);  // one a block
  for (const auto& region : data.at("regions")) {
    EXPECT_EQ(region.at("scopes").at("rows").at(0).at(1), "recompute_all");
    EXPECT_GT(region.at("stats").at("recomputed_ops"), 0);
    EXPECT_EQ(region.at("stats").at("saved_bytes"), 0);
    EXPECT_EQ(region.at("backwards").at("rows").size(), 1U);
  }

  const Printed budgeted = train_by_program(flags + path + " --memory_budget=64KiB");
  EXPECT_EQ(budgeted.status, 0) << budgeted.output;
  const auto one_region = report_data(path).at("regions");
  ASSERT_EQ(one_region.size(), 1U);  // with a budget, all blocks in one
  EXPECT_GT(one_region.at(0).at("stats").at("evicted_values"), 0);

  const Printed fits = train_by_program(flags + path + " --memory_budget=auto");
  EXPECT_EQ(fits.status, 0) << fits.output;
  ASSERT_EQ(report_data(path).at("regions").size(), 1U);
  EXPECT_EQ(report_data(path).at("regions").at(0).at("stats").at("recomputed_ops"), 0);

  const Printed unwritable = train_by_program(flags + "/nowhere/at_all.html");
  EXPECT_NE(unwritable.status, 0);
  EXPECT_THAT(unwritable.output, HasSubstr("Cannot write the report to \"/nowhere/at_all.html\""));
  EXPECT_THAT(train_by_program(flags + path + " --policy=none").output, HasSubstr("--policy=none opens none"));
  EXPECT_THAT(train_by_program(flags + path + " --compare").output, HasSubstr("--policy instead of --compare"));

  const Printed loop = train_by_program(flags + path + " --region=loop");
  EXPECT_EQ(loop.status, 0) << loop.output;
  EXPECT_THAT(loop.output, HasSubstr("The last step, under this policy: "));
  EXPECT_EQ(report_data(path).at("regions").size(), 1U);
  EXPECT_THAT(train_by_program(flags + path + " --region=epoch").output, HasSubstr("it must be block, step or loop"));
}

TEST(TrainGptTest, SeveralProcessesTrainTogether) {
  const std::string flags = "--steps=4 --layers=2 --dim=16 --heads=2 --context=16 --batch=2 --sample=0 --text=" +
                            temporary_file("processes.txt", some_text().text().data());
  const Printed run = train_by_program(flags + " --processes=2 --policy=speed");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("policy speed; 2 processes"), HasSubstr("in 1 buckets")));
  const Printed compared = train_by_program(flags + " --processes=2 --compare --memory_budget=64KiB");
  EXPECT_EQ(compared.status, 0) << compared.output;
  EXPECT_THAT(compared.output, AllOf(HasSubstr(" all-reduces |"), HasSubstr("All policies trained equally")));
  EXPECT_EQ(compared.output.find("Text: "), compared.output.rfind("Text: "));  // one process speaks
  EXPECT_THAT(train_by_program(flags + " --processes=0").output, HasSubstr("processes is 0; it must be at least 1"));
  EXPECT_THAT(train_by_program(flags + " --processes=2 --policy=sped").output,
              AllOf(HasSubstr("sped"), ::testing::Not(HasSubstr("Rank"))));  // before any process is started
}

TEST(TrainGptTest, AFormThatChangesGradientsTrainsBesideTheExactOne) {
  const std::string flags = "--steps=4 --layers=2 --dim=16 --heads=2 --context=16 --batch=2 --sample=0 --text=" +
                            temporary_file("forms.txt", some_text().text().data());
  for (const std::string policy : {"quantize8", "quantize4", "bfloat16", "float8"}) {
    const Printed run = train_by_program(flags + " --policy=" + policy);
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_THAT(run.output, AllOf(HasSubstr("(none: "), HasSubstr("Mean losses"), HasSubstr(policy),
                                  HasSubstr("largest of a step"), HasSubstr("4 to 4")));
  }
  const Printed exact = train_by_program(flags + " --policy=spill:" + ::testing::TempDir());
  EXPECT_EQ(exact.status, 0) << exact.output;
  EXPECT_THAT(exact.output, ::testing::Not(HasSubstr("Mean losses")));
  EXPECT_THAT(train_by_program(flags + " --policy=spill:/nowhere/at_all").output,
              AllOf(HasSubstr("/nowhere/at_all"), HasSubstr("No such file or directory")));
}

TEST(TrainGptTest, FormsHoldLessAndTrainNearlyAlike) {
  const TextData text = some_text();
  TrainOptions options = tiny_options();
  options.model.dim = 32;
  const auto compared = compare_policies(text, options,
                                         {"none", "bfloat16", "quantize8", "float8", "quantize4",
                                          "spill:" + ::testing::TempDir(), "offload", "offload_inputs"},
                                         [](int64_t) {});
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_LT(compared[i].held_bytes, compared[0].held_bytes) << compared[i].name;
    EXPECT_FALSE(compared[i].same_parameters) << compared[i].name;
    EXPECT_NEAR(compared[i].final_loss, compared[0].final_loss, 0.05) << compared[i].name;
  }
  EXPECT_LT(compared[4].held_bytes, compared[2].held_bytes);
  EXPECT_LT(compared[2].held_bytes, compared[1].held_bytes);
  for (size_t i = 5; i < compared.size(); ++i) {
    EXPECT_TRUE(compared[i].same_losses && compared[i].same_parameters) << compared[i].name;
  }
  EXPECT_EQ(ac2::live_node_count(), 0);
}

TEST(TrainGptTest, LossesArePrintedByTenths) {
  std::ostringstream out;
  std::vector<LossPair> losses;
  for (int i = 0; i < 40; ++i) losses.push_back({2.5F + (i % 2 == 0 ? 0.25F : -0.25F), 2});
  print_losses(out, "quantize8", losses);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("| 37 to 40"), HasSubstr("2.5000"), HasSubstr("0.5000"), HasSubstr("0.7500")));
}

TEST(TrainGptTest, NamesBadText) {
  EXPECT_THAT(error_of([] { TextData::load("no/such/file"); }), HasSubstr("\"no/such/file\" does not exist"));
  EXPECT_THAT(error_of([] { TextData::load(temporary_file("empty.txt", "")); }), HasSubstr("is empty"));
  // Opens, and cannot be read.
  EXPECT_THAT(error_of([] { TextData::load("/proc/self/mem"); }), HasSubstr("Cannot read the text file"));
  const std::string directory = ::testing::TempDir() + "nothing";
  std::filesystem::create_directories(directory);
  EXPECT_THAT(error_of([&] { TextData::load(directory); }), HasSubstr("has no .h files"));
  const TextData text(std::string("sixteen letters."));
  EXPECT_THAT(error_of([&] { Trainer(text, tiny_options(), "none"); }),
              AllOf(HasSubstr("The text has 16 bytes"), HasSubstr("at least 17"), HasSubstr("--context of 15")));
}

TEST(TrainGptTest, NamesBadOptions) {
  const TextData text = some_text();
  const auto error_with = [&](auto change) {
    TrainOptions options = tiny_options();
    change(options);
    return error_of([&] { Trainer(text, options, "none"); });
  };
  EXPECT_THAT(error_with([](TrainOptions& o) { o.model.heads = 3; }), HasSubstr("dim 16 is not divisible by heads 3"));
  EXPECT_THAT(error_with([](TrainOptions& o) { o.model.layers = 0; }), HasSubstr("layers is 0"));
  EXPECT_THAT(error_with([](TrainOptions& o) { o.model.context = -5; }), HasSubstr("context is -5"));
  EXPECT_THAT(error_with([](TrainOptions& o) { o.batch = 0; }), HasSubstr("batch is 0"));
  EXPECT_THAT(error_with([](TrainOptions& o) { o.steps = -1; }), HasSubstr("steps is -1"));
  EXPECT_THAT(error_with([](TrainOptions& o) { o.model.dropout = 1; }), HasSubstr("dropout is 1"));
  EXPECT_THAT(error_with([](TrainOptions& o) { o.learning_rate = 0; }), HasSubstr("lr is 0"));
  EXPECT_THAT(error_of([&] { Trainer(text, tiny_options(), "save_everything"); }),
              AllOf(HasSubstr("Unknown policy \"save_everything\""),
                    HasSubstr("none, recompute_all, save_compute_intensive, must_save_all")));
}

}  // namespace
}  // namespace gpt
