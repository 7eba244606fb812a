// Results in files, in a process that is forked while they are spilled.
#include <ATen/Context.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policies/spill_to_file.h"
#include "tests/packing/spill_fixture.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

// A process of its own takes part of the graph along, and goes on: the thread that writes is not in it.
TEST_F(SpillToFileTest, AForkedProcessReadsWhatWasSpilledAndSpillsItself) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "ThreadSanitizer ends a forked process that starts a thread. GCC's AddressSanitizer takes no locks of "
         "its own at a fork: where the writing thread had one, the child waits for it for ever.";
#endif
  if (at::hasCUDA()) GTEST_SKIP() << "where there is a GPU, autograd refuses to run in a forked process";
  for (const policies::SpillOptions& options : kSpillOptions) {
    for (const int values : {2, 20}) {
      const Policy policy = spilling({"aten::sin"}, options);
      const at::Tensor x = sample({64, 64});
      const auto forward = [&] {
        PolicyScope scope(policy);
        return sines(x, values);
      };
      const at::Tensor expected = gradient_of(sines(x, values), x);
      at::Tensor y = forward();
      const pid_t child = ::fork();
      if (child == 0) {
        const bool first = same_bits(gradient_of(y, x), expected);
        y = at::Tensor();
        const bool second = same_bits(gradient_of(forward(), x), expected);
        ::_exit(first && second ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    }
  }
}

}  // namespace
}  // namespace ac2::test
