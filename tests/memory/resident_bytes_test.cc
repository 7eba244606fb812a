// The bytes that a process has resident under budgets (resident_bytes.cc).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/support/run_program.h"

namespace ac2::test {
namespace {

struct Trained {
  unsigned long long hash = 0;
  double resident_mib = 0;
};

Trained train(const std::string& arguments, const std::string& environment = "") {
  const Printed ran = run_program(environment + " tests/memory/resident_bytes " + arguments);
  Trained trained;
  EXPECT_EQ(ran.status, 0) << arguments << ": " << ran.output;
  EXPECT_EQ(std::sscanf(ran.output.c_str(), "hash %llu resident %lf", &trained.hash, &trained.resident_mib), 2)
      << arguments << ": " << ran.output;
  std::printf("%s %s: %.1f MiB\n", environment.c_str(), arguments.c_str(), trained.resident_mib);
  return trained;
}

class ResidentBytesTest : public ::testing::Test {
 protected:
  void expect_at_most(double mib, const std::string& arguments, const std::string& environment = "") const {
    const Trained trained = train(arguments, environment);
    EXPECT_EQ(trained.hash, plain().hash) << arguments;
    EXPECT_LE(trained.resident_mib, mib) << arguments;
  }
  static const Trained& plain() {
    static const Trained trained = train("plain 0");
    return trained;
  }
};

TEST_F(ResidentBytesTest, APlainStepTakesMoreThanTwiceTheBytesOfTheseTests) {
  EXPECT_GT(plain().resident_mib, 1000);
}

TEST_F(ResidentBytesTest, UnderAPeakTheProcessTakesAFewMiBMore) {
  expect_at_most(280, "peak 260");
}

TEST_F(ResidentBytesTest, UnderWhateverFitsTheProcessStaysWithinALimitOnResidentBytes) {
  expect_at_most(400, "resident 400");
  expect_at_most(500, "resident 500");
}

TEST_F(ResidentBytesTest, UnderWhateverFitsTheProcessStaysWithinALimitOnItsData) {
  expect_at_most(400, "data 400");
}

// A number bounds what regions hold. What malloc keeps of the rest is the program's to decide.
TEST_F(ResidentBytesTest, UnderANumberTheProcessTakesLittleMoreWhereMallocMapsLargeBlocks) {
  expect_at_most(270, "number 200", "MALLOC_MMAP_THRESHOLD_=131072");
}

}  // namespace
}  // namespace ac2::test
