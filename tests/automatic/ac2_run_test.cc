// Programs that know nothing of ac2 (trains.cc, opens_library.cc), plain and by ac2-run: the same output and exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/own_files.h"
#include "tests/support/run_program.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// So little that values are dropped in each training.
constexpr char kLittle[] = "--memory-budget 2MiB";
// For threads, which may all need much at the same time: a strict limit would sometimes be an error.
constexpr char kLittleForThreads[] = "--memory-budget soft:2MiB";
constexpr char kTrains[] = "tests/automatic/trains ";
constexpr char kOpens[] = "tests/automatic/opens_library ";

struct Ran {
  int status = 0;
  std::string output;
  std::string said;  // on stderr
};

Ran run_anew(const std::string& command) {
  const std::string errors = own_folder() + "/said";
  // The shell says itself what a signal has ended.
  const Printed ran = run_program("{ sh -c '" + command + "; exit $?' 2>" + errors + "; }");
  return {ran.status, ran.output, text_of(errors)};
}

// Each command once.
const Ran& run(const std::string& command) {
  static auto& known = *new std::map<std::string, Ran>;
  const auto [it, is_new] = known.try_emplace(command);
  if (is_new) it->second = run_anew(command);
  return it->second;
}

const Ran& run_by_ac2(const std::string& options, const std::string& command) {
  return run("ac2/run/ac2-run " + options + " " + command);
}

// Of the first process that speaks.
int64_t recomputed_ops(const std::string& said) {
  const size_t words = said.find(" computed again in backward");
  EXPECT_NE(words, std::string::npos) << said;
  const size_t end = said.rfind(" op", words);
  const size_t begin = said.rfind(' ', end - 1) + 1;
  return std::atoll(said.substr(begin, end - begin).c_str());
}

// Returns what was said.
std::string expect_same(const std::string& options, const std::string& program) {
  const Ran& plain = run(program);
  const Ran& by_ac2 = run_by_ac2(options, program);
  EXPECT_EQ(by_ac2.output, plain.output) << program;
  EXPECT_EQ(by_ac2.status, plain.status) << program;
  EXPECT_THAT(plain.output, Not(IsEmpty())) << program;
  return by_ac2.said;
}

void expect_same_with_values_dropped(const std::string& program, const std::string& options = kLittle) {
  // A soft budget may have warned before.
  EXPECT_THAT(expect_same(options, program),
              AllOf(HasSubstr("ac2: the memory budget of 2MiB had no room for all that backward needed: "),
                    HasSubstr(" values were dropped and ")))
      << program;
}

TEST(Ac2RunTest, AProgramTrainsToTheSameBitsWithValuesDropped) {
  expect_same_with_values_dropped(std::string(kTrains) + "main");
}

TEST(Ac2RunTest, AProgramThatHasEnoughMemoryIsToldSo) {
  EXPECT_THAT(expect_same("", std::string(kTrains) + "main"),
              StartsWith("ac2: nothing was needed: there was memory for all that backward needed"));
}

TEST(Ac2RunTest, AProgramThatMayTakeTooLittleAddressSpaceTrainsToTheBitsOfOneThatMayTakeMore) {
  const Ran& enough = run(std::string(kTrains) + "enough_memory");
  EXPECT_EQ(enough.status, 0) << enough.said;
  const Ran& plain = run(std::string(kTrains) + "little_memory");
  EXPECT_NE(plain.status, 0) << plain.output;
  EXPECT_THAT(plain.said, HasSubstr("DefaultCPUAllocator"));
  const Ran& by_ac2 = run_by_ac2("", std::string(kTrains) + "little_memory");
  EXPECT_EQ(by_ac2.status, 0) << by_ac2.said;
  EXPECT_EQ(by_ac2.output, enough.output);
  EXPECT_THAT(by_ac2.said, AllOf(StartsWith("ac2: memory ran out "), HasSubstr(" dropped and ")));
}

TEST(Ac2RunTest, ThreadsThatTrainHaveRegionsOfTheirOwn) {
  expect_same_with_values_dropped(std::string(kTrains) + "threads", kLittleForThreads);
  const std::string all = "--policy recompute_all";
  const int64_t of_main = recomputed_ops(expect_same(all, std::string(kTrains) + "main"));
  const int64_t of_threads = recomputed_ops(expect_same(all, std::string(kTrains) + "threads"));
  EXPECT_GT(of_main, 100);
  // Four threads train, and one makes a graph of 8 ops.
  EXPECT_GT(of_threads, 4 * of_main);
  EXPECT_LE(of_threads, 4 * of_main + 8);
}

TEST(Ac2RunTest, ThreadsThatRecordNoGraphHaveNoRegion) {
  EXPECT_EQ(expect_same(kLittle, std::string(kTrains) + "evaluate"), "ac2: nothing was needed: no op was recorded.\n");
}

TEST(Ac2RunTest, AThreadMayTrainWhileItEnds) {
  expect_same_with_values_dropped(std::string(kTrains) + "thread_end");
}

TEST(Ac2RunTest, AThreadMayWaitForEverWhileTheProgramEnds) {
  expect_same_with_values_dropped(std::string(kTrains) + "leave_a_thread");
}

TEST(Ac2RunTest, ARegionThatBeginsInAGuardOfTheThreadsKeysOutlastsIt) {
  const std::string said = expect_same("--policy recompute_all", std::string(kTrains) + "guard");
  EXPECT_GT(recomputed_ops(said), 100);
}

TEST(Ac2RunTest, TheOpInWhichARegionBeginsMayHaveOpsInsideOfIt) {
  const std::string program = std::string(kTrains) + "first_ops";
  for (const char* options :
       {"", "--policy recompute_all", "--memory-budget soft:1", "--policy recompute_all --verify"}) {
    expect_same(options, program);
  }
}

TEST(Ac2RunTest, AForkedChildGoesOnInItsRegionAndSpeaksOfWhatItDidItself) {
  const std::string said = expect_same("--policy recompute_all", std::string(kTrains) + "fork");
  EXPECT_THAT(said, StartsWith("ac2, process "));
  const size_t of_parent = said.find("\nac2: ");
  ASSERT_NE(of_parent, std::string::npos);
  // The parent's first training is that of "main", in which the region begins; the other one is as the child's.
  const int64_t of_main = recomputed_ops(expect_same("--policy recompute_all", std::string(kTrains) + "main"));
  EXPECT_EQ(recomputed_ops(said), recomputed_ops(said.substr(of_parent)) - of_main);
}

TEST(Ac2RunTest, AForkedChildThatTrainsBeforeItsParentHasARegion) {
  const std::string said = expect_same(kLittle, std::string(kTrains) + "fork_first");
  EXPECT_THAT(said, StartsWith("ac2, process "));
  EXPECT_THAT(said, HasSubstr("\nac2: the memory budget of 2MiB"));
}

TEST(Ac2RunTest, WhatMostIsHeldOfAndTheTimeThatItTookAreSaid) {
  const std::string said = expect_same(kLittle, std::string(kTrains) + "main");
  EXPECT_THAT(said, HasSubstr("\n  What was dropped had "));
  EXPECT_THAT(said, HasSubstr("\n  Dropping and computing again took "));
  EXPECT_THAT(said, HasSubstr("\n  Most was held of:\n  "));
  EXPECT_THAT(said, HasSubstr("  aten::"));
}

TEST(Ac2RunTest, ExitCodesAndSignalsAreTheProgramsOwn) {
  expect_same_with_values_dropped(std::string(kTrains) + "exit");
  expect_same_with_values_dropped(std::string(kTrains) + "exit_on_a_thread");
  for (const std::string end : {"quick_end", "abort"}) {
    EXPECT_THAT(expect_same(kLittle, kTrains + end), Not(HasSubstr("ac2: "))) << end;
  }
  for (const std::string end : {"throw", "throw_on_a_thread", "throw_an_error_of_libtorch", "throw_no_exception",
                                "terminate", "handle_termination"}) {
    expect_same_with_values_dropped(kTrains + end);
  }
}

TEST(Ac2RunTest, ErrorsOfTheProgramAreSaidAsWithoutAc2) {
  // ac2's own words come first.
  const auto expect_said = [](const std::string& program, const std::string& words) {
    const std::string plain = run(kTrains + program).said;
    EXPECT_THAT(plain, HasSubstr(words));
    EXPECT_THAT(expect_same(kLittle, kTrains + program), EndsWith(plain));
  };
  expect_said("throw", "an error of the program's");
  expect_said("throw_on_a_thread", "an error of the program's");
  expect_said("throw_no_exception", "terminate called after throwing an instance of 'int'");
  expect_said("terminate", "terminate called without an active exception");
  expect_said("handle_termination", "the program's own handler");
  // LibTorch's backtrace has addresses.
  const std::string shapes = "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)";
  EXPECT_THAT(run(std::string(kTrains) + "throw_an_error_of_libtorch").said, HasSubstr(shapes));
  EXPECT_THAT(expect_same(kLittle, std::string(kTrains) + "throw_an_error_of_libtorch"), HasSubstr(shapes));
}

TEST(Ac2RunTest, WhereMemoryEndsAProgramTheWordsSayWhatWasAskedForAndWhatIsHeld) {
  const std::string ended = "ac2: the program ended because memory ran out when nothing more could be dropped.\n";
  const std::string one = expect_same("", std::string(kTrains) + "run_out_of_memory");
  EXPECT_THAT(one, StartsWith(ended + "  4194304.00 GiB were asked for by aten::exp of [1125899906842624] float.\n  "
                                      "Regions hold 4 B of results for 1 graph"));
  EXPECT_THAT(one, HasSubstr("\nterminate called after throwing an instance of 'c10::OutOfMemoryError'"));
  const std::string many = expect_same("", std::string(kTrains) + "run_out_of_address_space");
  EXPECT_THAT(many, StartsWith(ended));
  EXPECT_THAT(many, HasSubstr("\n  Regions hold "));
  EXPECT_THAT(many, HasSubstr("A result that is kept, such as a loss in a list, keeps its graph"));
  EXPECT_THAT(many, HasSubstr("\nterminate called after throwing an instance of "));  // of LibTorch's, or bad_alloc
}

TEST(Ac2RunTest, WhereAStrictBudgetEndsAProgramTheWordsNameASoftOne) {
  const Ran& ran = run_by_ac2("--memory-budget 4KiB", std::string(kTrains) + "main");
  EXPECT_EQ(ran.status, run(std::string(kTrains) + "abort").status);
  EXPECT_THAT(ran.said, AllOf(StartsWith("ac2: the program ended because the memory budget of 4KiB could not be met."),
                              HasSubstr("--memory-budget soft:4KiB"), HasSubstr("terminate called after throwing")));
}

TEST(Ac2RunTest, ALibraryThatIsOpenedLaterBringsLibTorch) {
  expect_same_with_values_dropped(std::string(kOpens) + "libplugin.so");
  expect_same_with_values_dropped(std::string(kOpens) + "tests/automatic/plugins/libplugin.so");
}

TEST(Ac2RunTest, ALibraryThatIsNotThereIsNotFound) {
  EXPECT_THAT(expect_same("", std::string(kOpens) + "libnone.so"), HasSubstr("loaded no libtorch_cpu.so"));
}

TEST(Ac2RunTest, AProgramWithAnotherLibTorchRunsAsItIs) {
  EXPECT_THAT(expect_same("", std::string(kOpens) + "tests/automatic/other/libtorch_cpu.so"),
              AllOf(StartsWith("ac2-run: the program has LibTorch 2.99.1, ac2 was built for 2."),
                    HasSubstr("the program runs as it is")));
}

TEST(Ac2RunTest, AProgramWithoutLibTorchRunsAsItIs) {
  EXPECT_THAT(expect_same("", kOpens),
              StartsWith("ac2-run: the program loaded no libtorch_cpu.so, so it ran as it is."));
  EXPECT_EQ(expect_same("--quiet", kOpens), "");
}

std::string made_by_compiler(const std::string& name, const std::string& options) {
  const std::string program = own_folder() + "/" + name;
  const Printed built =
      run_program("echo \"int puts(const char*); int main() { puts(\\\"ran\\\"); return 9; }\" | cc " + options +
                  " -x c - -o " + program);
  EXPECT_EQ(built.status, 0) << built.output;
  return program;
}

TEST(Ac2RunTest, AStaticProgramRunsAsItIs) {
  const std::string program = made_by_compiler("static", "-static");
  EXPECT_EQ(expect_same("", program), "ac2-run: " + program +
                                          " is linked statically, and no library can be loaded into it: the program "
                                          "runs as it is.\n");
}

// A program of another user or group that is run as that one. Empty if there is none.
std::string privileged_program() {
  const std::string made = made_by_compiler("privileged", "");
  if (chown(made.c_str(), 65534, 65534) == 0 && chmod(made.c_str(), 04755) == 0) {
    return made;
  }
  struct stat status {};
  const std::string installed = "/usr/bin/chage";  // of Debian's login tools
  const bool has_privileges =
      stat(installed.c_str(), &status) == 0 && (((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) ||
                                                ((status.st_mode & S_ISGID) != 0 && status.st_gid != getgid()));
  return has_privileges ? installed + " --help" : "";
}

TEST(Ac2RunTest, AProgramWithPrivilegesOfItsOwnRunsAsItIs) {
  const std::string program = privileged_program();
  if (program.empty()) GTEST_SKIP() << "this machine has no program that is run as another user or group";
  EXPECT_THAT(expect_same("", program),
              AllOf(HasSubstr(" has privileges of its own (setuid"), HasSubstr("the program runs as it is")));
}

TEST(Ac2RunTest, AProgramThatAScriptStartsTrainsInARegion) {
  const std::string script = own_folder() + "/script";
  std::ofstream(script) << "#!/bin/sh\nls / >/dev/null\n" << kTrains << "main\n";
  chmod(script.c_str(), 0755);
  expect_same_with_values_dropped(script);
}

TEST(Ac2RunTest, AProgramThatCannotBeStartedIsAnErrorAsInAShell) {
  const Ran& missing = run_by_ac2("", "./no_such_program");
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.said, "ac2-run: ./no_such_program: No such file or directory\n");
  const Ran& folder = run_by_ac2("", "./tests");
  EXPECT_EQ(folder.status, 126);
  EXPECT_EQ(folder.said, "ac2-run: ./tests: Permission denied\n");
}

TEST(Ac2RunTest, WrongOptionsAreErrorsBeforeTheProgramStarts) {
  const auto expect_error = [](const std::string& options, const std::string& words) {
    const Ran& ran = run_by_ac2(options, options.empty() ? "" : std::string(kTrains) + "main");
    EXPECT_EQ(ran.status, 2) << options;
    EXPECT_EQ(ran.output, "") << options;
    EXPECT_THAT(ran.said, HasSubstr(words)) << options;
  };
  expect_error("", "no program is given");
  expect_error("--memory-budgt=2MiB", "unknown option --memory-budgt");
  expect_error("--memory-budget=many", "--memory-budget is \"many\"; expected \"auto\"");
  expect_error("--verify=1", "--verify takes no value");
  const Ran& none = run("AC2_VERIFY=2 ac2/run/ac2-run " + std::string(kTrains) + "main");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.said, HasSubstr("AC2_VERIFY is \"2\"; expected 1 or 0"));
}

TEST(Ac2RunTest, AnUnknownPolicyIsSaidAndTheProgramRunsAsItIs) {
  EXPECT_THAT(expect_same("--policy nonsense", std::string(kTrains) + "main"),
              StartsWith("ac2: the program runs as it is: Unknown policy \"nonsense\". Choose one of: recompute_all"));
}

TEST(Ac2RunTest, ExactFormsGiveTheSameBitsAndAWrongListIsSaid) {
  expect_same(std::string(kLittle) + " --forms one_bit,file:" + ::testing::TempDir(), std::string(kTrains) + "main");
  EXPECT_THAT(
      expect_same("--forms one_bit,gzip", std::string(kTrains) + "main"),
      StartsWith("ac2: the program runs as it is: AC2_FORMS has \"gzip\"; expected some of one_bit, file:FOLDER"));
}

TEST(Ac2RunTest, OptionsMayComeFromTheEnvironment) {
  const Ran& ran = run("AC2_MEMORY_BUDGET=2MiB ac2/run/ac2-run " + std::string(kTrains) + "main");
  EXPECT_THAT(ran.said, StartsWith("ac2: the memory budget of 2MiB had no room"));
}

TEST(Ac2RunTest, HelpNamesAllOptions) {
  const Ran& ran = run("ac2/run/ac2-run --help");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.output, AllOf(HasSubstr("--memory-budget"), HasSubstr("--policy"), HasSubstr("--forms"),
                                HasSubstr("--report"), HasSubstr("--verify"), HasSubstr("--quiet")));
}

TEST(Ac2RunTest, NothingIsSaidIfQuiet) {
  EXPECT_EQ(expect_same(std::string(kLittle) + " --quiet", std::string(kTrains) + "main"), "");
}

TEST(Ac2RunTest, ThePageIsWrittenAtTheEnd) {
  const std::string page = own_folder() + "/page.html";
  EXPECT_THAT(
      expect_same(std::string(kLittleForThreads) + " --verify --report " + page, std::string(kTrains) + "threads"),
      HasSubstr("The page is " + page));
  EXPECT_THAT(text_of(page), HasSubstr("aten::mm"));
  EXPECT_THAT(expect_same("--report /no/such/folder/page.html", std::string(kTrains) + "main"),
              HasSubstr("/no/such/folder/page.html"));
}

TEST(Ac2RunTest, AProgramThatIsLinkedToAc2TrainsInRegionsWithoutAc2Run) {
  const Ran& plain = run(std::string(kTrains) + "threads");
  const Ran& linked = run("AC2_MEMORY_BUDGET=soft:2MiB tests/automatic/trains_linked threads");
  EXPECT_EQ(linked.output, plain.output);
  EXPECT_EQ(linked.status, plain.status);
  EXPECT_THAT(linked.said, HasSubstr(" values were dropped and "));
}

TEST(Ac2RunTest, AProgramThatIsLinkedToAc2IsNotGivenASecond) {
  const std::string said = expect_same(kLittle, "tests/automatic/trains_linked main");
  EXPECT_THAT(said, StartsWith("ac2: the memory budget of 2MiB"));
  EXPECT_EQ(said.find("ac2: "), said.rfind("ac2: "));
}

}  // namespace
}  // namespace ac2::test
