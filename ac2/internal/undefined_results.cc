#include "ac2/internal/undefined_results.h"

#include <algorithm>
#include <array>

namespace ac2::internal {

namespace {

struct Row {
  std::string_view op;
  int result;
};

constexpr std::array<Row, 5> kTable = {{
    {"aten::mkldnn_rnn_layer", 3},  // workspace
    {"aten::_cudnn_rnn", 3},        // reserve
    {"aten::miopen_rnn", 3},        // reserve
    {"aten::_ctc_loss", 1},         // log_alpha past each sequence's length
    {"aten::_cudnn_ctc_loss", 1},   // log_gradient, the same
}};

}  // namespace

bool is_undefined_result(std::string_view op, int result) {
  return std::any_of(kTable.begin(), kTable.end(),
                     [&](const Row& row) { return row.op == op && row.result == result; });
}

}  // namespace ac2::internal
