// Functions of lists.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"_foreach_abs", two, [](In t) -> Out { return at::_foreach_abs(t); }},
    {"_foreach_add", three,
     [](In t) -> Out {
       return at::_foreach_add({t[0], t[1]}, {t[1], t[2]}, 0.5);
     }},
    {"_foreach_add/scalar", two, [](In t) -> Out { return at::_foreach_add(t, 1.5); }},
    {"_foreach_add_", three,
     [](In t) -> Out {
       at::_foreach_add_({t[0], t[1]}, {t[1], t[2]});
       return t;
     },
     kWritesAnInput},
    {"_foreach_addcdiv",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), leaf(constant({4, 6}).abs() + 0.5)};
     },
     [](In t) -> Out {
       return at::_foreach_addcdiv({t[0], t[1]}, {t[1], t[0]}, {t[2], t[2]}, 0.5);
     }},
    {"_foreach_addcmul", three,
     [](In t) -> Out {
       return at::_foreach_addcmul({t[0], t[1]}, {t[1], t[0]}, {t[2], t[2]}, 0.5);
     }},
    {"_foreach_addcmul_", three,
     [](In t) -> Out {
       at::_foreach_addcmul_({t[0]}, {t[1]}, {t[2]});
       return t[0];
     },
     kWritesAnInput},
    {"_foreach_atan", two, [](In t) -> Out { return at::_foreach_atan(t); }},
    {"_foreach_ceil", two, [](In t) -> Out { return at::_foreach_ceil(t); }, kFlat},
    {"_foreach_clamp_max", two, [](In t) -> Out { return at::_foreach_clamp_max(t, 0.5); }},
    {"_foreach_clamp_min", two, [](In t) -> Out { return at::_foreach_clamp_min({t[0]}, {t[1]}); }},
    {"_foreach_copy_", two,
     [](In t) -> Out {
       const Tensors copies{t[0].detach().clone()};
       at::_foreach_copy_(copies, Tensors{t[1].detach()});
       return t[0] * copies[0];
     }},
    {"_foreach_cos", two, [](In t) -> Out { return at::_foreach_cos(t); }},
    {"_foreach_cosh", two, [](In t) -> Out { return at::_foreach_cosh(t); }},
    {"_foreach_div", two, [](In t) -> Out { return at::_foreach_div(Tensors{t[0]}, Tensors{t[1]}); }},
    {"_foreach_erf", two, [](In t) -> Out { return at::_foreach_erf(t); }},
    {"_foreach_erfc", two, [](In t) -> Out { return at::_foreach_erfc(t); }},
    {"_foreach_exp", two, [](In t) -> Out { return at::_foreach_exp(t); }},
    {"_foreach_exp_", two,
     [](In t) -> Out {
       at::_foreach_exp_(t);
       return t;
     },
     kWritesAnInput},
    {"_foreach_expm1", two, [](In t) -> Out { return at::_foreach_expm1(t); }},
    {"_foreach_frac", two, [](In t) -> Out { return at::_foreach_frac(t); }},
    {"_foreach_lerp", three, [](In t) -> Out { return at::_foreach_lerp({t[0]}, {t[1]}, {t[2]}); }},
    {"_foreach_lerp/scalar", two, [](In t) -> Out { return at::_foreach_lerp({t[0]}, {t[1]}, 0.3); }},
    {"_foreach_lgamma", two_positive, [](In t) -> Out { return at::_foreach_lgamma(t); }},
    {"_foreach_log", two_positive, [](In t) -> Out { return at::_foreach_log(t); }},
    {"_foreach_log1p", two_positive, [](In t) -> Out { return at::_foreach_log1p(t); }},
    {"_foreach_max", two, [](In t) -> Out { return at::_foreach_max(t); }},
    {"_foreach_maximum", two, [](In t) -> Out { return at::_foreach_maximum({t[0]}, {t[1]}); }},
    {"_foreach_minimum", two, [](In t) -> Out { return at::_foreach_minimum({t[0]}, {t[1]}); }},
    {"_foreach_mul", two,
     [](In t) -> Out {
       return at::_foreach_mul({t[0], t[1]}, {t[1], t[0]});
     }},
    {"_foreach_mul_", two,
     [](In t) -> Out {
       at::_foreach_mul_(Tensors{t[0]}, Tensors{t[1]});
       return t[0];
     },
     kWritesAnInput},
    {"_foreach_neg", two, [](In t) -> Out { return at::_foreach_neg(t); }},
    {"_foreach_norm", two, [](In t) -> Out { return at::_foreach_norm(t); }},
    {"_foreach_pow", two_positive, [](In t) -> Out { return at::_foreach_pow({t[0]}, {t[1]}); }},
    {"_foreach_pow/scalar", two, [](In t) -> Out { return at::_foreach_pow(t, 3); }},
    {"_foreach_reciprocal", two_positive, [](In t) -> Out { return at::_foreach_reciprocal(t); }},
    {"_foreach_rsqrt", two_positive, [](In t) -> Out { return at::_foreach_rsqrt(t); }},
    {"_foreach_sigmoid", two, [](In t) -> Out { return at::_foreach_sigmoid(t); }},
    {"_foreach_sin", two, [](In t) -> Out { return at::_foreach_sin(t); }},
    {"_foreach_sinh", two, [](In t) -> Out { return at::_foreach_sinh(t); }},
    {"_foreach_sqrt", two_positive, [](In t) -> Out { return at::_foreach_sqrt(t); }},
    {"_foreach_sub", two, [](In t) -> Out { return at::_foreach_sub({t[0]}, {t[1]}); }},
    {"_foreach_tan", two, [](In t) -> Out { return at::_foreach_tan(t); }},
    {"_foreach_tanh", two, [](In t) -> Out { return at::_foreach_tanh(t); }},
    {"_foreach_zero_", two,
     [](In t) -> Out {
       Tensors copies{t[0].clone(), t[1].clone()};
       at::_foreach_zero_({copies[0]});
       return {{t[0] * 2 + copies[0], t[1] * copies[1]}};
     }},
};

}  // namespace

std::span<const Case> foreach_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
