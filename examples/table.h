// Plain-text tables for a terminal and for a README.
//
//   gpt::print_table(std::cout, {"policy", "bytes"}, {{"none", "128.38 MiB"}, {"recompute_all", "8.00 MiB"}});
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace gpt {

// A Markdown table; the first column is aligned left, the others right. Every row has as many cells as the header.
void print_table(std::ostream& out, const std::vector<std::string>& header,
                 const std::vector<std::vector<std::string>>& rows);

// "128.38 MiB"
std::string mebibytes(int64_t bytes);
std::string fixed(double value, int digits);
// Nine digits, which tell any two floats apart.
std::string exact(float value);

// The value below which `share` of the values lie, interpolated; 0.5 is the median. Not of an empty vector.
double quantile(std::vector<double> values, double share);

}  // namespace gpt
