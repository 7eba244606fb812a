// Normalisation, softmax, dropout and other draws, attention.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"_softmax", one, [](In t) -> Out { return at::_softmax(t[0], 1, false); }},
    {"_weight_norm",
     [] {
       return Tensors{sample({4, 6}), leaf(constant({4, 1}).abs() + 0.5)};
     },
     [](In t) -> Out { return at::_weight_norm(t[0], t[1], 0); }},
    {"alpha_dropout", one, [](In t) -> Out { return at::alpha_dropout(t[0], 0.4, true); }},
    {"batch_norm/training",
     [] {
       return Tensors{sample({6, 3}), sample({3}), sample({3}), constant({3}), constant({3}).abs()};
     },
     [](In t) -> Out {
       at::Tensor y = at::batch_norm(t[0], t[1], t[2], t[3], t[4], true, 0.1, 1e-5, false);
       return {{y, t[3], t[4]}};
     }},
    {"batch_norm/evaluation",
     [] {
       return Tensors{sample({6, 3}), sample({3}), sample({3}), constant({3}), constant({3}).abs()};
     },
     [](In t) -> Out { return at::batch_norm(t[0], t[1], t[2], t[3], t[4], false, 0.1, 1e-5, false); }},
    {"batch_norm/images",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4}), sample({4})};
     },
     [](In t) -> Out { return at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false); }},
    {"bernoulli/times_a_tensor", fraction, [](In t) -> Out { return t[0] * at::bernoulli(t[0]); }},
    {"dropout", one, [](In t) -> Out { return at::dropout(t[0], 0.4, true); }},
    {"dropout/evaluation", one, [](In t) -> Out { return at::dropout(t[0], 0.4, false); }, kNothingToReplay},
    {"feature_alpha_dropout", image, [](In t) -> Out { return at::feature_alpha_dropout(t[0], 0.4, true); }},
    {"feature_dropout", image, [](In t) -> Out { return at::feature_dropout(t[0], 0.4, true); }},
    {"group_norm",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4}), sample({4})};
     },
     [](In t) -> Out { return at::group_norm(t[0], 2, t[1], t[2]); }},
    {"instance_norm",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4}), sample({4}), constant({4}), constant({4}).abs()};
     },
     [](In t) -> Out {
       at::Tensor y = at::instance_norm(t[0], t[1], t[2], t[3], t[4], true, 0.1, 1e-5, false);
       return {{y, t[3], t[4]}};
     }},
    {"layer_norm",
     [] {
       return Tensors{sample({4, 6}), sample({6}), sample({6})};
     },
     [](In t) -> Out { return at::layer_norm(t[0], {6}, t[1], t[2]); }},
    {"log_softmax", one, [](In t) -> Out { return at::log_softmax(t[0], 1); }},
    {"log_softmax/double", one, [](In t) -> Out { return at::log_softmax(t[0], 0, at::kDouble); }},
    {"native_batch_norm",
     [] {
       return Tensors{sample({6, 3}), sample({3}), sample({3}), constant({3}), constant({3}).abs()};
     },
     [](In t) -> Out {
       auto [y, mean, scale] = at::native_batch_norm(t[0], t[1], t[2], t[3], t[4], true, 0.1, 1e-5);
       return {{y, mean.detach(), scale.detach(), t[3], t[4]}};
     }},
    {"native_dropout", one, [](In t) -> Out { return at::native_dropout(t[0], 0.4, true); }},
    {"native_group_norm",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4}), sample({4})};
     },
     [](In t) -> Out { return at::native_group_norm(t[0], t[1], t[2], 2, 4, 36, 2, 1e-5); }},
    {"native_layer_norm",
     [] {
       return Tensors{sample({4, 6}), sample({6}), sample({6})};
     },
     [](In t) -> Out { return at::native_layer_norm(t[0], {6}, t[1], t[2], 1e-5); }},
    {"normal/mean_and_deviation", two_positive, [](In t) -> Out { return t[0] * at::normal(t[0], t[1]); }},
    {"normal/of_a_tensor", two_positive, [](In t) -> Out { return t[0] * at::normal(t[0], 0.5); }},
    {"poisson", positive, [](In t) -> Out { return t[0] * at::poisson(t[0]); }},
    {"rand_like", one, [](In t) -> Out { return t[0] * at::rand_like(t[0]); }},
    {"randn", one,
     [](In t) -> Out {
       return t[0] * at::randn({4, 6});
     }},
    {"randint_like", one, [](In t) -> Out { return t[0] * at::randint_like(t[0].detach(), 9); }},
    {"randperm", one, [](In t) -> Out { return t[0].index({at::randperm(4)}); }},
    {"multinomial", fraction, [](In t) -> Out { return t[0].gather(1, at::multinomial(t[0], 2)); }},
    {"rms_norm",
     [] {
       return Tensors{sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::rms_norm(t[0], {6}, t[1]); }},
    {"scaled_dot_product_attention",
     [] {
       return Tensors{sample({2, 2, 4, 8}), sample({2, 2, 5, 8}), sample({2, 2, 5, 8})};
     },
     [](In t) -> Out { return at::scaled_dot_product_attention(t[0], t[1], t[2]); }, kNoSecondDerivative},
    {"scaled_dot_product_attention/causal",
     [] {
       return Tensors{sample({2, 2, 4, 8}), sample({2, 2, 4, 8}), sample({2, 2, 4, 8})};
     },
     [](In t) -> Out { return at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, true); },
     kNoSecondDerivative},
    {"scaled_dot_product_attention/mask",
     [] {
       return Tensors{sample({2, 2, 4, 8}), sample({2, 2, 4, 8}), sample({2, 2, 4, 8}), constant({4, 4})};
     },
     [](In t) -> Out { return at::scaled_dot_product_attention(t[0], t[1], t[2], t[3]); }, kNoSecondDerivative},
    {"scaled_dot_product_attention/dropout",
     [] {
       return Tensors{sample({2, 2, 4, 8}), sample({2, 2, 4, 8}), sample({2, 2, 4, 8})};
     },
     [](In t) -> Out { return at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.3, true); }},
    {"_safe_softmax", one, [](In t) -> Out { return at::_safe_softmax(t[0], 1); }},
    {"softmax", one, [](In t) -> Out { return at::softmax(t[0], 1); }},
    {"softmax/double", one, [](In t) -> Out { return at::softmax(t[0], 1, at::kDouble); }},
    {"special_softmax", one, [](In t) -> Out { return at::special_softmax(t[0], 0); }},
    {"special_log_softmax", one, [](In t) -> Out { return at::special_log_softmax(t[0], 0); }},
    {"embedding",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0})};
     },
     [](In t) -> Out { return at::embedding(t[0], t[1]); }},
    {"embedding/frequency",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0})};
     },
     [](In t) -> Out { return at::embedding(t[0], t[1], 0, true); }},
    {"embedding/sparse_gradient",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0})};
     },
     [](In t) -> Out { return at::embedding(t[0], t[1], -1, false, true); }},
    {"embedding_bag/sum",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0}), integers({0, 3})};
     },
     [](In t) -> Out { return std::get<0>(at::embedding_bag(t[0], t[1], t[2], false, 0)); }, kNoSecondDerivative},
    {"embedding_bag/mean",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0}), integers({0, 3})};
     },
     [](In t) -> Out { return std::get<0>(at::embedding_bag(t[0], t[1], t[2], false, 1)); }, kNoSecondDerivative},
    {"embedding_bag/max",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0}), integers({0, 3})};
     },
     [](In t) -> Out { return std::get<0>(at::embedding_bag(t[0], t[1], t[2], false, 2)); }, kNoSecondDerivative},
    {"embedding_bag/weighted",
     [] {
       return Tensors{sample({5, 3}), integers({1, 4, 1, 0}), integers({0, 3}), sample({4})};
     },
     [](In t) -> Out { return std::get<0>(at::embedding_bag(t[0], t[1], t[2], false, 0, false, t[3])); },
     kNoSecondDerivative},
};

}  // namespace

std::span<const Case> network_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
