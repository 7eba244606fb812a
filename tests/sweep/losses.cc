// Losses.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"binary_cross_entropy",
     [] {
       return Tensors{leaf(constant({4, 6}).sigmoid()), constant({4, 6}).sigmoid()};
     },
     [](In t) -> Out { return at::binary_cross_entropy(t[0], t[1]); }},
    {"binary_cross_entropy/target",
     [] {
       return Tensors{leaf(constant({4, 6}).sigmoid()), leaf(constant({4, 6}).sigmoid())};
     },
     [](In t) -> Out { return at::binary_cross_entropy(t[0], t[1]); }},
    {"binary_cross_entropy_with_logits",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).sigmoid(), constant({6}).exp(), constant({6}).exp()};
     },
     [](In t) -> Out { return at::binary_cross_entropy_with_logits(t[0], t[1], t[2], t[3]); }},
    {"cosine_embedding_loss",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), integers({1, -1, 1, -1})};
     },
     [](In t) -> Out { return at::cosine_embedding_loss(t[0], t[1], t[2], 0.1); }},
    {"cross_entropy_loss",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3})};
     },
     [](In t) -> Out { return at::cross_entropy_loss(t[0], t[1]); }},
    {"cross_entropy_loss/weighted_and_smoothed",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3}), constant({6}).exp()};
     },
     [](In t) -> Out { return at::cross_entropy_loss(t[0], t[1], t[2], at::Reduction::Sum, 5, 0.1); }},
    {"cross_entropy_loss/probabilities", two,
     [](In t) -> Out { return at::cross_entropy_loss(t[0], t[1].softmax(1)); }},
    {"ctc_loss",
     [] {
       return Tensors{sample({12, 2, 5}), integers({1, 2, 3, 2, 4, 1}, {2, 3})};
     },
     [](In t) -> Out {
       return at::ctc_loss(t[0].log_softmax(2), t[1], at::IntArrayRef({12, 10}), at::IntArrayRef({3, 2}));
     },
     kNoSecondDerivative},
    {"ctc_loss/tensors",
     [] {
       return Tensors{sample({12, 2, 5}), integers({1, 2, 3, 2, 4, 1}, {2, 3}), integers({12, 10}), integers({3, 2})};
     },
     [](In t) -> Out { return at::ctc_loss(t[0].log_softmax(2), t[1], t[2], t[3]); }, kNoSecondDerivative},
    {"hinge_embedding_loss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).sign()};
     },
     [](In t) -> Out { return at::hinge_embedding_loss(t[0], t[1]); }},
    {"huber_loss", two, [](In t) -> Out { return at::huber_loss(t[0], t[1], at::Reduction::Mean, 0.7); }},
    {"kl_div",
     [] {
       return Tensors{sample({4, 6}), leaf(constant({4, 6}).softmax(1))};
     },
     [](In t) -> Out { return at::kl_div(t[0].log_softmax(1), t[1]); }},
    {"kl_div/of_logarithms", two,
     [](In t) -> Out { return at::kl_div(t[0].log_softmax(1), t[1].log_softmax(1), at::Reduction::Sum, true); }},
    {"l1_loss", two, [](In t) -> Out { return at::l1_loss(t[0], t[1]); }},
    {"margin_ranking_loss",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), constant({4, 6}).sign()};
     },
     [](In t) -> Out { return at::margin_ranking_loss(t[0], t[1], t[2], 0.2); }},
    {"mse_loss", two, [](In t) -> Out { return at::mse_loss(t[0], t[1]); }},
    {"mse_loss/none", two, [](In t) -> Out { return at::mse_loss(t[0], t[1], at::Reduction::None); }},
    {"multi_margin_loss",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3})};
     },
     [](In t) -> Out { return at::multi_margin_loss(t[0], t[1]); }, kNoSecondDerivative},
    {"multilabel_margin_loss",
     [] {
       return Tensors{sample({2, 4}), integers({1, 3, -1, 0, 0, -1, 2, 1}, {2, 4})};
     },
     [](In t) -> Out { return at::multilabel_margin_loss(t[0], t[1]); }, kNoSecondDerivative},
    {"nll_loss",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 5, 3}), constant({6}).exp()};
     },
     [](In t) -> Out { return at::nll_loss(t[0], t[1], t[2]); }},
    {"nll_loss2d",
     [] {
       return Tensors{sample({1, 3, 2, 2}), integers({1, 0, 2, 0}, {1, 2, 2})};
     },
     [](In t) -> Out { return at::nll_loss2d(t[0], t[1]); }},
    {"nll_loss_nd",
     [] {
       return Tensors{sample({1, 3, 2, 2}), integers({1, 0, 2, 0}, {1, 2, 2})};
     },
     [](In t) -> Out { return at::nll_loss_nd(t[0], t[1]); }},
    {"poisson_nll_loss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).abs().round()};
     },
     [](In t) -> Out { return at::poisson_nll_loss(t[0], t[1], true, true, 1e-8, at::Reduction::Mean); }},
    {"smooth_l1_loss", two, [](In t) -> Out { return at::smooth_l1_loss(t[0], t[1], at::Reduction::Mean, 0.7); }},
    {"soft_margin_loss",
     [] {
       return Tensors{sample({4, 6}), constant({4, 6}).sign()};
     },
     [](In t) -> Out { return at::soft_margin_loss(t[0], t[1]); }},
    {"triplet_margin_loss", three, [](In t) -> Out { return at::triplet_margin_loss(t[0], t[1], t[2]); }},
};

}  // namespace

std::span<const Case> loss_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
