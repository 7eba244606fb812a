// Sparse, nested, quantised and oneDNN's own tensors.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"_sparse_addmm",
     [] {
       return Tensors{sample({3, 2}), sample({3, 4}), sample({4, 2})};
     },
     [](In t) -> Out { return at::_sparse_addmm(t[0], t[1].to_sparse(), t[2]); }},
    {"_sparse_log_softmax", one, [](In t) -> Out { return at::_sparse_log_softmax(t[0].to_sparse(), 1).to_dense(); },
     kNoSecondDerivative},
    {"_sparse_mm",
     [] {
       return Tensors{sample({3, 4}), sample({4, 2})};
     },
     [](In t) -> Out { return at::_sparse_mm(t[0].to_sparse(), t[1]); }},
    {"_sparse_mm/two",
     [] {
       return Tensors{sample({3, 4}), sample({4, 2})};
     },
     [](In t) -> Out { return at::_sparse_mm(t[0].to_sparse(), t[1].to_sparse()).to_dense(); }, kNoSecondDerivative},
    {"_sparse_softmax", one, [](In t) -> Out { return at::_sparse_softmax(t[0].to_sparse(), 1).to_dense(); },
     kNoSecondDerivative},
    {"_sparse_sum", one, [](In t) -> Out { return at::_sparse_sum(t[0].to_sparse(), at::IntArrayRef({1})).to_dense(); },
     kNoSecondDerivative},
    {"_to_dense", one, [](In t) -> Out { return t[0].to_sparse().to_dense(); }},
    {"coalesce",
     [] {
       return Tensors{sample({3}), integers({0, 2, 0, 1, 3, 1}, {2, 3})};
     },
     [](In t) -> Out {
       return at::sparse_coo_tensor(t[1], t[0], {3, 4}).coalesce().to_dense();
     },
     kNoSecondDerivative},
    {"sparse_coo_tensor",
     [] {
       return Tensors{sample({3}), integers({0, 0, 2, 1, 3, 1}, {2, 3})};
     },
     [](In t) -> Out {
       return at::sparse_coo_tensor(t[1], t[0], {3, 4}).to_dense();
     },
     kNoSecondDerivative},
    {"sparse_mask", two,
     [](In t) -> Out { return t[0].sparse_mask((t[1].detach() > 0).to(at::kFloat).to_sparse()).to_dense(); },
     kNoSecondDerivative},
    {"sparse_sampled_addmm",
     [] {
       return Tensors{sample({3, 4}), sample({3, 5}), sample({5, 4})};
     },
     [](In t) -> Out { return at::sparse_sampled_addmm(t[0].to_sparse_csr(), t[1], t[2]).to_dense(); },
     kNoSecondDerivative},
    {"to_sparse", one, [](In t) -> Out { return t[0].to_sparse().mul(2).to_dense(); }},
    {"to_sparse_bsr", one,
     [](In t) -> Out {
       return t[0].to_sparse_bsr({2, 2}).to_dense();
     }},
    {"to_sparse_csc", one, [](In t) -> Out { return t[0].to_sparse_csc().to_dense(); }},
    {"to_sparse_csr", one, [](In t) -> Out { return t[0].to_sparse_csr().to_dense(); }},
    {"values", one, [](In t) -> Out { return t[0].to_sparse().coalesce().values(); }, kHeld},
    {"matmul/compressed_rows",
     [] {
       return Tensors{sample({3, 4}), sample({4, 2})};
     },
     [](In t) -> Out { return at::matmul(t[0].to_sparse_csr(), t[1]); }},
    {"mul/sparse", two, [](In t) -> Out { return (t[0].to_sparse() * t[1].to_sparse()).to_dense(); }},
    {"sum/sparse", one, [](In t) -> Out { return t[0].to_sparse().sum(); }},
    // Nested tensors.
    {"_nested_tensor_from_tensor_list",
     [] {
       return Tensors{sample({2, 3}), sample({4, 3})};
     },
     [](In t) -> Out { return at::_nested_tensor_from_tensor_list(t).to_padded_tensor(0.0); }},
    {"_nested_tensor_from_mask",
     [] {
       return Tensors{sample({2, 3, 4})};
     },
     [](In t) -> Out {
       return at::_nested_tensor_from_mask(t[0], integers({1, 1, 0, 1, 1, 1}, {2, 3}).to(at::kBool))
           .to_padded_tensor(0.0);
     }},
    {"linear/nested",
     [] {
       return Tensors{sample({2, 3}), sample({4, 3}), sample({5, 3}), sample({5})};
     },
     [](In t) -> Out {
       return at::linear(at::_nested_tensor_from_tensor_list({t[0], t[1]}), t[2], t[3]).to_padded_tensor(0.0);
     },
     kNoSecondDerivative},
    {"matmul/nested",
     [] {
       return Tensors{sample({2, 3}), sample({4, 3}), sample({3, 2}), sample({3, 5})};
     },
     [](In t) -> Out {
       return at::matmul(at::_nested_tensor_from_tensor_list({t[0], t[1]}),
                         at::_nested_tensor_from_tensor_list({t[2], t[3]}))
           .to_padded_tensor(0.0);
     },
     kNoSecondDerivative},
    {"mul/nested",
     [] {
       return Tensors{sample({2, 3}), sample({4, 3})};
     },
     [](In t) -> Out { return at::_nested_tensor_from_tensor_list(t).mul(2).to_padded_tensor(0.0); }},
    {"softmax/nested",
     [] {
       return Tensors{sample({2, 3}), sample({4, 3})};
     },
     [](In t) -> Out { return at::softmax(at::_nested_tensor_from_tensor_list(t), 2).to_padded_tensor(0.0); },
     kNoSecondDerivative},
    {"to_padded_tensor",
     [] {
       return Tensors{sample({2, 3}), sample({4, 3})};
     },
     [](In t) -> Out { return at::_nested_tensor_from_tensor_list(t).relu().to_padded_tensor(0.5); }},
    // Quantisation that is trained through.
    {"_fake_quantize_learnable_per_channel_affine",
     [] {
       return Tensors{sample({4, 6}), leaf(at::full({6}, 0.1)), leaf(at::zeros({6}))};
     },
     [](In t) -> Out { return at::_fake_quantize_learnable_per_channel_affine(t[0], t[1], t[2], 1, -8, 7, 0.5); },
     kNoSecondDerivative},
    {"_fake_quantize_learnable_per_tensor_affine",
     [] {
       return Tensors{sample({4, 6}), leaf(at::full({1}, 0.1)), leaf(at::zeros({1}))};
     },
     [](In t) -> Out { return at::_fake_quantize_learnable_per_tensor_affine(t[0], t[1], t[2], -8, 7, 0.5); },
     kNoSecondDerivative},
    {"dequantize", one,
     [](In t) -> Out { return t[0] * at::quantize_per_tensor(t[0].detach(), 0.1, 0, at::kQInt8).dequantize(); }},
    {"fake_quantize_per_channel_affine",
     [] {
       return Tensors{sample({4, 6}), at::full({6}, 0.1), at::zeros({6}, at::kInt)};
     },
     [](In t) -> Out { return at::fake_quantize_per_channel_affine(t[0], t[1], t[2], 1, -8, 7); }},
    {"fake_quantize_per_tensor_affine", one,
     [](In t) -> Out { return at::fake_quantize_per_tensor_affine(t[0], 0.1, 0, -8, 7); }},
    {"fake_quantize_per_tensor_affine/tensors",
     [] {
       return Tensors{sample({4, 6}), at::full({1}, 0.1), at::zeros({1}, at::kInt)};
     },
     [](In t) -> Out { return at::fake_quantize_per_tensor_affine(t[0], t[1], t[2], -8, 7); }},
    {"fused_moving_avg_obs_fake_quant",
     [] {
       return Tensors{sample({4, 6}), at::zeros({1}), at::ones({1}), at::ones({1}), at::zeros({1}, at::kInt)};
     },
     [](In t) -> Out {
       at::Tensor low = t[1], high = t[2], scale = t[3], zero = t[4];
       at::Tensor on = at::ones({1}, at::kLong);
       at::Tensor y = at::fused_moving_avg_obs_fake_quant(t[0], on, on, low, high, scale, zero, 0.1, -8, 7, 0);
       return {{y, low, high, scale, zero}};
     }},
    // Tensors in oneDNN's own format.
    {"to_mkldnn", image, [](In t) -> Out { return t[0].to_mkldnn().to_dense(); }},
    {"relu/mkldnn", image, [](In t) -> Out { return t[0].to_mkldnn().relu().to_dense(); }, kNoSecondDerivative},
    {"mul/mkldnn", image, [](In t) -> Out { return t[0].to_mkldnn().mul(2).to_dense(); }},
    {"linear/bfloat16",
     [] {
       return Tensors{sample({4, 6}), sample({3, 6}), sample({3})};
     },
     [](In t) -> Out {
       return at::linear(t[0].to(at::kBFloat16), t[1].to(at::kBFloat16), t[2].to(at::kBFloat16)).to(at::kFloat);
     }},
};

}  // namespace

std::span<const Case> layout_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
