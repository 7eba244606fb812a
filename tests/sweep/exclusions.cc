#include "tests/sweep/exclusions.h"

#include <ostream>

namespace ac2::test::sweep {

namespace {

constexpr Exclusion kExclusions[] = {
    {"_foreach_copy_", "no derivative", Because::kThrows, "is not implemented", two,
     [](In t) -> Out {
       at::_foreach_copy_(Tensors{t[0]}, Tensors{t[1]});
       return t[0];
     }},
    {"aminmax", "no derivative", Because::kThrows, "is not implemented", one,
     [](In t) -> Out { return at::aminmax(t[0], 1); }, 11},
    {"detach_copy", "no derivative", Because::kThrows, "is not implemented", one,
     [](In t) -> Out { return t[0] + at::detach_copy(t[0]); }},
    {"geqrf", "no derivative", Because::kThrows, "is not implemented", square,
     [](In t) -> Out { return at::geqrf(t[0]); }},
    {"heaviside", "no derivative", Because::kThrows, "is not implemented", two,
     [](In t) -> Out { return at::heaviside(t[0], t[1]); }},
    {"histc", "no derivative", Because::kNeedsNoGradient, "", one, [](In t) -> Out { return at::histc(t[0]); }},
    {"igamma, first argument", "no derivative", Because::kThrows, "is not implemented", two_positive,
     [](In t) -> Out { return at::igamma(t[0], t[1]); }},
    {"linalg_ldl_factor", "no derivative", Because::kThrows, "is not implemented", symmetric,
     [](In t) -> Out { return at::linalg_ldl_factor(t[0]); }},
    {"narrow_copy", "no derivative", Because::kThrows, "is not implemented", one,
     [](In t) -> Out { return at::narrow_copy(t[0], 1, 2, 3); }, 11},
    {"nextafter", "no derivative", Because::kThrows, "is not implemented", two,
     [](In t) -> Out { return at::nextafter(t[0], t[1]); }, 11},
    {"scatter, reduce=add", "no derivative", Because::kThrows, "is not implemented",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5, 4, 2}, {2, 3}), constant({2, 3})};
     },
     [](In t) -> Out { return at::scatter(t[0], 1, t[1], t[2], "add"); }},
    {"smm", "no derivative", Because::kThrows, "is not implemented", square,
     [](In t) -> Out { return at::smm(t[0].to_sparse(), t[0]).to_dense(); }},
    {"special_airy_ai", "no derivative", Because::kNeedsNoGradient, "", one,
     [](In t) -> Out { return at::special_airy_ai(t[0]); }},
    {"special_bessel_j0", "no derivative", Because::kNeedsNoGradient, "", one,
     [](In t) -> Out { return at::special_bessel_j0(t[0]); }, 11},
    {"special_chebyshev_polynomial_t", "no derivative", Because::kNeedsNoGradient, "", two,
     [](In t) -> Out { return at::special_chebyshev_polynomial_t(t[0], t[1]); }},
    {"special_zeta, first argument", "no derivative", Because::kThrows, "is not implemented", two_positive,
     [](In t) -> Out { return at::special_zeta(t[0] + 1, t[1]); }},
    {"view_as_complex_copy", "no derivative", Because::kThrows, "does not support automatic differentiation",
     [] {
       return Tensors{sample({4, 6, 2})};
     },
     [](In t) -> Out { return at::view_as_complex_copy(t[0]); }},
    {"sin of a sparse tensor", "its derivative, cos, has no sparse kernel", Because::kThrows,
     "Could not run 'aten::cos'", one, [](In t) -> Out { return t[0].to_sparse().sin().to_dense(); }},
    {"sigmoid of an oneDNN tensor", "its derivative has no oneDNN kernel", Because::kThrows,
     "unsupported tensor layout", image, [](In t) -> Out { return t[0].to_mkldnn().sigmoid().to_dense(); }},
    {"mul_ by itself", "overwrites what its derivative needs", Because::kThrows, "modified by an inplace operation",
     one, [](In t) -> Out { return t[0].mul_(t[0]); }},
    {"vander", "overwrites what its derivative needs", Because::kThrows, "modified by an inplace operation", vector,
     [](In t) -> Out { return at::vander(t[0]); }},
    {"cudnn_convolution", "for GPUs only", Because::kThrows, "Could not run",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({5, 4, 3, 3})};
     },
     [](In t) -> Out {
       return at::cudnn_convolution(t[0], t[1], {0, 0}, {1, 1}, {1, 1}, 1, false, false, false);
     }},
    {"miopen_convolution", "for GPUs only", Because::kThrows, "Could not run",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({5, 4, 3, 3})};
     },
     [](In t) -> Out {
       return at::miopen_convolution(t[0], t[1], {}, {0, 0}, {1, 1}, {1, 1}, 1, false, false);
     }},
    {"_thnn_fused_lstm_cell", "for GPUs only", Because::kThrows, "Could not run",
     [] {
       return Tensors{sample({2, 16}), sample({2, 16}), sample({2, 4})};
     },
     [](In t) -> Out { return at::_thnn_fused_lstm_cell(t[0], t[1], t[2]); }},
    {"empty_like", "its result is what lay in memory", Because::kDiffersFromItself, "", one,
     [](In t) -> Out { return t[0] * at::empty_like(t[0]); }},
    {"linalg_lstsq, driver gelsy", "reads its pivots before anybody wrote them", Because::kDiffersFromItself, "",
     [] {
       return Tensors{sample({6, 3}), sample({6, 2})};
     },
     [](In t) -> Out { return std::get<0>(at::linalg_lstsq(t[0], t[1], std::nullopt, "gelsy")); }, 12},
    {"new_empty", "its result is what lay in memory", Because::kDiffersFromItself, "", one,
     [](In t) -> Out {
       return t[0] * t[0].new_empty({4, 6});
     }},
};

}  // namespace

void PrintTo(const Exclusion& exclusion, std::ostream* out) {
  *out << exclusion.name;
}

std::span<const Exclusion> exclusions() {
  return kExclusions;
}

}  // namespace ac2::test::sweep
