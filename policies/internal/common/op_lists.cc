#include "policies/internal/common/op_lists.h"

namespace ac2::policies::internal {

// All leaked: a policy may be asked while the process exits.

const std::vector<std::string>& products_without_batch() {
  static const auto& ops = *new std::vector<std::string>{
      // Products of matrices and vectors.
      "aten::mm",
      "aten::addmm",
      "aten::addmm_",
      "aten::_addmm_activation",
      "aten::addbmm",
      "aten::addbmm_",
      "aten::mv",
      "aten::addmv",
      "aten::addmv_",
      "aten::dot",
      "aten::vdot",
      "aten::mkldnn_linear",
      // Products of low precision.
      "aten::_int_mm",
      "aten::_scaled_mm",
      "aten::_scaled_mm_v2",
      "aten::_mixed_dtypes_linear",
      "aten::_weight_int4pack_mm",
      "aten::_weight_int4pack_mm_for_cpu",
      "aten::_weight_int4pack_mm_with_scales_and_zeros",
      "aten::_weight_int8pack_mm",
      "aten::_dyn_quant_matmul_4bit",
      // With a sparse factor.
      "aten::_sparse_addmm",
      "aten::_sparse_sparse_matmul",
      "aten::sparse_sampled_addmm",
      "aten::_cslt_sparse_mm",
      "aten::_sparse_semi_structured_mm",
      "aten::_sparse_semi_structured_addmm",
      "aten::_sparse_semi_structured_linear",
      // Composites: autograd takes them apart, so that only inference mode and some backends run these whole.
      "aten::linear",
      "aten::inner",
      "aten::tensordot",
      "aten::linalg_multi_dot",
      "aten::chain_matmul",
      "aten::_sparse_mm",
  };
  return ops;
}

const std::vector<std::string>& batched_products() {
  static const auto& ops = *new std::vector<std::string>{
      // A product for each element of the batch.
      "aten::bmm",
      "aten::baddbmm",
      "aten::baddbmm_",
      "aten::_trilinear",
      // For each group.
      "aten::_grouped_mm",
      "aten::_scaled_grouped_mm",
      "aten::_scaled_grouped_mm_v2",
      // Composites: autograd takes them apart, so that only inference mode and some backends run these whole.
      "aten::matmul",
      "aten::linalg_matmul",
      "aten::linalg_vecdot",
      "aten::einsum",
      "aten::bilinear",
  };
  return ops;
}

const std::vector<std::string>& convolutions() {
  static const auto& ops = *new std::vector<std::string>{
      // With a kernel.
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
      // Composites: autograd takes them apart, so that only inference mode and some backends run these whole.
      "aten::conv1d",
      "aten::conv2d",
      "aten::conv3d",
      "aten::conv_transpose1d",
      "aten::conv_transpose2d",
      "aten::conv_transpose3d",
      "aten::_convolution_mode",
      "aten::thnn_conv2d",
      "aten::slow_conv3d",
  };
  return ops;
}

const std::vector<std::string>& attention() {
  static const auto& ops = *new std::vector<std::string>{
      // Fused.
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
      // Composites: autograd takes them apart, so that only inference mode and some backends run these whole.
      "aten::scaled_dot_product_attention",
      "aten::_scaled_dot_product_attention_math",
  };
  return ops;
}

const std::vector<std::string>& backward_of_compute_intensive() {
  static const auto& ops = *new std::vector<std::string>{
      // The backward of a matrix product is matrix products.
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
  };
  return ops;
}

}  // namespace ac2::policies::internal
