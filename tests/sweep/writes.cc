// Functions that write: in place, through a view, and into out=.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"add_", two, [](In t) -> Out { return t[0].add_(t[1], 0.7); }, kWritesAnInput},
    {"addcdiv_",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), leaf(constant({4, 6}).abs() + 0.5)};
     },
     [](In t) -> Out { return t[0].addcdiv_(t[1], t[2]); }, kWritesAnInput},
    {"addcmul_", three, [](In t) -> Out { return t[0].addcmul_(t[1], t[2]); }, kWritesAnInput},
    {"addmm_",
     [] {
       return Tensors{sample({4, 6}), sample({4, 5}), sample({5, 6})};
     },
     [](In t) -> Out { return t[0].addmm_(t[1], t[2]); }, kWritesAnInput},
    {"baddbmm_",
     [] {
       return Tensors{sample({2, 4, 6}), sample({2, 4, 5}), sample({2, 5, 6})};
     },
     [](In t) -> Out { return t[0].baddbmm_(t[1], t[2]); }, kWritesAnInput},
    {"bernoulli_", one, [](In t) -> Out { return t[0] * at::empty_like(t[0]).bernoulli_(0.4); }},
    {"celu_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::celu_(x);
     },
     kWritesAnInput},
    {"clamp_", one, [](In t) -> Out { return t[0].clamp_(-0.5, 0.5); }, kWritesAnInput},
    {"copy_", two, [](In t) -> Out { return t[0].copy_(t[1]); }},
    {"copy_/broadcast",
     [] {
       return Tensors{sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return t[0].copy_(t[1]); }},
    {"cos_", one, [](In t) -> Out { return t[0].cos_(); }, kWritesAnInput},
    {"cumsum_", one, [](In t) -> Out { return t[0].cumsum_(1); }, kWritesAnInput},
    {"div_", two, [](In t) -> Out { return t[0].div_(t[1]); }, kWritesAnInput},
    {"dropout_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::dropout_(x, 0.4, true);
     },
     kWritesAnInput},
    {"elu_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::elu_(x);
     },
     kWritesAnInput},
    {"exp_", one, [](In t) -> Out { return t[0].exp_(); }, kWritesAnInput},
    {"exponential_", one, [](In t) -> Out { return t[0] * at::empty_like(t[0]).exponential_(); }},
    {"fill_",
     [] {
       return Tensors{sample({4, 6}), sample({})};
     },
     [](In t) -> Out { return t[0].fill_(t[1]); }},
    {"fill_diagonal_", square, [](In t) -> Out { return t[0].fill_diagonal_(0.5); }, kWritesAnInput},
    {"index_add_",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return t[0].index_add_(0, t[1], t[2]); }, kWritesAnInput},
    {"index_copy_",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 1}), sample({3, 6})};
     },
     [](In t) -> Out { return t[0].index_copy_(0, t[1], t[2]); }, kWritesAnInput},
    {"index_fill_",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0})};
     },
     [](In t) -> Out { return t[0].index_fill_(0, t[1], 0.5); }, kWritesAnInput},
    {"index_put_",
     [] {
       return Tensors{sample({4, 6}), integers({2, 0, 2}), sample({3, 6})};
     },
     [](In t) -> Out { return t[0].index_put_({t[1]}, t[2], true); }, kWritesAnInput},
    {"leaky_relu_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::leaky_relu_(x, 0.1);
     },
     kWritesAnInput},
    {"lerp_", two, [](In t) -> Out { return t[0].lerp_(t[1], 0.3); }, kWritesAnInput},
    {"log_", positive, [](In t) -> Out { return t[0].log_(); }, kWritesAnInput},
    {"masked_fill_", one, [](In t) -> Out { return t[0].masked_fill_(t[0].detach() > 0.2, 0.5); }, kWritesAnInput},
    {"masked_scatter_", two, [](In t) -> Out { return t[0].masked_scatter_(t[0].detach() > 0, t[1]); }, kWritesAnInput},
    {"mul_", two, [](In t) -> Out { return t[0].mul_(t[1]); }, kWritesAnInput},
    {"normal_", one, [](In t) -> Out { return t[0] * at::empty_like(t[0]).normal_(); }},
    {"pow_", one, [](In t) -> Out { return t[0].pow_(3); }, kWritesAnInput},
    {"put_",
     [] {
       return Tensors{sample({4, 6}), integers({0, 7}), sample({2})};
     },
     [](In t) -> Out { return t[0].put_(t[1], t[2]); }, kWritesAnInput},
    {"relu_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::relu_(x);
     },
     kWritesAnInput},
    {"renorm_", one, [](In t) -> Out { return t[0].renorm_(2, 0, 1.5); }, kWritesAnInput},
    {"rrelu_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::rrelu_(x, 0.1, 0.3, true);
     },
     kWritesAnInput},
    {"scatter_",
     [] {
       return Tensors{sample({4, 6}), integers({1, 0, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return t[0].scatter_(1, t[1], t[2]); }, kWritesAnInput},
    {"scatter_add_",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return t[0].scatter_add_(1, t[1], t[2]); }, kWritesAnInput},
    {"scatter_reduce_",
     [] {
       return Tensors{sample({4, 6}), integers({1, 1, 3, 5, 4, 2}, {2, 3}), sample({2, 3})};
     },
     [](In t) -> Out { return t[0].scatter_reduce_(1, t[1], t[2], "prod"); }, kWritesAnInput},
    {"sigmoid_", one, [](In t) -> Out { return t[0].sigmoid_(); }, kWritesAnInput},
    {"silu_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::silu_(x);
     },
     kWritesAnInput},
    {"sin_", one, [](In t) -> Out { return t[0].sin_(); }, kWritesAnInput},
    {"sqrt_", positive, [](In t) -> Out { return t[0].sqrt_(); }, kWritesAnInput},
    {"squeeze_",
     [] {
       return Tensors{sample({4, 1, 6})};
     },
     [](In t) -> Out { return t[0].squeeze_(1); }, kNothingToReplay},
    {"sub_", two, [](In t) -> Out { return t[0].sub_(t[1]); }, kWritesAnInput},
    {"t_", one, [](In t) -> Out { return t[0].t_(); }, kNothingToReplay},
    {"tanh_", one, [](In t) -> Out { return t[0].tanh_(); }, kWritesAnInput},
    {"threshold_", one,
     [](In t) -> Out {
       at::Tensor x = t[0];
       return at::threshold_(x, 0.1, 0.2);
     },
     kWritesAnInput},
    {"tril_", square, [](In t) -> Out { return t[0].tril_(); }, kWritesAnInput},
    {"uniform_", one, [](In t) -> Out { return t[0] * at::empty_like(t[0]).uniform_(-1, 1); }},
    {"unsqueeze_", one, [](In t) -> Out { return t[0].unsqueeze_(1); }, kNothingToReplay},
    {"zero_", one, [](In t) -> Out { return t[0].mul(2).sin().add_(t[0].clone().zero_()); }},
    // Through a view, whose base is then used, and in a base, whose view is.
    {"add_/through_a_row", two,
     [](In t) -> Out {
       t[0][1].add_(t[1][2]);
       return t[0];
     },
     kWritesAnInput},
    {"mul_/through_a_transpose",
     [] {
       return Tensors{sample({4, 6}), sample({6, 4})};
     },
     [](In t) -> Out {
       t[0].t().mul_(t[1]);
       return t[0];
     },
     kWritesAnInput},
    {"exp_/of_a_base", one,
     [](In t) -> Out {
       const at::Tensor row = t[0][1];
       t[0].exp_();
       return t[0] * row;
     }},
    {"copy_/into_a_slice",
     [] {
       return Tensors{sample({4, 6}), sample({4, 3})};
     },
     [](In t) -> Out {
       t[0].slice(1, 1, 4).copy_(t[1]);
       return t[0];
     },
     kWritesAnInput},
    {"sigmoid_/twice", one, [](In t) -> Out { return t[0].sigmoid_().mul(2).sigmoid_(); }, kWritesAnInput},
    // Results into given memory. Autograd refuses this for inputs that require gradients.
    {"add_out", two,
     [](In t) -> Out {
       at::Tensor out = at::empty({4, 6});
       at::add_out(out, t[0].detach(), t[1].detach());
       return t[0] * out;
     }},
    {"bmm_out",
     [] {
       return Tensors{sample({2, 4, 4}), sample({2, 4, 4})};
     },
     [](In t) -> Out {
       at::Tensor out = at::empty({2, 4, 4});
       at::bmm_out(out, t[0].detach(), t[1].detach());
       return t[0] * out;
     }},
    {"cat_out", two,
     [](In t) -> Out {
       at::Tensor out = at::empty({0});
       at::cat_out(out, {t[0].detach(), t[1].detach()}, 1);
       return out.slice(1, 0, 6) * t[0];
     }},
    {"cumsum_out", one,
     [](In t) -> Out {
       at::Tensor out = at::empty({4, 6});
       at::cumsum_out(out, t[0].detach(), 1);
       return t[0] * out;
     }},
    {"exp_out", one,
     [](In t) -> Out {
       at::Tensor out = at::empty({4, 6});
       at::exp_out(out, t[0].detach());
       return t[0] * out;
     }},
    {"index_select_out",
     [] {
       return Tensors{sample({4, 6}), integers({3, 3, 0, 1})};
     },
     [](In t) -> Out {
       at::Tensor out = at::empty({4, 6});
       at::index_select_out(out, t[0].detach(), 0, t[1]);
       return t[0] * out;
     }},
    {"linalg_inv_out", regular,
     [](In t) -> Out {
       at::Tensor out = at::empty({5, 5});
       at::linalg_inv_out(out, t[0].detach());
       return t[0] * out;
     }},
    {"max_out", one,
     [](In t) -> Out {
       at::Tensor values = at::empty({4}), places = at::empty({4}, at::kLong);
       at::max_out(values, places, t[0].detach(), 1);
       return t[0].t() * values;
     }},
    {"mm_out", square,
     [](In t) -> Out {
       at::Tensor out = at::empty({5, 5});
       at::mm_out(out, t[0].detach(), t[0].detach());
       return t[0] * out;
     }},
    {"mul_out/its_own_input", one,
     [](In t) -> Out {
       at::Tensor out = t[0].detach().clone();
       at::mul_out(out, out, t[0].detach());
       return t[0] * out;
     }},
    {"mul_out/a_slice", one,
     [](In t) -> Out {
       at::Tensor whole = at::zeros({8, 6});
       at::Tensor out = whole.slice(0, 2, 6);
       at::mul_out(out, t[0].detach(), t[0].detach());
       return t[0].repeat({2, 1}) * whole;
     }},
    {"sort_out", one,
     [](In t) -> Out {
       at::Tensor values = at::empty({0}), places = at::empty({0}, at::kLong);
       at::sort_out(values, places, t[0].detach(), 1);
       return t[0] * values;
     }},
    {"sum_out", one,
     [](In t) -> Out {
       at::Tensor out = at::empty({6});
       at::sum_out(out, t[0].detach(), {0});
       return t[0] * out;
     }},
    {"where_out", two,
     [](In t) -> Out {
       at::Tensor out = at::empty({4, 6});
       at::where_out(out, t[0] > 0, t[0].detach(), t[1].detach());
       return t[0] * out;
     }},
};

}  // namespace

std::span<const Case> write_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
