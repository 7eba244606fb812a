// A test whose body runs in several processes:
//
//   TEST(MyTest, AllRanksAgree) {
//     in_ranks(2, [](const gpt::Job& job) { … });      // EXPECT_ and ASSERT_ count
//   }
#pragma once

#include <functional>
#include <string>

#include "examples/job.h"

namespace ac2::test {

// The error of run_ranks() when the present test runs in `ranks` processes, or "". In one of them: calls `body`, which
// must not throw, and returns "".
std::string error_in_ranks(int ranks, const std::function<void(const gpt::Job&)>& body);

// Fails the test if there is such an error.
void in_ranks(int ranks, const std::function<void(const gpt::Job&)>& body);

}  // namespace ac2::test
