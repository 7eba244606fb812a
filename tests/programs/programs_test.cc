// C++ programs in the form of PyTorch's examples, which know nothing of ac2 (the other files of this folder): plain,
// and by ac2-run with so little memory, or under such a policy, that ops are computed again. Output, exit code and the
// files that they save are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "tests/support/own_files.h"
#include "tests/support/run_program.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kAc2[] = "ac2/run/ac2-run ";

// What a program did, and all files that it left in a folder of its own.
struct Ran {
  int status = 0;
  std::string output;
  std::string said;  // on stderr
  std::map<std::string, std::string> files;
};

// FOLDER in the command is an empty folder.
Ran run(const std::string& name, const std::string& command) {
  const std::string own = own_folder() + "/" + name;
  std::filesystem::remove_all(own);
  std::filesystem::create_directories(own);
  const std::string errors = own_folder() + "/" + name + ".said";
  // The shell within says itself what a signal has ended.
  const Printed printed =
      run_program("{ OMP_NUM_THREADS=1 sh -c '" + std::regex_replace(command, std::regex("FOLDER"), own) +
                  "; exit $?' 2>" + errors + "; }");
  Ran ran{.status = printed.status, .output = printed.output, .said = text_of(errors), .files = {}};
  for (const auto& entry : std::filesystem::directory_iterator(own)) {
    ran.files[entry.path().filename()] = text_of(entry.path());
  }
  return ran;
}

// `said` without ac2's own lines, which are the last ones.
std::string without_words(const std::string& said) {
  const size_t words = said.find("ac2: ");
  return said.substr(0, words);
}

int64_t counted(const std::string& said, const std::string& what) {
  std::smatch found;
  return std::regex_search(said, found, std::regex("([0-9]+) " + what)) ? std::stoll(found[1]) : 0;
}

void expect_same_with_ops_computed_again(const std::string& options, const std::string& command, size_t files) {
  const Ran plain = run("plain", command);
  const Ran by_ac2 = run("by_ac2", kAc2 + options + " " + command);
  EXPECT_EQ(plain.status, 0) << plain.said;
  EXPECT_THAT(plain.output, Not(IsEmpty()));
  EXPECT_EQ(plain.files.size(), files);
  EXPECT_EQ(by_ac2.status, plain.status) << by_ac2.said;
  EXPECT_EQ(by_ac2.output, plain.output);
  EXPECT_EQ(without_words(by_ac2.said), plain.said);
  EXPECT_TRUE(by_ac2.files == plain.files) << "the files differ";
  EXPECT_GT(counted(by_ac2.said, "ops? (was|were) computed again"), 0) << by_ac2.said;
}

TEST(ProgramsTest, ARegressionLearnsTheSamePolynomial) {
  expect_same_with_ops_computed_again("--policy recompute_all", "tests/programs/regression", 0);
}

TEST(ProgramsTest, ANetworkOfConvolutionsWithDataLoadersTrainsAndTestsToTheSameBits) {
  expect_same_with_ops_computed_again("--memory-budget 3MiB", "tests/programs/mnist FOLDER/model.pt 64", 1);
}

TEST(ProgramsTest, AGeneratorAndADiscriminatorTrainToTheSameBits) {
  expect_same_with_ops_computed_again("--memory-budget 600KiB", "tests/programs/dcgan FOLDER", 3);
}

// Attention, dropout, a loop and a branch.
std::string write_module() {
  torch::manual_seed(0);
  torch::jit::Module module("m");
  module.register_parameter("first", (torch::randn({16, 24}) * 0.2).requires_grad_(), /*is_buffer=*/false);
  module.register_parameter("again", (torch::randn({24, 24}) * 0.2).requires_grad_(), /*is_buffer=*/false);
  module.register_parameter("last", (torch::randn({24, 1}) * 0.2).requires_grad_(), /*is_buffer=*/false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(R"(
    def forward(self, x):
        y = torch.tanh(torch.matmul(x, self.first))
        for i in range(3):
            z = torch.sigmoid(torch.matmul(y, self.again)) * y + torch.sin(y)
            if bool(z.sum() > 0):
                y = torch.dropout(z, 0.1, self.training)
            else:
                y = torch.softmax(z, 1) + y
        return torch.matmul(y, self.last)
  )");
  const std::string file = own_folder() + "/module.pt";
  module.save(file);
  return file;
}

TEST(ProgramsTest, AModuleOfTorchScriptTrainsToTheSameBits) {
  expect_same_with_ops_computed_again("--memory-budget 16KiB",
                                      "tests/programs/scripted " + write_module() + " FOLDER/trained.pt", 1);
}

TEST(ProgramsTest, ErrorsThatAProgramCatchesAreSaidByItself) {
  const std::string command = "tests/programs/mnist /no/such/folder/model.pt 8";
  const Ran plain = run("plain", command);
  const Ran by_ac2 = run("by_ac2", kAc2 + command);
  EXPECT_EQ(plain.status, 1);
  EXPECT_THAT(plain.said, StartsWith("mnist: Parent directory /no/such/folder does not exist."));
  EXPECT_THAT(by_ac2.said, StartsWith("mnist: Parent directory /no/such/folder does not exist."));
  EXPECT_EQ(by_ac2.status, plain.status);
  EXPECT_EQ(by_ac2.output, plain.output);
  EXPECT_THAT(by_ac2.said, HasSubstr("ac2: nothing was needed"));
}

}  // namespace
}  // namespace ac2::test
