// Reductions, scans, sorting and statistics.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"linalg_vector_norm/inf", one, [](In t) -> Out { return at::linalg_vector_norm(t[0], INFINITY); }},
    {"amax", one, [](In t) -> Out { return at::amax(t[0], {1}); }},
    {"amin", one, [](In t) -> Out { return at::amin(t[0], {0}, true); }},
    {"cdist", two, [](In t) -> Out { return at::cdist(t[0], t[1]); }, kNoSecondDerivativeBefore14},
    {"cdist/p1", two, [](In t) -> Out { return at::cdist(t[0], t[1], 1); }, kNoSecondDerivativeBefore14},
    {"corrcoef", one, [](In t) -> Out { return at::corrcoef(t[0]); }},
    {"cosine_similarity", two, [](In t) -> Out { return at::cosine_similarity(t[0], t[1]); }},
    {"cov", one, [](In t) -> Out { return at::cov(t[0]); }},
    {"cummax", one, [](In t) -> Out { return at::cummax(t[0], 1); }},
    {"cummin", one, [](In t) -> Out { return at::cummin(t[0], 1); }},
    {"cumprod", one, [](In t) -> Out { return at::cumprod(t[0], 1); }},
    {"cumsum", one, [](In t) -> Out { return at::cumsum(t[0], 1); }},
    {"cumulative_trapezoid", one, [](In t) -> Out { return at::cumulative_trapezoid(t[0], 0.5); }},
    {"diff", one, [](In t) -> Out { return at::diff(t[0], 2); }},
    {"dist", two, [](In t) -> Out { return at::dist(t[0], t[1], 3); }},
    {"frobenius_norm", one, [](In t) -> Out { return at::frobenius_norm(t[0], {1}); }},
    {"gradient", one, [](In t) -> Out { return at::gradient(t[0], std::optional<at::Scalar>(0.5)); }},
    {"kthvalue", one, [](In t) -> Out { return at::kthvalue(t[0], 2, 1); }},
    {"linalg_vector_norm", one,
     [](In t) -> Out { return at::linalg_vector_norm(t[0], 3, at::OptionalIntArrayRef({1})); }},
    {"logcumsumexp", one, [](In t) -> Out { return at::logcumsumexp(t[0], 1); }},
    {"logsumexp", one, [](In t) -> Out { return at::logsumexp(t[0], {1}); }},
    {"max", one, [](In t) -> Out { return at::max(t[0]); }},
    {"max/dim", one, [](In t) -> Out { return at::max(t[0], 1); }},
    {"mean", one, [](In t) -> Out { return at::mean(t[0]); }},
    {"mean/dim", one, [](In t) -> Out { return at::mean(t[0], {0}, true); }},
    {"median", one, [](In t) -> Out { return at::median(t[0]); }},
    {"median/dim", one, [](In t) -> Out { return at::median(t[0], 1); }},
    {"min", one, [](In t) -> Out { return at::min(t[0]); }},
    {"min/dim", one, [](In t) -> Out { return at::min(t[0], 1); }},
    {"mode",
     [] {
       return Tensors{leaf(constant({4, 6}).round())};
     },
     [](In t) -> Out { return at::mode(t[0], 1); }},
    {"msort", one, [](In t) -> Out { return at::msort(t[0]); }},
    {"nanmean",
     [] {
       return Tensors{leaf(constant({4, 6}).log())};
     },
     [](In t) -> Out { return at::nanmean(t[0], {1}); }},
    {"nanmedian",
     [] {
       return Tensors{leaf(constant({4, 6}).log())};
     },
     [](In t) -> Out { return at::nanmedian(t[0], 1); }},
    {"nanquantile", one, [](In t) -> Out { return at::nanquantile(t[0], 0.3, 1); }},
    {"nansum",
     [] {
       return Tensors{leaf(constant({4, 6}).log())};
     },
     [](In t) -> Out { return at::nansum(t[0], {1}); }},
    {"norm", one, [](In t) -> Out { return at::norm(t[0], 2, 1); }},
    {"norm/p3", one, [](In t) -> Out { return at::norm(t[0], 3); }},
    {"nuclear_norm", one, [](In t) -> Out { return at::nuclear_norm(t[0]); }},
    {"pairwise_distance", two, [](In t) -> Out { return at::pairwise_distance(t[0], t[1]); }},
    {"pdist", one, [](In t) -> Out { return at::pdist(t[0]); }, kNoSecondDerivativeBefore14},
    {"prod", one, [](In t) -> Out { return at::prod(t[0]); }},
    {"prod/dim", one, [](In t) -> Out { return at::prod(t[0], 1); }},
    {"prod/with_a_zero",
     [] {
       return Tensors{leaf(constant({4, 6}).round())};
     },
     [](In t) -> Out { return at::prod(t[0], 1); }},
    {"quantile", one, [](In t) -> Out { return at::quantile(t[0], 0.3, 1); }},
    {"renorm", one, [](In t) -> Out { return at::renorm(t[0], 2, 0, 1.5); }},
    {"segment_reduce",
     [] {
       return Tensors{sample({6, 2}), integers({2, 3, 1})};
     },
     [](In t) -> Out { return at::segment_reduce(t[0], "mean", t[1]); }, kNoSecondDerivative},
    {"sort", one, [](In t) -> Out { return at::sort(t[0], 1); }},
    {"sort/stable",
     [] {
       return Tensors{leaf(constant({4, 6}).round())};
     },
     [](In t) -> Out { return at::sort(t[0], true, 1, true); }},
    {"std", one, [](In t) -> Out { return at::std(t[0], at::OptionalIntArrayRef({1}), true); }},
    {"std_mean", one, [](In t) -> Out { return at::std_mean(t[0], 1); }},
    {"sum", one, [](In t) -> Out { return at::sum(t[0]); }},
    {"sum/dim", one, [](In t) -> Out { return at::sum(t[0], {0}); }},
    {"sum/double", one, [](In t) -> Out { return at::sum(t[0], {0}, false, at::kDouble); }},
    {"topk", one, [](In t) -> Out { return at::topk(t[0], 3, 1); }},
    {"trace", square, [](In t) -> Out { return at::trace(t[0]); }},
    {"trapezoid", one, [](In t) -> Out { return at::trapezoid(t[0], 0.5); }},
    {"trapezoid/x", two, [](In t) -> Out { return at::trapezoid(t[0], t[1]); }},
    {"var", one, [](In t) -> Out { return at::var(t[0], at::OptionalIntArrayRef({0}), true); }},
    {"var_mean", one, [](In t) -> Out { return at::var_mean(t[0], 1); }},
    {"sum_to_size", one,
     [](In t) -> Out {
       return t[0].sum_to_size({1, 6});
     }},
    {"special_logsumexp", one, [](In t) -> Out { return at::special_logsumexp(t[0], {0}); }},
    {"mean/of_nothing",
     [] {
       return Tensors{sample({0, 6})};
     },
     [](In t) -> Out { return at::mean(t[0], {0}); }, kZeroGradient},
    {"max/ties",
     [] {
       return Tensors{leaf(constant({4, 6}).round())};
     },
     [](In t) -> Out { return at::amax(t[0], {1}); }},
};

}  // namespace

std::span<const Case> reduction_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
