#include "examples/loss_curve.h"

#include <algorithm>
#include <cmath>

#include "examples/table.h"

namespace gpt {

void print_losses(std::ostream& out, const std::string& policy, const std::vector<LossPair>& losses) {
  constexpr size_t kRows = 10;
  const size_t count = std::min(kRows, losses.size());
  std::vector<std::vector<std::string>> rows;
  for (size_t row = 0; row < count; ++row) {
    const size_t begin = losses.size() * row / count, end = losses.size() * (row + 1) / count;
    const auto steps = static_cast<double>(end - begin);
    double with = 0, without = 0, largest = 0;
    for (size_t i = begin; i < end; ++i) {
      with += losses[i].policy;
      without += losses[i].none;
      largest = std::max(largest, std::abs(double{losses[i].policy} - losses[i].none));
    }
    rows.push_back({std::to_string(begin + 1) + " to " + std::to_string(end), fixed(with / steps, 4),
                    fixed(without / steps, 4), fixed((with - without) / steps, 4), fixed(largest, 4)});
  }
  out << "\nMean losses, trained on the same batches from the same weights:\n\n";
  print_table(out, {"steps", policy, "none", "difference", "largest of a step"}, rows);
}

}  // namespace gpt
