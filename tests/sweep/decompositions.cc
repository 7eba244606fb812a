// Decompositions, inverses, solvers and functions of matrices.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
#if __has_include(<ATen/ops/cholesky.h>)  // gone since 2.14
    {"cholesky", symmetric, [](In t) -> Out { return at::cholesky(t[0]); }},
#endif
    {"cholesky_inverse", symmetric, [](In t) -> Out { return at::cholesky_inverse(t[0]); }},
    {"cholesky_solve",
     [] {
       return Tensors{sample({5, 2}), leaf(constant({5, 5}).tril() + at::eye(5) * 3)};
     },
     [](In t) -> Out { return at::cholesky_solve(t[0], t[1]); }},
    {"det", regular, [](In t) -> Out { return at::det(t[0]); }},
    {"inverse", regular, [](In t) -> Out { return at::inverse(t[0]); }},
    {"linalg_cholesky", symmetric, [](In t) -> Out { return at::linalg_cholesky(t[0]); }},
    {"linalg_cholesky_ex", symmetric, [](In t) -> Out { return at::linalg_cholesky_ex(t[0]); }},
    {"linalg_cond", regular, [](In t) -> Out { return at::linalg_cond(t[0]); }},
    {"linalg_det", regular, [](In t) -> Out { return at::linalg_det(t[0]); }},
    {"linalg_det/batched",
     [] {
       return Tensors{leaf(constant({2, 3, 3}) + at::eye(3) * 3)};
     },
     [](In t) -> Out { return at::linalg_det(t[0]); }},
    {"linalg_diagonal", square, [](In t) -> Out { return at::linalg_diagonal(t[0]); }, kNothingToReplay},
    {"linalg_eig", regular,
     [](In t) -> Out {
       auto [values, vectors] = at::linalg_eig(t[0]);
       return {{values, vectors.abs()}};
     }},
    {"linalg_eigh", symmetric,
     [](In t) -> Out {
       auto [values, vectors] = at::linalg_eigh(t[0]);
       return {{values, vectors.square()}};
     }},
    {"linalg_eigvals", regular, [](In t) -> Out { return at::linalg_eigvals(t[0]); }},
    {"linalg_eigvalsh", symmetric, [](In t) -> Out { return at::linalg_eigvalsh(t[0]); }},
    {"linalg_householder_product",
     [] {
       return Tensors{sample({5, 3}), sample({3})};
     },
     [](In t) -> Out { return at::linalg_householder_product(t[0], t[1]); }},
    {"linalg_inv", regular, [](In t) -> Out { return at::linalg_inv(t[0]); }},
    {"linalg_inv_ex", regular, [](In t) -> Out { return at::linalg_inv_ex(t[0]); }},
    {"linalg_lstsq",
     [] {
       return Tensors{sample({6, 3}), sample({6, 2})};
     },
     [](In t) -> Out { return std::get<0>(at::linalg_lstsq(t[0], t[1], std::nullopt, "gels")); }},
    {"linalg_lstsq/by_singular_values",
     [] {
       return Tensors{sample({6, 3}), sample({6, 2})};
     },
     [](In t) -> Out { return std::get<0>(at::linalg_lstsq(t[0], t[1], std::nullopt, "gelsd")); }},
    {"linalg_lu", regular, [](In t) -> Out { return at::linalg_lu(t[0]); }},
    {"linalg_lu_factor", regular, [](In t) -> Out { return at::linalg_lu_factor(t[0]); }},
    {"linalg_lu_factor_ex", regular, [](In t) -> Out { return at::linalg_lu_factor_ex(t[0]); }},
    {"linalg_lu_solve",
     [] {
       return Tensors{leaf(constant({5, 5}) + at::eye(5) * 4), integers({1, 2, 3, 4, 5}), sample({5, 2})};
     },
     [](In t) -> Out { return at::linalg_lu_solve(t[0], t[1].to(at::kInt), t[2]); }},
    {"linalg_matrix_exp",
     [] {
       return Tensors{leaf(constant({5, 5}) * 0.2)};
     },
     [](In t) -> Out { return at::linalg_matrix_exp(t[0]); }},
    {"linalg_matrix_norm", square, [](In t) -> Out { return at::linalg_matrix_norm(t[0]); }},
    {"linalg_matrix_norm/nuclear", square, [](In t) -> Out { return at::linalg_matrix_norm(t[0], "nuc"); }},
    {"linalg_norm", square, [](In t) -> Out { return at::linalg_norm(t[0]); }},
    {"linalg_norm/2", square, [](In t) -> Out { return at::linalg_norm(t[0], 2); }},
    {"linalg_pinv", regular, [](In t) -> Out { return at::linalg_pinv(t[0]); }},
    {"linalg_qr", regular, [](In t) -> Out { return at::linalg_qr(t[0]); }},
    {"linalg_slogdet", regular, [](In t) -> Out { return at::linalg_slogdet(t[0]); }},
    {"linalg_solve",
     [] {
       return Tensors{leaf(constant({5, 5}) * 0.3 + at::eye(5) * 3), sample({5, 2})};
     },
     [](In t) -> Out { return at::linalg_solve(t[0], t[1]); }},
    {"linalg_solve_ex",
     [] {
       return Tensors{leaf(constant({5, 5}) * 0.3 + at::eye(5) * 3), sample({5, 2})};
     },
     [](In t) -> Out { return at::linalg_solve_ex(t[0], t[1]); }},
    {"linalg_solve_triangular",
     [] {
       return Tensors{leaf(constant({5, 5}) * 0.3 + at::eye(5) * 3), sample({5, 2})};
     },
     [](In t) -> Out { return at::linalg_solve_triangular(t[0], t[1], true); }},
    {"linalg_svd", regular,
     [](In t) -> Out {
       auto [u, s, v] = at::linalg_svd(t[0]);
       return {{u.abs(), s, v.abs()}};
     }},
    {"linalg_svdvals", regular, [](In t) -> Out { return at::linalg_svdvals(t[0]); }},
    {"linalg_tensorinv",
     [] {
       return Tensors{leaf(constant({2, 2, 4}) + at::eye(4).view({2, 2, 4}) * 3)};
     },
     [](In t) -> Out { return at::linalg_tensorinv(t[0]); }},
    {"linalg_tensorsolve",
     [] {
       return Tensors{leaf(constant({2, 2, 4}) + at::eye(4).view({2, 2, 4}) * 3), sample({2, 2})};
     },
     [](In t) -> Out { return at::linalg_tensorsolve(t[0], t[1]); }},
    {"linalg_vander", vector, [](In t) -> Out { return at::linalg_vander(t[0]); }},
    {"logdet", symmetric, [](In t) -> Out { return at::logdet(t[0]); }},
    {"lu_solve",
     [] {
       return Tensors{sample({5, 2}), leaf(constant({5, 5}) + at::eye(5) * 4), integers({1, 2, 3, 4, 5})};
     },
     [](In t) -> Out { return at::lu_solve(t[0], t[1], t[2].to(at::kInt)); }},
    {"lu_unpack",
     [] {
       return Tensors{leaf(constant({5, 5}) + at::eye(5) * 4), integers({1, 2, 4, 4, 5})};
     },
     [](In t) -> Out { return at::lu_unpack(t[0], t[1].to(at::kInt)); }},
    {"matrix_exp",
     [] {
       return Tensors{leaf(constant({5, 5}) * 0.2)};
     },
     [](In t) -> Out { return at::matrix_exp(t[0]); }},
    {"matrix_power", regular, [](In t) -> Out { return at::matrix_power(t[0], -2); }},
    {"ormqr",
     [] {
       return Tensors{leaf(constant({5, 3})), leaf(constant({3})), leaf(constant({5, 2}))};
     },
     [](In t) -> Out { return at::ormqr(t[0], t[1], t[2]); }},
    {"pinverse",
     [] {
       return Tensors{sample({5, 3})};
     },
     [](In t) -> Out { return at::pinverse(t[0]); }},
#if __has_include(<ATen/ops/qr.h>)  // gone since 2.14
    {"qr", regular, [](In t) -> Out { return at::qr(t[0]); }},
#endif
    {"slogdet", regular, [](In t) -> Out { return at::slogdet(t[0]); }},
    {"svd", regular,
     [](In t) -> Out {
       auto [u, s, v] = at::svd(t[0]);
       return {{u.abs(), s, v.abs()}};
     }},
    {"triangular_solve",
     [] {
       return Tensors{sample({5, 2}), leaf(constant({5, 5}) * 0.3 + at::eye(5) * 3)};
     },
     [](In t) -> Out { return at::triangular_solve(t[0], t[1]); }},
};

}  // namespace

std::span<const Case> decomposition_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
