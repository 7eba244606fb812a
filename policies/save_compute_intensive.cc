#include "policies/save_compute_intensive.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/op_names.h"

namespace ac2::policies {

// Fused recurrent layers (aten::_cudnn_rnn, aten::mkldnn_rnn_layer) are left out: among their results is a reserve with
// the activations of every time step, which is what recomputing is there to avoid.
const std::vector<std::string>& compute_intensive_ops() {
  // Leaked: a policy may be asked while the process exits.
  static const auto& ops = *new std::vector<std::string>{
      // Matrix products.
      "aten::mm",
      "aten::addmm",
      "aten::addmm_",
      "aten::_addmm_activation",
      "aten::bmm",
      "aten::baddbmm",
      "aten::baddbmm_",
      "aten::addbmm",
      "aten::addbmm_",
      "aten::mv",
      "aten::addmv",
      "aten::addmv_",
      "aten::dot",
      "aten::vdot",
      "aten::_trilinear",
      "aten::mkldnn_linear",
      // Of low precision.
      "aten::_int_mm",
      "aten::_scaled_mm",
      "aten::_scaled_mm_v2",
      "aten::_mixed_dtypes_linear",
      "aten::_weight_int4pack_mm",
      "aten::_weight_int4pack_mm_for_cpu",
      "aten::_weight_int4pack_mm_with_scales_and_zeros",
      "aten::_weight_int8pack_mm",
      "aten::_dyn_quant_matmul_4bit",
      // Grouped.
      "aten::_grouped_mm",
      "aten::_scaled_grouped_mm",
      "aten::_scaled_grouped_mm_v2",
      // With a sparse factor.
      "aten::_sparse_addmm",
      "aten::_sparse_sparse_matmul",
      "aten::sparse_sampled_addmm",
      "aten::_cslt_sparse_mm",
      "aten::_sparse_semi_structured_mm",
      "aten::_sparse_semi_structured_addmm",
      "aten::_sparse_semi_structured_linear",
      // Convolutions.
      "aten::convolution",
      "aten::_convolution",
      "aten::convolution_overrideable",
      "aten::mkldnn_convolution",
      "aten::cudnn_convolution",
      "aten::cudnn_convolution_relu",
      "aten::cudnn_convolution_add_relu",
      "aten::cudnn_convolution_transpose",
      "aten::miopen_convolution",
      "aten::miopen_convolution_relu",
      "aten::miopen_convolution_add_relu",
      "aten::miopen_convolution_transpose",
      "aten::miopen_depthwise_convolution",
      "aten::_mps_convolution",
      "aten::_mps_convolution_transpose",
      "aten::_nnpack_spatial_convolution",
      "aten::_slow_conv2d_forward",
      "aten::slow_conv3d_forward",
      "aten::slow_conv_dilated2d",
      "aten::slow_conv_dilated3d",
      "aten::slow_conv_transpose2d",
      "aten::slow_conv_transpose3d",
      "aten::_conv_depthwise2d",
      "aten::conv_depthwise3d",
      "aten::conv_tbc",
      // Attention.
      "aten::_scaled_dot_product_flash_attention",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_scaled_dot_product_efficient_attention",
      "aten::_scaled_dot_product_cudnn_attention",
      "aten::_scaled_dot_product_fused_attention_overrideable",
      "aten::_scaled_dot_product_attention_math_for_mps",
      "aten::_flash_attention_forward",
      "aten::_efficient_attention_forward",
      "aten::_cudnn_attention_forward",
      "aten::_native_multi_head_attention",
      "aten::_triton_multi_head_attention",
      "aten::_triton_scaled_dot_attention",
      // Their backward, for a backward that runs inside a region. (That of a matrix product is matrix products.)
      "aten::convolution_backward",
      "aten::convolution_backward_overrideable",
      "aten::linear_backward",
      "aten::matmul_backward",
      "aten::mkldnn_linear_backward",
      "aten::_scaled_dot_product_flash_attention_backward",
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
      "aten::_scaled_dot_product_efficient_attention_backward",
      "aten::_scaled_dot_product_cudnn_attention_backward",
      "aten::_scaled_dot_product_fused_attention_overrideable_backward",
      "aten::_flash_attention_backward",
      "aten::_efficient_attention_backward",
      "aten::_cudnn_attention_backward",
      // Composites: autograd takes them apart, so that only inference mode and backends with a kernel of their own for
      // them run these whole.
      "aten::linear",
      "aten::matmul",
      "aten::linalg_matmul",
      "aten::linalg_multi_dot",
      "aten::linalg_vecdot",
      "aten::chain_matmul",
      "aten::inner",
      "aten::tensordot",
      "aten::einsum",
      "aten::bilinear",
      "aten::_sparse_mm",
      "aten::conv1d",
      "aten::conv2d",
      "aten::conv3d",
      "aten::conv_transpose1d",
      "aten::conv_transpose2d",
      "aten::conv_transpose3d",
      "aten::_convolution_mode",
      "aten::thnn_conv2d",
      "aten::slow_conv3d",
      "aten::scaled_dot_product_attention",
      "aten::_scaled_dot_product_attention_math",
  };
  return ops;
}

Policy save_compute_intensive() {
  // Unchecked: other LibTorch versions lack some of these names, and miss nothing by it.
  static const auto& saved = *new internal::OpNameSet(internal::OpNameSet::parse_unchecked(compute_intensive_ops()));
  return Policy::by_operator([](const c10::OperatorHandle& op) {
    return saved.contains(op.operator_name()) ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
  });
}

}  // namespace ac2::policies
