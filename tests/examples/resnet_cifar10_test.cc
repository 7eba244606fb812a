// The example resnet_cifar10, tiny, and the reader of CIFAR-10's format.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "examples/cifar10.h"
#include "examples/resnet.h"
#include "examples/resnet_cifar10.h"
#include "examples/variants.h"

namespace example {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Tests run side by side: threads that spin while they wait would take the cores from each other.
const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();

template <class Fn>
std::string error_of(const Fn& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

// A directory of the test's own, empty at first.
class ResnetCifar10Test : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) /
                 ("resnet_cifar10_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override {
    fs::remove_all(directory_);
    EXPECT_EQ(ac2::live_node_count(), 0);
  }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  // A record whose pixels are all `red`, `green` and `blue`.
  static std::string record(char label, char red = 0, char green = 0, char blue = 0) {
    return std::string(1, label) + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
  }

  static ResnetCifar10Options small() {
    ResnetCifar10Options options;
    options.small = true;
    options.batch = 4;
    return options;
  }
  static std::vector<Measured> run_and_print(const ResnetCifar10Options& options) {
    std::vector<Measured> measured = run(resnet_cifar10(options), 3);
    std::ostringstream out;
    EXPECT_TRUE(print(out, measured)) << out.str();
    for (const Measured& m : measured) EXPECT_EQ(m.losses, measured[0].losses) << m.name;
    return measured;
  }

  fs::path directory_;
};

TEST_F(ResnetCifar10Test, EveryChoiceTrainsAlikeAndHoldsLess) {
  const std::vector<Measured> m = run_and_print(small());
  ASSERT_EQ(m.size(), 5U);
  for (size_t i = 1; i < m.size(); ++i) EXPECT_LT(m[i].held_bytes, m[0].held_bytes) << m[i].name;
  EXPECT_LT(m[2].held_bytes, m[1].held_bytes);  // four layers, and two
  EXPECT_LT(m[2].held_bytes, m[3].held_bytes);  // layers hold their inputs, blocks hold more of them
  EXPECT_LT(m[3].held_bytes, m[4].held_bytes);  // but not what convolutions take, as two ops alone do
}

TEST_F(ResnetCifar10Test, ParametersAreUpdated) {
  // The same batch each time, so that only the parameters can change the loss.
  ResnetCifar10Options one_picture = small();
  one_picture.data = write("one.bin", record(3, 10, 20, 30));
  const std::vector<Measured> m = run_and_print(one_picture);
  EXPECT_NE(m[0].losses[0], m[0].losses[1]);
}

TEST_F(ResnetCifar10Test, TheFlagChoosesWhatIsRecomputed) {
  ResnetCifar10Options options = small();
  options.recompute = {"layer4"};
  const std::vector<Measured> one = run_and_print(options);
  options.recompute = {"layer1", "layer[2-4].*"};
  const std::vector<Measured> all = run_and_print(options);
  ASSERT_EQ(one.size(), 2U);
  EXPECT_EQ(all[1].name, "layer1, layer[2-4].*");
  EXPECT_LT(one[1].held_bytes, one[0].held_bytes);
  EXPECT_LT(all[1].held_bytes, one[1].held_bytes);
}

TEST_F(ResnetCifar10Test, RejectsWhatCannotBeRecomputed) {
  ResnetCifar10Options options = small();
  options.recompute = {"layer9"};
  EXPECT_THAT(error_of([&] { resnet_cifar10(options); }), HasSubstr("layer9"));
  options.recompute = {"layer1"};
  options.ops = {"aten::rellu"};
  EXPECT_THAT(error_of([&] { resnet_cifar10(options); }), HasSubstr("aten::rellu"));
  options.recompute = {};
  options.ops = {"aten::relu"};
  EXPECT_THAT(error_of([&] { resnet_cifar10(options); }), HasSubstr("Add --recompute=layer*"));
  options = small();
  options.batch = 0;
  EXPECT_THAT(error_of([&] { resnet_cifar10(options); }), HasSubstr("batch is 0; it must be 1 or more"));
}

TEST_F(ResnetCifar10Test, TheFullNetIsResNet50) {
  ResNet model{ResNetOptions{}};
  int64_t parameters = 0, convolutions = 0;
  for (const auto& parameter : model->named_parameters()) {
    parameters += parameter.value().numel();
    // Shortcuts do not count into the 50 layers.
    if (parameter.value().dim() == 4 && parameter.key().find("shortcut") == std::string::npos) ++convolutions;
  }
  EXPECT_EQ(convolutions + 1, 50);
  // 23508032 without a classifier in He et al.'s net for ImageNet, whose first kernels have 7 x 7 numbers, not 3 x 3.
  EXPECT_EQ(parameters, 23508032 - 64 * 3 * (49 - 9) + 2048 * 10 + 10);
}

TEST_F(ResnetCifar10Test, ReadsLabelsAndPlanesOfColour) {
  std::string picture = record(7, 0, 0, char(255));
  picture[1 + 32 + 2] = char(51);  // red, second row, third column
  const Cifar10 data = Cifar10::load(write("data.bin", picture));
  ASSERT_EQ(data.size(), 1);
  const Pictures batch = data.batch(2, 1);
  EXPECT_EQ(batch.pixels.sizes(), (std::vector<int64_t>{2, 3, 32, 32}));
  EXPECT_TRUE(at::equal(batch.labels, at::full({2}, 7, at::kLong)));
  const auto pixel = [&](int64_t channel, int64_t y, int64_t x) {
    return batch.pixels[1][channel][y][x].item<float>();
  };
  EXPECT_FLOAT_EQ(pixel(0, 1, 2), (51.0F / 255 - 0.4914F) / 0.2470F);
  EXPECT_FLOAT_EQ(pixel(0, 2, 1), -0.4914F / 0.2470F);
  EXPECT_FLOAT_EQ(pixel(1, 1, 2), -0.4822F / 0.2435F);
  EXPECT_FLOAT_EQ(pixel(2, 31, 31), (1 - 0.4465F) / 0.2616F);
}

TEST_F(ResnetCifar10Test, ReadsTheTrainingFilesOfADirectory) {
  write("data_batch_1.bin", record(1) + record(1));
  write("data_batch_2.bin", record(2));
  write("test_batch.bin", record(9));
  write("batches.meta.txt", "airplane\n");
  const Cifar10 data = Cifar10::load(directory_.string());
  EXPECT_EQ(data.size(), 3);
  EXPECT_FALSE(at::any(data.batch(64, 1).labels == 9).item<bool>());
}

TEST_F(ResnetCifar10Test, TheMadeSetHasTheFormatAndEveryLabel) {
  write_striped_cifar10(path("made.bin"), 20, 1);
  EXPECT_EQ(fs::file_size(path("made.bin")), 20U * 3073U);
  const Cifar10 data = Cifar10::load(path("made.bin"));
  EXPECT_EQ(data.size(), 20);
  const at::Tensor labels = data.batch(500, 1).labels;
  for (int64_t label = 0; label < kCifar10Classes; ++label) EXPECT_TRUE(at::any(labels == label).item<bool>()) << label;
  EXPECT_TRUE(at::equal(data.batch(8, 5).pixels, data.batch(8, 5).pixels));
  EXPECT_FALSE(at::equal(data.batch(8, 5).pixels, data.batch(8, 6).pixels));
}

TEST_F(ResnetCifar10Test, RejectsBadFilesAndSaysWhatIsWrong) {
  const auto load_error = [](const std::string& path) { return error_of([&] { Cifar10::load(path); }); };
  EXPECT_THAT(load_error(path("none.bin")), HasSubstr("none.bin\" does not exist"));
  EXPECT_THAT(load_error(directory_.string()), HasSubstr("has no data_batch_*.bin"));
  EXPECT_THAT(load_error(write("empty.bin", "")), HasSubstr("has 0 bytes"));
  EXPECT_THAT(
      load_error(write("truncated.bin", (record(1) + record(2)).substr(0, 4000))),
      HasSubstr("has 4000 bytes, which is not a whole number of records of 3073 bytes (1 records and 927 bytes)"));
  EXPECT_THAT(load_error(write("labels.bin", record(1) + record(11))),
              HasSubstr("Record 1 of \"" + path("labels.bin") + "\" has the label 11; labels are 0 to 9"));
  // One bad file among several.
  write("data_batch_1.bin", record(1));
  write("data_batch_2.bin", record(1).substr(1));
  EXPECT_THAT(load_error(directory_.string()), HasSubstr("data_batch_2.bin\" has 3072 bytes"));
}

TEST_F(ResnetCifar10Test, SaysSoIfASetCannotBeWritten) {
  EXPECT_THAT(error_of([&] { write_striped_cifar10(path("no/such/directory.bin"), 1, 1); }), HasSubstr("Cannot write"));
}

}  // namespace
}  // namespace example
