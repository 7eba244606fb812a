#include "ac2/internal/operators/undefined_results.h"

#include <algorithm>
#include <array>

namespace ac2::internal {

namespace {

struct Row {
  std::string_view op;
  int result;
};

// Numbers of tensors among the results: what returns integers too has fewer of them than returns.
constexpr std::array<Row, 22> kTable = {{
    {"aten::mkldnn_rnn_layer", 3},  // workspace
    {"aten::_cudnn_rnn", 3},        // reserve
    {"aten::miopen_rnn", 3},        // reserve
    {"aten::_ctc_loss", 1},         // log_alpha past each sequence's length
    {"aten::_cudnn_ctc_loss", 1},   // log_gradient, the same
    {"aten::cudnn_batch_norm", 3},  // reserve
    {"aten::_batch_norm_with_update", 3},
    {"aten::_batch_norm_with_update_functional", 3},
    // Attention on CUDA: seed and offset are written with dropout alone, one of them only to be there, and the sums of
    // the efficient kernels are padded.
    {"aten::_scaled_dot_product_flash_attention", 4},
    {"aten::_scaled_dot_product_flash_attention", 5},
    {"aten::_flash_attention_forward", 2},
    {"aten::_flash_attention_forward", 3},
    {"aten::_scaled_dot_product_efficient_attention", 1},
    {"aten::_scaled_dot_product_efficient_attention", 2},
    {"aten::_scaled_dot_product_efficient_attention", 3},
    {"aten::_efficient_attention_forward", 1},
    {"aten::_efficient_attention_forward", 2},
    {"aten::_efficient_attention_forward", 3},
    {"aten::_scaled_dot_product_cudnn_attention", 4},
    {"aten::_scaled_dot_product_cudnn_attention", 5},
    {"aten::_cudnn_attention_forward", 4},
    {"aten::_cudnn_attention_forward", 5},
}};

}  // namespace

bool is_undefined_result(std::string_view op, int result) {
  return std::any_of(kTable.begin(), kTable.end(),
                     [&](const Row& row) { return row.op == op && row.result == result; });
}

}  // namespace ac2::internal
