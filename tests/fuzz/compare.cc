#include "tests/fuzz/compare.h"

#include <sstream>

#include "tests/fuzz/outcome.h"

namespace ac2::test {

Verdict compare(const ProgramFn& program, uint32_t input_seed, const Way& way,
                const std::function<void()>& after_plain) {
  const Outcome expected = run(program, input_seed, way, nullptr);
  let_engine_go(way.device);
  after_plain();
  if (!expected.error.empty()) {
    Verdict none;
    none.counts = false;
    return none;
  }
  const int64_t nodes_before = live_node_count();
  Verdict verdict;
  {
    const Outcome actual = run(program, input_seed, way, &way.setting);
    verdict.replayed_ops = actual.replayed_ops;
    verdict.evicted_values = actual.evicted_values;
    verdict.offloaded_bytes = actual.offloaded_bytes;
    if (way.setting.budget > 0 && is_of_budget(actual.error)) {
      verdict.counts = false;  // but nothing may be left behind
    } else {
      verdict.difference = differences(actual, expected);
    }
  }
  verdict.difference += left_behind(way, nodes_before);
  return verdict;
}

std::string left_behind(const Way& way, int64_t nodes_before) {
  let_engine_go(way.device);
  std::ostringstream left;
  if (live_node_count() != nodes_before) left << live_node_count() - nodes_before << " nodes are left behind\n";
  if (is_checkpoint_enabled()) left << "a region is left open\n";
  return left.str();
}

}  // namespace ac2::test
