// Products of matrices and vectors.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"addbmm",
     [] {
       return Tensors{sample({4, 6}), sample({2, 4, 5}), sample({2, 5, 6})};
     },
     [](In t) -> Out { return at::addbmm(t[0], t[1], t[2], 0.5, 2); }},
    {"addmm",
     [] {
       return Tensors{sample({4, 6}), sample({4, 5}), sample({5, 6})};
     },
     [](In t) -> Out { return at::addmm(t[0], t[1], t[2], 0.5, 2); }},
    {"addmm/bias",
     [] {
       return Tensors{sample({6}), sample({4, 5}), sample({5, 6})};
     },
     [](In t) -> Out { return at::addmm(t[0], t[1], t[2]); }},
    {"addmv",
     [] {
       return Tensors{sample({4}), sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::addmv(t[0], t[1], t[2], 0.5, 2); }},
    {"addr",
     [] {
       return Tensors{sample({4, 6}), sample({4}), sample({6})};
     },
     [](In t) -> Out { return at::addr(t[0], t[1], t[2]); }},
    {"baddbmm",
     [] {
       return Tensors{sample({2, 4, 6}), sample({2, 4, 5}), sample({2, 5, 6})};
     },
     [](In t) -> Out { return at::baddbmm(t[0], t[1], t[2], 0.5, 2); }},
    {"bilinear",
     [] {
       return Tensors{sample({4, 3}), sample({4, 5}), sample({2, 3, 5}), sample({2})};
     },
     [](In t) -> Out { return at::bilinear(t[0], t[1], t[2], t[3]); }},
    {"bmm",
     [] {
       return Tensors{sample({2, 4, 5}), sample({2, 5, 6})};
     },
     [](In t) -> Out { return at::bmm(t[0], t[1]); }},
    {"chain_matmul",
     [] {
       return Tensors{sample({4, 6}), sample({6, 3}), sample({3, 5})};
     },
     [](In t) -> Out { return at::chain_matmul(t); }},
    {"dot", vectors, [](In t) -> Out { return at::dot(t[0], t[1]); }},
    {"einsum",
     [] {
       return Tensors{sample({4, 6}), sample({6, 3})};
     },
     [](In t) -> Out { return at::einsum("ij,jk->ki", t); }},
    {"einsum/batched",
     [] {
       return Tensors{sample({2, 4, 5}), sample({2, 4, 3})};
     },
     [](In t) -> Out { return at::einsum("bij,bik->bjk", t); }},
    {"ger", vectors, [](In t) -> Out { return at::ger(t[0], t[1]); }},
    {"inner", two, [](In t) -> Out { return at::inner(t[0], t[1]); }},
    {"kron",
     [] {
       return Tensors{sample({2, 3}), sample({3, 2})};
     },
     [](In t) -> Out { return at::kron(t[0], t[1]); }},
    {"linalg_cross",
     [] {
       return Tensors{sample({4, 3}), sample({4, 3})};
     },
     [](In t) -> Out { return at::linalg_cross(t[0], t[1]); }},
    {"linalg_matmul",
     [] {
       return Tensors{sample({4, 6}), sample({6, 3})};
     },
     [](In t) -> Out { return at::linalg_matmul(t[0], t[1]); }},
    {"linalg_matrix_power", square, [](In t) -> Out { return at::linalg_matrix_power(t[0], 3); }},
    {"linalg_multi_dot",
     [] {
       return Tensors{sample({4, 6}), sample({6, 3}), sample({3, 5})};
     },
     [](In t) -> Out { return at::linalg_multi_dot(t); }},
    {"linalg_vecdot", two, [](In t) -> Out { return at::linalg_vecdot(t[0], t[1]); }},
    {"linear",
     [] {
       return Tensors{sample({4, 6}), sample({3, 6}), sample({3})};
     },
     [](In t) -> Out { return at::linear(t[0], t[1], t[2]); }},
    {"linear/batched",
     [] {
       return Tensors{sample({2, 4, 6}), sample({3, 6}), sample({3})};
     },
     [](In t) -> Out { return at::linear(t[0], t[1], t[2]); }},
    {"matmul",
     [] {
       return Tensors{sample({4, 6}), sample({6, 3})};
     },
     [](In t) -> Out { return at::matmul(t[0], t[1]); }},
    {"matmul/batched",
     [] {
       return Tensors{sample({2, 4, 6}), sample({6, 3})};
     },
     [](In t) -> Out { return at::matmul(t[0], t[1]); }},
    {"matmul/vector",
     [] {
       return Tensors{sample({2, 4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::matmul(t[0], t[1]); }},
    {"mm",
     [] {
       return Tensors{sample({4, 6}), sample({6, 3})};
     },
     [](In t) -> Out { return at::mm(t[0], t[1]); }},
    {"mm/double",
     [] {
       return Tensors{sample({4, 6}, at::kDouble), sample({6, 3}, at::kDouble)};
     },
     [](In t) -> Out { return at::mm(t[0], t[1]); }},
    {"mm/bfloat16",
     [] {
       return Tensors{sample({4, 6}, at::kBFloat16), sample({6, 3}, at::kBFloat16)};
     },
     [](In t) -> Out { return at::mm(t[0], t[1]); }},
    {"mv",
     [] {
       return Tensors{sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::mv(t[0], t[1]); }},
    {"outer", vectors, [](In t) -> Out { return at::outer(t[0], t[1]); }},
    {"tensordot",
     [] {
       return Tensors{sample({2, 4, 5}), sample({4, 5, 3})};
     },
     [](In t) -> Out {
       return at::tensordot(t[0], t[1], {1, 2}, {0, 1});
     }},
    {"vdot", vectors, [](In t) -> Out { return at::vdot(t[0], t[1]); }},
    {"_trilinear",
     [] {
       return Tensors{sample({4, 3}), sample({2, 3, 5}), sample({4, 5})};
     },
     [](In t) -> Out {
       return at::_trilinear(t[0], t[1], t[2], {1, 3}, {0}, {1, 2}, {2, 3});
     }},
    {"cross",
     [] {
       return Tensors{sample({4, 3}), sample({4, 3})};
     },
     [](In t) -> Out { return at::cross(t[0], t[1], 1); }},
};

}  // namespace

std::span<const Case> linalg_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
