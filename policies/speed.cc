#include "policies/strategies.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

const std::vector<std::string>& slow_ops() {
  // Leaked: a policy may be asked while the process exits.
  static const auto& ops = *[] {
    auto* all = new std::vector<std::string>{
        // Decompositions and solvers.
        "aten::linalg_cholesky_ex",
        "aten::linalg_inv_ex",
        "aten::linalg_lu",
        "aten::linalg_lu_factor_ex",
        "aten::linalg_lu_solve",
        "aten::linalg_ldl_factor_ex",
        "aten::linalg_ldl_solve",
        "aten::linalg_qr",
        "aten::linalg_householder_product",
        "aten::linalg_eig",
        "aten::_linalg_eigh",
        "aten::_linalg_eigvals",
        "aten::_linalg_svd",
        "aten::_linalg_det",
        "aten::_linalg_slogdet",
        "aten::_linalg_solve_ex",
        "aten::linalg_lstsq",
        "aten::linalg_solve_triangular",
        "aten::linalg_matrix_exp",
        "aten::linalg_pinv",
        "aten::triangular_solve",
        "aten::cholesky",
        "aten::cholesky_solve",
        "aten::cholesky_inverse",
        "aten::geqrf",
        "aten::ormqr",
        // Fourier transforms.
        "aten::_fft_c2c",
        "aten::_fft_c2r",
        "aten::_fft_r2c",
        // Sorting and searching.
        "aten::sort",
        "aten::topk",
        "aten::kthvalue",
        "aten::mode",
        "aten::median",
        "aten::nanmedian",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::searchsorted",
        "aten::bucketize",
        // Distances between all pairs.
        "aten::_cdist_forward",
        "aten::_pdist_forward",
        "aten::_euclidean_dist",
        // Resampling with interpolation.
        "aten::upsample_linear1d",
        "aten::upsample_bilinear2d",
        "aten::upsample_bicubic2d",
        "aten::upsample_trilinear3d",
        "aten::_upsample_bilinear2d_aa",
        "aten::_upsample_bicubic2d_aa",
        "aten::grid_sampler_2d",
        "aten::grid_sampler_3d",
        "aten::cudnn_grid_sampler",
        // Dynamic programming.
        "aten::_ctc_loss",
        "aten::_cudnn_ctc_loss",
    };
    all->insert(all->begin(), compute_intensive_ops().begin(), compute_intensive_ops().end());
    return all;
  }();
  return ops;
}

Policy speed() {
  // Unchecked: other LibTorch versions lack some of these names, and miss nothing by it.
  static const auto& saved = *new internal::OpNameSet(internal::OpNameSet::parse_unchecked(slow_ops()));
  return internal::ready_made("speed", Policy::by_operator([](const c10::OperatorHandle& op) {
                                return saved.contains(op.operator_name()) ? CheckpointPolicy::MUST_SAVE
                                                                          : CheckpointPolicy::PREFER_RECOMPUTE;
                              }));
}

}  // namespace ac2::policies
