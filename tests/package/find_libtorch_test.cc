// Which LibTorch Bazel and CMake take, and what they say of one that cannot be used. The LibTorchs here are empty
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace ac2 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kSymbolOfNewAbi = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string";

class FindLibtorchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "find_libtorch_test/";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    python_is("");
  }

  // Returns its directory.
  std::string make_libtorch(const std::string& name, const std::string& version, bool new_abi = true) {
    const std::string home = folder_ + name;
    write(home + "/include/ATen/ATen.h", "");
    write(home + "/lib/libtorch_cpu.so", "");
    write(home + "/lib/libc10.so", new_abi ? kSymbolOfNewAbi : "");
    write(home + "/version.py", "__version__ = '" + version + "'\n");
    return home;
  }
  std::string make_cached(const std::string& version, const std::string& machine = this_machine()) {
    const std::string folder = "cache/libtorch-" + version + "-cpu" + machine;
    write(folder_ + folder + "/.complete", "");
    return make_libtorch(folder + "/torch", version);
  }
  // How its name ends in the cache.
  static std::string this_machine() {
    utsname name{};
    uname(&name);
    return std::string(name.machine) == "x86_64" ? "" : "-" + std::string(name.machine);
  }
  // Where the interpreter has its torch.
  void python_is(const std::string& home) {
    write(folder_ + "python", "#!/bin/sh\n" + (home.empty() ? "exit 1" : "echo " + home) + "\n");
    std::filesystem::permissions(folder_ + "python", std::filesystem::perms::owner_all);
  }

  // The output of find_libtorch.sh, errors included; `failed_` says whether it failed.
  std::string find(const std::string& environment, const std::string& arguments = "--no-fetch") {
    const std::string command =
        "env -u LIBTORCH_HOME -u AC2_LIBTORCH_VERSION -u AC2_LIBTORCH_SET -u AC2_MACHINE PYTHON=" + folder_ +
        "python AC2_CACHE=" + folder_ + "cache " + environment + " bash third_party/libtorch/find_libtorch.sh " +
        arguments + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    char buffer[256];
    while (fgets(buffer, sizeof buffer, pipe) != nullptr) output += buffer;
    failed_ = pclose(pipe) != 0;
    return output;
  }
  static std::string found(const std::string& home, const std::string& version) {
    return std::filesystem::canonical(home).string() + "\n" + version + "\n";
  }

  std::string folder_;
  bool failed_ = false;

 private:
  static void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
};

TEST_F(FindLibtorchTest, TakesWhatLibtorchHomeNamesBeforeAllElse) {
  const std::string home = make_libtorch("mine", "2.9.0+cpu");
  python_is(make_libtorch("python_torch", "2.12.0"));
  make_cached("2.15.0");
  EXPECT_EQ(find("LIBTORCH_HOME=" + home), found(home, "2.9.0+cpu"));
  EXPECT_FALSE(failed_);
}

TEST_F(FindLibtorchTest, TakesPythonsTorchBeforeThePinnedWheel) {
  const std::string home = make_libtorch("python_torch", "2.8.1+cu128");
  python_is(home);
  make_cached("2.15.0");
  EXPECT_EQ(find(""), found(home, "2.8.1+cu128"));
}

TEST_F(FindLibtorchTest, TakesThePinnedWheelWhereThereIsNoOther) {
  EXPECT_EQ(find(""), find("AC2_LIBTORCH_VERSION=2.15.0"));
  EXPECT_TRUE(failed_);
  const std::string home = make_cached("2.15.0");
  make_cached("2.11.0");
  EXPECT_EQ(find(""), found(home, "2.15.0"));
}

TEST_F(FindLibtorchTest, SaysWhyPythonsTorchIsNotTaken) {
  python_is(make_libtorch("python_torch", "2.5.1"));
  const std::string home = make_cached("2.15.0");
  EXPECT_THAT(find(""), AllOf(HasSubstr("python_torch is LibTorch 2.5.1: ac2 works with LibTorch 2.7 to 2.15"),
                              HasSubstr(found(home, "2.15.0"))));
  EXPECT_FALSE(failed_);
}

TEST_F(FindLibtorchTest, AVersionThatIsAskedForIsTakenWhereverItIs) {
  const std::string pinned = make_cached("2.11.0");
  const std::string newer = make_libtorch("python_torch", "2.12.0");
  python_is(newer);
  EXPECT_THAT(find("AC2_LIBTORCH_VERSION=2.11"), HasSubstr(found(pinned, "2.11.0")));
  EXPECT_THAT(find("AC2_LIBTORCH_VERSION=2.11.0"),
              HasSubstr("is LibTorch 2.12.0: AC2_LIBTORCH_VERSION asks for 2.11.0"));
  const std::string asked = make_libtorch("python_torch", "2.11.0+cu130");
  EXPECT_EQ(find("AC2_LIBTORCH_VERSION=2.11"), found(asked, "2.11.0+cu130"));
}

TEST_F(FindLibtorchTest, AVersionThatIsNotPinnedIsAnErrorThatListsThose) {
  EXPECT_THAT(find("AC2_LIBTORCH_VERSION=2.7.0"),
              AllOf(StartsWith("AC2_LIBTORCH_VERSION=2.7.0 is none of the versions that ac2 can fetch: 2.7.1 "),
                    HasSubstr(" 2.15.0. Ask for one of them")));
  EXPECT_TRUE(failed_);
}

TEST_F(FindLibtorchTest, LibtorchHomeOutsideTheRangeIsAnError) {
  for (const char* version : {"2.5.1+cu124", "2.16.0", "3.0.0", "1.13.1"}) {
    const std::string home = make_libtorch("mine", version);
    EXPECT_EQ(find("LIBTORCH_HOME=" + home), "LIBTORCH_HOME=" + home + " is LibTorch " + version +
                                                 ": ac2 works with LibTorch 2.7 to 2.15, and with 2.6 built with the "
                                                 "C++11 ABI.\n");
    EXPECT_TRUE(failed_);
  }
}

TEST_F(FindLibtorchTest, LibTorch26IsTakenOnlyWithTheNewAbi) {
  const std::string home = make_libtorch("mine", "2.6.0+cu126");
  EXPECT_EQ(find("LIBTORCH_HOME=" + home), found(home, "2.6.0+cu126"));
  make_libtorch("mine", "2.6.0+cu124", /*new_abi=*/false);
  EXPECT_THAT(find("LIBTORCH_HOME=" + home), HasSubstr("is LibTorch 2.6.0+cu124 built with the old C++ ABI"));
  EXPECT_TRUE(failed_);
}

TEST_F(FindLibtorchTest, LibtorchHomeThatIsNoneIsAnError) {
  EXPECT_EQ(find("LIBTORCH_HOME=" + folder_ + "nothing"),
            "LIBTORCH_HOME=" + folder_ + "nothing has no include/ATen/ATen.h or no lib/libtorch_cpu.so.\n");
  EXPECT_TRUE(failed_);
}

TEST_F(FindLibtorchTest, TheVersionOfAnArchiveIsReadFromItsFiles) {
  const std::string home = make_libtorch("mine", "");
  std::filesystem::remove(home + "/version.py");
  std::filesystem::create_directories(home + "/include/torch/csrc/api/include/torch");
  std::ofstream(home + "/include/torch/csrc/api/include/torch/version.h")
      << "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 1\n";
  EXPECT_EQ(find("LIBTORCH_HOME=" + home), found(home, "2.9.1"));
  std::ofstream(home + "/build-version") << "2.9.1+cpu\n";
  EXPECT_EQ(find("LIBTORCH_HOME=" + home), found(home, "2.9.1+cpu"));
}

TEST_F(FindLibtorchTest, ALibtorchForAnotherMachineIsNotTaken) {
  // The machine that an ELF file names.
  const auto make_for = [&](const std::string& name, char machine) {
    const std::string home = make_libtorch(name, "2.15.0");
    std::ofstream(home + "/lib/libtorch_cpu.so") << std::string(
                                                        "\x7f"
                                                        "ELF") +
                                                        std::string(14, '\0') + machine + '\0';
    return home;
  };
  const std::string x86 = make_for("x86", '\x3e'), arm = make_for("arm", '\xb7');
  EXPECT_EQ(find("AC2_MACHINE=aarch64 LIBTORCH_HOME=" + arm), found(arm, "2.15.0"));
  EXPECT_EQ(find("AC2_MACHINE=x86_64 LIBTORCH_HOME=" + x86), found(x86, "2.15.0"));
  EXPECT_EQ(find("AC2_MACHINE=x86_64 LIBTORCH_HOME=" + arm),
            "LIBTORCH_HOME=" + arm + " is LibTorch 2.15.0 for aarch64: this build is for x86_64.\n");
  EXPECT_TRUE(failed_);
  python_is(x86);
  EXPECT_THAT(find("AC2_MACHINE=aarch64"), HasSubstr("is LibTorch 2.15.0 for x86_64: this build is for aarch64"));
  EXPECT_TRUE(failed_);
}

TEST_F(FindLibtorchTest, EachMachineHasAPinnedWheelOfItsOwn) {
  const std::string x86 = make_cached("2.15.0", ""), arm = make_cached("2.15.0", "-aarch64");
  EXPECT_EQ(find("AC2_MACHINE=x86_64"), found(x86, "2.15.0"));
  EXPECT_EQ(find("AC2_MACHINE=aarch64"), found(arm, "2.15.0"));
}

TEST_F(FindLibtorchTest, EveryVersionIsPinnedForEachMachine) {
  std::ifstream versions("third_party/libtorch/versions.txt");
  int64_t pinned = 0;
  for (std::string version; std::getline(versions, version);) {
    if (version.starts_with("#")) continue;
    for (const std::string machine : {"x86_64", "aarch64"}) {
      std::ifstream pins("third_party/libtorch/pins/" + machine + "/" + version + ".txt");
      std::string first;
      std::getline(pins, first);
      EXPECT_THAT(first, StartsWith("torch==" + version + " --hash=sha256:")) << machine;
      ++pinned;
    }
  }
  EXPECT_GT(pinned, 0);
}

TEST_F(FindLibtorchTest, AnInstalledPackageTakesNoOtherMinorRelease) {
  const std::string home = make_libtorch("mine", "2.11.0");
  EXPECT_EQ(find("", "--series 2.11 --no-fetch " + home), found(home, "2.11.0"));
  EXPECT_THAT(find("", "--series 2.12 --no-fetch " + home),
              AllOf(HasSubstr("is LibTorch 2.11.0: ac2 was built with LibTorch 2.12, and needs one of that"),
                    HasSubstr("the package of ac2 for LibTorch 2.11")));
  EXPECT_THAT(find("", "--series 2.12 --no-fetch " + folder_),
              AllOf(HasSubstr("No LibTorch was found. Set LIBTORCH_HOME"),
                    HasSubstr("pip install torch==2.12.1: this ac2 was built with LibTorch 2.12")));
}

}  // namespace
}  // namespace ac2
