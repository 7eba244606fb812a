#include "examples/table.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace gpt {

void print_table(std::ostream& out, const std::vector<std::string>& header,
                 const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& title : header) widths.push_back(title.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto print_row = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      out << "| " << (i == 0 ? row[i] + padding : padding + row[i]) << ' ';
    }
    out << "|\n";
  };
  print_row(header);
  for (size_t i = 0; i < widths.size(); ++i) {
    out << '|' << std::string(widths[i] + 1, '-') << (i == 0 ? '-' : ':');
  }
  out << "|\n";
  for (const auto& row : rows) print_row(row);
}

std::string mebibytes(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / (1024.0 * 1024.0), 2) + " MiB";
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string exact(float value) {
  std::ostringstream out;
  out << std::setprecision(std::numeric_limits<float>::max_digits10) << value;
  return out.str();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double position = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(std::floor(position));
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (position - static_cast<double>(low)) * (values[high] - values[low]);
}

}  // namespace gpt
