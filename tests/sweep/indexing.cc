// Indexing, gathering and scattering.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"gather",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5, 5, 2}, {2, 3})};
     },
     [](In t) -> Out { return at::gather(t[0], 1, t[1]); }},
    {"gather/sparse_gradient",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5, 5, 2}, {2, 3})};
     },
     [](In t) -> Out { return at::gather(t[0], 1, t[1], true); }},
    {"index",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2})};
     },
     [](In t) -> Out { return t[0].index({t[1]}); }},
    {"index/mask", one, [](In t) -> Out { return t[0].index({t[0] > 0.1}); }},
    {"index/two",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), integers({5, 1, 5})};
     },
     [](In t) -> Out {
       return t[0].index({t[1], t[2]});
     }},
    {"index/second",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2})};
     },
     [](In t) -> Out {
       return t[0].index({at::indexing::Slice(1, 3), t[1]});
     }},
    {"index_add",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_add(t[0], 0, t[1], t[2], 0.5); }},
    {"index_copy",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 1}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_copy(t[0], 0, t[1], t[2]); }},
    {"index_fill",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0})};
     },
     [](In t) -> Out { return at::index_fill(t[0], 0, t[1], 0.5); }},
    {"index_fill/tensor",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0}), sample({})};
     },
     [](In t) -> Out { return at::index_fill(t[0], 0, t[1], t[2]); }},
    {"index_put",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 1}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_put(t[0], {t[1]}, t[2]); }},
    {"index_put/accumulate",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_put(t[0], {t[1]}, t[2], true); }},
    {"index_reduce/prod",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_reduce(t[0], 0, t[1], t[2], "prod"); }},
    {"index_reduce/mean",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_reduce(t[0], 0, t[1], t[2], "mean"); }},
    {"index_reduce/amax",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return at::index_reduce(t[0], 0, t[1], t[2], "amax"); }},
    {"index_select",
     [] {
       return Tensors{sample({4, 6}), integers({3, 3, 0})};
     },
     [](In t) -> Out { return at::index_select(t[0], 1, t[1]); }},
    {"masked_fill", one, [](In t) -> Out { return at::masked_fill(t[0], t[0] > 0.2, 0.5); }},
    {"masked_fill/tensor",
     [] {
       return Tensors{sample({4, 6}), sample({})};
     },
     [](In t) -> Out { return at::masked_fill(t[0], t[0] > 0.2, t[1]); }},
    {"masked_scatter", two, [](In t) -> Out { return at::masked_scatter(t[0], t[0] > 0, t[1]); }},
    {"masked_select", one, [](In t) -> Out { return at::masked_select(t[0], t[0] > 0); }},
    {"put",
     [] {
       return Tensors{sample({4, 6}), integers({0, 7}), sample({2})};
     },
     [](In t) -> Out { return at::put(t[0], t[1], t[2]); }},
    {"put/accumulate",
     [] {
       return Tensors{sample({4, 6}), integers({7, 7}), sample({2})};
     },
     [](In t) -> Out { return at::put(t[0], t[1], t[2], true); }},
    {"scatter",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter(t[0], 1, t[1], t[2]); }},
    {"scatter/value",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5, 4, 2}, {2, 3})};
     },
     [](In t) -> Out { return at::scatter(t[0], 1, t[1], 0.5); }},
    {"scatter_add",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter_add(t[0], 1, t[1], t[2]); }},
    {"scatter_reduce/sum",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter_reduce(t[0], 1, t[1], t[2], "sum"); }},
    {"scatter_reduce/prod",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter_reduce(t[0], 1, t[1], t[2], "prod"); }},
    {"scatter_reduce/mean",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter_reduce(t[0], 1, t[1], t[2], "mean"); }},
    {"scatter_reduce/amax",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter_reduce(t[0], 1, t[1], t[2], "amax", false); }},
    {"scatter_reduce/amin",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return at::scatter_reduce(t[0], 1, t[1], t[2], "amin"); }},
    {"select_scatter",
     [] {
       return Tensors{sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::select_scatter(t[0], t[1], 0, 2); }},
    {"slice_scatter",
     [] {
       return Tensors{sample({4, 6}), sample({2, 6})};
     },
     [](In t) -> Out { return at::slice_scatter(t[0], t[1], 0, 1, 3); }},
    {"diagonal_scatter",
     [] {
       return Tensors{sample({4, 6}), sample({4})};
     },
     [](In t) -> Out { return at::diagonal_scatter(t[0], t[1]); }},
    {"as_strided_scatter",
     [] {
       return Tensors{sample({4, 6}), sample({3, 2})};
     },
     [](In t) -> Out {
       return at::as_strided_scatter(t[0], t[1], {3, 2}, {6, 2}, 1);
     }},
    {"take",
     [] {
       return Tensors{sample({4, 6}), integers({3, 9, 3})};
     },
     [](In t) -> Out { return at::take(t[0], t[1]); }},
    {"take_along_dim",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5}, {4, 1})};
     },
     [](In t) -> Out { return at::take_along_dim(t[0], t[1], 1); }},
    {"repeat_interleave",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 2, 1})};
     },
     [](In t) -> Out { return at::repeat_interleave(t[0], t[1], 0); }},
    {"repeat_interleave/number", one, [](In t) -> Out { return at::repeat_interleave(t[0], 2, 1); }},
    {"all/used_as_a_condition", one,
     [](In t) -> Out { return at::where(at::all(t[0] < 0.5, 1, true), t[0] * 2, t[0] * 3); }},
    {"argmax/used_to_gather", one, [](In t) -> Out { return t[0].gather(1, at::argmax(t[0], 1, true)); }},
    {"nonzero/used_to_select", one,
     [](In t) -> Out { return t[0].index_select(0, at::nonzero(t[0] > 1).select(1, 0)); }},
    {"unique/used_as_a_factor", one,
     [](In t) -> Out { return t[0] * std::get<0>(at::_unique(t[0].detach().round())).abs().sum(); }},
    {"argsort/used_to_gather", one, [](In t) -> Out { return t[0].gather(1, t[0].argsort(1, true)); }},
    {"tril", square, [](In t) -> Out { return at::tril(t[0], 1); }},
    {"triu", square, [](In t) -> Out { return at::triu(t[0], -1); }},
};

}  // namespace

std::span<const Case> indexing_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
