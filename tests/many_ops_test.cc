// A wide sweep over LibTorch's functions: each in a region, its inputs and results recomputed, saved,
// and read through views, compared with plain autograd to the last bit.
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using Fn = at::Tensor (*)(const Tensors&);

struct Op {
  const char* name;
  Fn fn;
};

void PrintTo(const Op& op, std::ostream* out) {
  *out << op.name;
}

// t[0], t[1]: 4 × 6 between -1 and 1; t[2]: 6 × 6; t[3]: 2 × 3 × 6 × 6 (images).
Tensors inputs() {
  return {sample({4, 6}), sample({4, 6}), sample({6, 6}), sample({2, 3, 6, 6})};
}

at::Tensor long_tensor(std::vector<int64_t> values) {
  return at::tensor(values);
}

class ManyOpsTest : public CleanTest, public ::testing::WithParamInterface<Op> {};

TEST_P(ManyOpsTest, GiveWhatPlainAutogradGives) {
  Fn op = GetParam().fn;
  auto direct = [op](const Tensors& in) { return Tensors{op(in)}; };
  auto surrounded = [op](const Tensors& in) {
    Tensors inner;
    for (const at::Tensor& t : in) inner.push_back(t.sin());
    at::Tensor y = op(inner);
    return Tensors{y.is_floating_point() ? y.sin().sum() : y};
  };
  auto then_written = [op](const Tensors& in) {
    Tensors inner;
    for (const at::Tensor& t : in) inner.push_back(t.mul(1).add_(0.25).cos());
    at::Tensor y = op(inner).clone();
    if (y.is_floating_point()) y.mul_(0.5).flatten().slice(0, 0, 1).add_(1);
    return Tensors{y};
  };
  for (const TensorFn& fn : {TensorFn(direct), TensorFn(surrounded), TensorFn(then_written)}) {
    for (const char* policy : {"recompute_all", "must_save_all"}) {
      expect_same_gradients(fn, inputs(), policy);
      if (HasFailure()) return;
    }
  }
}

// The name is the expression; `t` are the tensors.
#define OP(name, ...)                                                 \
  Op {                                                                \
#name, [](const Tensors& t) -> at::Tensor { return __VA_ARGS__; } \
  }

std::string op_name(const ::testing::TestParamInfo<Op>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Elementwise, ManyOpsTest,
    ::testing::Values(OP(abs, t[0].abs()), OP(acos, t[0].mul(0.5).acos()), OP(asinh, t[0].asinh()),
                      OP(atan2, at::atan2(t[0], t[1])), OP(ceil, t[0].ceil()), OP(copysign, t[0].copysign(t[1])),
                      OP(cosh, t[0].cosh()), OP(digamma, t[0].abs().add(1).digamma()), OP(div, t[0] / t[1]),
                      OP(elu, at::elu(t[0])), OP(erf, t[0].erf()), OP(erfinv, t[0].mul(0.5).erfinv()),
                      OP(exp2, t[0].exp2()), OP(expm1, t[0].expm1()), OP(fmax, at::fmax(t[0], t[1])),
                      OP(fmod, t[0].fmod(0.3)), OP(glu, at::glu(t[0])), OP(hardshrink, at::hardshrink(t[0], 0.3)),
                      OP(hardswish, at::hardswish(t[0])), OP(hardtanh, at::hardtanh(t[0], -0.5, 0.5)),
                      OP(hypot, at::hypot(t[0], t[1])), OP(i0, at::i0(t[0])), OP(lerp, t[0].lerp(t[1], 0.3)),
                      OP(lerp_tensor, t[0].lerp(t[1], t[1].abs())), OP(lgamma, t[0].abs().add(1).lgamma()),
                      OP(log1p, t[0].abs().log1p()), OP(log_sigmoid, at::log_sigmoid(t[0])),
                      OP(logaddexp, at::logaddexp(t[0], t[1])), OP(logit, t[0].sigmoid().logit()),
                      OP(maximum, at::maximum(t[0], t[1])), OP(mish, at::mish(t[0])),
                      OP(nan_to_num, t[0].log().nan_to_num(0.5)), OP(neg, t[0].neg()),
                      OP(polygamma, at::polygamma(1, t[0].abs() + 1)), OP(pow_tensor, t[0].abs().add(0.1).pow(t[1])),
                      OP(pow_scalar, t[0].pow(3)), OP(prelu, at::prelu(t[0], t[1][0].slice(0, 0, 1))),
                      OP(reciprocal, t[0].reciprocal()), OP(remainder, t[0].remainder(0.3)),
                      OP(rsqrt, t[0].abs().add(0.1).rsqrt()), OP(rsub, 1 - t[0]), OP(selu, at::selu(t[0])),
                      OP(sgn, t[0].sgn()), OP(sign, t[0].sign()), OP(silu, at::silu(t[0])), OP(sinc, t[0].sinc()),
                      OP(softplus, at::softplus(t[0])), OP(softshrink, at::softshrink(t[0], 0.2)),
                      OP(square, t[0].square()), OP(tan, t[0].tan()), OP(threshold, at::threshold(t[0], 0.1, 0.2)),
                      OP(trunc, t[0].trunc()), OP(where, at::where(t[0] > t[1], t[0], t[1])),
                      OP(xlogy, at::xlogy(t[0], t[1].abs() + 0.1))),
    op_name);

INSTANTIATE_TEST_SUITE_P(
    Reductions, ManyOpsTest,
    ::testing::Values(OP(all, t[0].gt(0).all()), OP(amax, t[0].amax(1)),
                      OP(aminmax, std::get<0>(at::aminmax(t[0].detach()))), OP(argmax, t[0].argmax(1)),
                      OP(cummin, std::get<0>(t[0].cummin(1))), OP(cumprod, t[0].cumprod(1)), OP(diff, t[0].diff()),
                      OP(dist, at::dist(t[0], t[1])), OP(frobenius, at::linalg_matrix_norm(t[0])),
                      OP(kthvalue, std::get<0>(t[0].kthvalue(2, 1))), OP(logcumsumexp, t[0].logcumsumexp(1)),
                      OP(logsumexp, t[0].logsumexp(1)), OP(max, t[0].max()), OP(mean, t[0].mean({0}, true)),
                      OP(median, std::get<0>(t[0].median(1))), OP(mode, std::get<0>(t[0].mode(1))),
                      OP(nanmean, t[0].nanmean(1)), OP(nansum, t[0].nansum()), OP(norm, t[0].norm(2, 1)),
                      OP(prod, t[0].prod(1)), OP(quantile, t[0].quantile(0.3, 1)), OP(std, t[0].std(1)),
                      OP(std_mean, std::get<0>(at::std_mean(t[0]))), OP(trace, t[2].trace()),
                      OP(unique, std::get<0>(at::_unique(t[0].detach().round()))), OP(var, t[0].var(0))),
    op_name);

INSTANTIATE_TEST_SUITE_P(
    Shapes, ManyOpsTest,
    ::testing::Values(
        OP(broadcast, t[0] + t[1].slice(1, 0, 1)), OP(cdist, at::cdist(t[0], t[1])),
        OP(combinations, at::combinations(t[0][0])), OP(constant_pad, at::pad(t[0], {1, 2})),
        OP(diag_embed, t[0].diag_embed()), OP(flip, t[0].flip({0})),
        OP(gather, t[0].gather(1, long_tensor({1, 0, 3}).view({1, 3}))),
        OP(index_copy, t[0].index_copy(0, long_tensor({2, 0}), t[1].slice(0, 0, 2))),
        OP(index_select, t[0].index_select(1, long_tensor({3, 3, 0}))), OP(kron, at::kron(t[0], t[1])),
        OP(masked_scatter, t[0].masked_scatter(t[1] > 0, t[1])), OP(masked_select, t[0].masked_select(t[1] > -2)),
        OP(meshgrid, at::meshgrid({t[0][0], t[1][0]}, "ij")[1]), OP(movedim, t[3].movedim(1, 3)),
        OP(nonzero, t[0].nonzero()), OP(pixel_shuffle, at::pixel_shuffle(t[3].repeat({1, 4, 1, 1}), 2)),
        OP(put, t[0].put(long_tensor({0, 7}), t[1][0].slice(0, 0, 2))),
        OP(reflection_pad, at::reflection_pad2d(t[3], {1, 2, 0, 1})),
        OP(repeat_interleave, t[0].repeat_interleave(2, 1)),
        OP(replication_pad, at::replication_pad2d(t[3], {1, 2, 0, 1})), OP(roll, t[0].roll(2, 1)),
        OP(rot90, t[0].rot90()),
        OP(scatter_add, t[0].scatter_add(1, long_tensor({1, 1, 2}).view({1, 3}), t[1].slice(0, 0, 1).slice(1, 0, 3))),
        OP(scatter_reduce,
           t[0].scatter_reduce(1, long_tensor({1, 1, 2}).view({1, 3}), t[1].slice(0, 0, 1).slice(1, 0, 3), "amax")),
        OP(slice_scatter, t[0].slice_scatter(t[1].slice(0, 0, 2), 0, 1, 3)),
        OP(take, t[0].take(long_tensor({3, 9, 3}))), OP(take_along_dim, t[0].take_along_dim(t[1].argsort(1, false), 1)),
        OP(tensordot, at::tensordot(t[0], t[1], {0}, {0})), OP(tile, t[0].tile({2, 1})),
        OP(to_half, t[0].to(at::kHalf).to(at::kFloat)), OP(tril, t[2].tril()),
        OP(unfold_copy, at::unfold_copy(t[0], 1, 3, 2)), OP(vander, at::linalg_vander(t[0][0]))),
    op_name);

INSTANTIATE_TEST_SUITE_P(
    LinearAlgebra, ManyOpsTest,
    ::testing::Values(
        OP(addbmm, at::addbmm(t[2], t[3][0], t[3][1])), OP(addcdiv, t[0].addcdiv(t[0], t[1].abs() + 0.5)),
        OP(addmv, at::addmv(t[0].select(1, 0), t[1], t[2][0])), OP(addr, at::addr(t[2], t[0][0], t[1][0])),
        OP(baddbmm, at::baddbmm(t[3][0], t[3][0], t[3][1], 0.5, 2)),
        OP(bilinear, at::bilinear(t[0], t[1], t[3][0], {})),
        OP(chain_matmul, at::linalg_multi_dot({t[0], t[2], t[1].t()})),
        OP(cholesky, at::linalg_cholesky(t[2].mm(t[2].t()) + at::eye(6))),
        OP(cross, at::linalg_cross(t[0].slice(1, 0, 3), t[1].slice(1, 0, 3))),
        OP(det, at::linalg_det(t[2] + at::eye(6) * 2)), OP(dot, at::dot(t[0][0], t[1][0])),
        OP(eigh, std::get<0>(at::linalg_eigh(t[2] + t[2].t()))), OP(einsum, at::einsum("bi,bj->ij", {t[0], t[1]})),
        OP(inverse, at::linalg_inv(t[2] + at::eye(6) * 3)),
        OP(lu, std::get<0>(at::linalg_lu_factor(t[2] + at::eye(6) * 3))), OP(matmul_broadcast, t[3].matmul(t[2])),
        OP(matrix_exp, at::linalg_matrix_exp(t[2] * 0.1)), OP(matrix_power, at::linalg_matrix_power(t[2], 3)),
        OP(mv, t[2].mv(t[0][0])), OP(outer, at::outer(t[0][0], t[1][0])),
        OP(pinverse, at::linalg_pinv(t[2] + at::eye(6) * 3)), OP(qr, std::get<1>(at::linalg_qr(t[2] + at::eye(6) * 3))),
        OP(solve, at::linalg_solve(t[2] + at::eye(6) * 3, t[0].t())),
        OP(triangular_solve, at::linalg_solve_triangular(t[2].triu() + at::eye(6) * 3, t[0].t(), true)),
        OP(vecdot, at::linalg_vecdot(t[0], t[1]))),
    op_name);

INSTANTIATE_TEST_SUITE_P(
    Networks, ManyOpsTest,
    ::testing::Values(
        OP(adaptive_max_pool, std::get<0>(at::adaptive_max_pool2d(t[3], {2, 3}))),
        OP(affine_grid,
           at::affine_grid_generator(t[2].slice(0, 0, 2).slice(1, 0, 6).reshape({2, 2, 3}), {2, 1, 3, 3}, false)),
        OP(avg_pool, at::avg_pool2d(t[3], {2, 2}, {1, 1}, {1, 1})),
        OP(bicubic, at::upsample_bicubic2d(t[3], {4, 9}, true)),
        OP(bilinear_upsample, at::upsample_bilinear2d(t[3], {4, 9}, false)), OP(celu, at::celu(t[0])),
        OP(channel_shuffle, at::channel_shuffle(t[3], 3)),
        OP(col2im,
           at::col2im(at::im2col(t[3], {2, 2}, {1, 1}, {0, 0}, {1, 1}), {6, 6}, {2, 2}, {1, 1}, {0, 0}, {1, 1})),
        OP(conv1d, at::conv1d(t[3][0], t[3][1].slice(2, 0, 3))),
        OP(conv_transpose, at::conv_transpose2d(t[3], t[3].slice(0, 0, 1).transpose(0, 1), {}, {2, 2})),
        OP(cosine_embedding, at::cosine_embedding_loss(t[0], t[1], at::ones({4}))),
        OP(ctc, at::ctc_loss(t[3].flatten(0, 1).log_softmax(2),
                             long_tensor({1, 2, 1, 3, 2, 1, 2, 3, 4, 5, 1, 2}).view({6, 2}),
                             at::IntArrayRef({6, 6, 5, 6, 6, 6}), at::IntArrayRef({2, 2, 1, 2, 2, 1}))),
        OP(fold_unfold, at::im2col(t[3], {3, 3}, {1, 1}, {1, 1}, {2, 2})),
        OP(fractional_pool, std::get<0>(at::fractional_max_pool2d(t[3], {2, 2}, {3, 3}, at::rand({2, 3, 2})))),
        OP(gaussian_nll, at::mse_loss(t[0], t[1], at::Reduction::None)),
        OP(grid_sample, at::grid_sampler(t[3], t[3].slice(1, 0, 2).permute({0, 2, 3, 1}), 0, 0, false)),
        OP(group_norm, at::group_norm(t[3], 3)), OP(hinge, at::hinge_embedding_loss(t[0], t[1].sign())),
        OP(huber, at::huber_loss(t[0], t[1])),
        OP(instance_norm, at::instance_norm(t[3], {}, {}, {}, {}, true, 0.1, 1e-5, false)),
        OP(layer_norm, at::layer_norm(t[0], {6}, t[1][0], t[1][1])),
        OP(local_response, at::avg_pool3d(t[3].unsqueeze(1), {1, 2, 2})),
        OP(lp_pool, at::avg_pool1d(t[3][0].pow(2), {2}).sqrt()),
        OP(margin_ranking, at::margin_ranking_loss(t[0], t[1], at::ones({4, 6}))),
        OP(max_pool1d, at::max_pool1d(t[3][0], {2})), OP(max_pool3d, at::max_pool3d(t[3], {1, 2, 2})),
        OP(multi_margin, at::multi_margin_loss(t[0], long_tensor({1, 0, 5, 3}))),
        OP(multilabel, at::multilabel_margin_loss(t[0], at::full({4, 6}, -1, at::kLong))),
        OP(native_dropout, std::get<0>(at::native_dropout(t[0], 0.3, true))),
        OP(nll2d, at::nll_loss2d(t[3].log_softmax(1), at::ones({2, 6, 6}, at::kLong))),
        OP(normalize, t[0] / t[0].norm(2, 1, true).clamp_min(1e-12)),
        OP(poisson_nll, at::poisson_nll_loss(t[0], t[1].abs(), true, true, 1e-8, at::Reduction::Mean)),
        OP(rms_norm, at::rms_norm(t[0], {6}, t[1][0])), OP(rnn_tanh, at::rnn_tanh_cell(t[0], t[1], t[2], t[2])),
        OP(soft_margin, at::soft_margin_loss(t[0], t[1].detach().sign())),
        OP(triplet, at::triplet_margin_loss(t[0], t[1], t[0].flip({0}))), OP(unfold_backward, t[0].unfold(1, 3, 2)),
        OP(weight_norm, at::_weight_norm(t[2], t[2].norm(2, 1, true), 0))),
    op_name);

}  // namespace
}  // namespace ac2::test
