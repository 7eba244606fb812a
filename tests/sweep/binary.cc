// Functions of several tensors, element by element.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"add", two, [](In t) -> Out { return at::add(t[0], t[1], 0.7); }},
    {"add/broadcast", two, [](In t) -> Out { return t[0] + t[1][0]; }},
    {"add/scalar", one, [](In t) -> Out { return t[0] + 1.25; }},
    {"addcdiv",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}), leaf(constant({4, 6}).abs() + 0.5)};
     },
     [](In t) -> Out { return at::addcdiv(t[0], t[1], t[2], 0.3); }},
    {"addcmul", three, [](In t) -> Out { return at::addcmul(t[0], t[1], t[2], 0.3); }},
    {"arctan2", two, [](In t) -> Out { return at::arctan2(t[0], t[1]); }},
    {"atan2", two, [](In t) -> Out { return at::atan2(t[0], t[1]); }},
    {"copysign", two, [](In t) -> Out { return at::copysign(t[0], t[1]); }},
    {"div", two, [](In t) -> Out { return at::div(t[0], t[1]); }},
    {"div/floor", two, [](In t) -> Out { return at::div(t[0], t[1], "floor"); }, kFlat},
    {"div/trunc", two, [](In t) -> Out { return at::div(t[0], t[1], "trunc"); }, kFlat},
    {"div/by_zeros",
     [] {
       return Tensors{sample({4, 6}), leaf(at::zeros({4, 6}))};
     },
     [](In t) -> Out { return at::div(t[0], t[1]); }},
    {"float_power", two_positive, [](In t) -> Out { return at::float_power(t[0], t[1]); }},
    {"fmax", two, [](In t) -> Out { return at::fmax(t[0], t[1]); }},
    {"fmin", two, [](In t) -> Out { return at::fmin(t[0], t[1]); }},
    {"fmod", two, [](In t) -> Out { return at::fmod(t[0], t[1]); }},
    {"fmod/scalar", one, [](In t) -> Out { return at::fmod(t[0], 0.3); }},
    {"hypot", two, [](In t) -> Out { return at::hypot(t[0], t[1]); }},
    {"igamma",
     [] {
       return Tensors{leaf(constant({4, 6}).abs() + 0.5).detach(), leaf(constant({4, 6}).abs() + 0.5)};
     },
     [](In t) -> Out { return at::igamma(t[0], t[1]); }},
    {"igammac",
     [] {
       return Tensors{leaf(constant({4, 6}).abs() + 0.5).detach(), leaf(constant({4, 6}).abs() + 0.5)};
     },
     [](In t) -> Out { return at::igammac(t[0], t[1]); }},
    {"ldexp", two, [](In t) -> Out { return at::ldexp(t[0], t[1]); }},
    {"lerp", two, [](In t) -> Out { return at::lerp(t[0], t[1], 0.3); }},
    {"lerp/tensor", three, [](In t) -> Out { return at::lerp(t[0], t[1], t[2]); }},
    {"logaddexp", two, [](In t) -> Out { return at::logaddexp(t[0], t[1]); }},
    {"logaddexp2", two, [](In t) -> Out { return at::logaddexp2(t[0], t[1]); }},
    {"max/elementwise", two, [](In t) -> Out { return at::max(t[0], t[1]); }},
    {"maximum", two, [](In t) -> Out { return at::maximum(t[0], t[1]); }},
    {"min/elementwise", two, [](In t) -> Out { return at::min(t[0], t[1]); }},
    {"minimum", two, [](In t) -> Out { return at::minimum(t[0], t[1]); }},
    {"mul", two, [](In t) -> Out { return at::mul(t[0], t[1]); }},
    {"mul/scalar", one, [](In t) -> Out { return t[0] * 1.5; }},
    {"multiply", two, [](In t) -> Out { return at::multiply(t[0], t[1]); }},
    {"pow", two_positive, [](In t) -> Out { return at::pow(t[0], t[1]); }},
    {"prelu",
     [] {
       return Tensors{sample({4, 6}), sample({6})};
     },
     [](In t) -> Out { return at::prelu(t[0], t[1]); }},
    {"remainder", two, [](In t) -> Out { return at::remainder(t[0], t[1]); }},
    {"remainder/scalar", one, [](In t) -> Out { return at::remainder(t[0], 0.3); }},
    {"special_xlog1py", two_positive, [](In t) -> Out { return at::special_xlog1py(t[0], t[1]); }},
    {"special_zeta",
     [] {
       return Tensors{leaf(constant({4, 6}).abs() + 1.5).detach(), leaf(constant({4, 6}).abs() + 0.5)};
     },
     [](In t) -> Out { return at::special_zeta(t[0], t[1]); }},
    {"sub", two, [](In t) -> Out { return at::sub(t[0], t[1], 0.7); }},
    {"subtract", two, [](In t) -> Out { return at::subtract(t[0], t[1]); }},
    {"true_divide", two, [](In t) -> Out { return at::true_divide(t[0], t[1]); }},
    {"where", two, [](In t) -> Out { return at::where(t[0] > t[1], t[0], t[1]); }},
    {"where/scalar", one, [](In t) -> Out { return at::where(t[0] > 0.2, t[0], 0.1); }},
    {"xlogy", two_positive, [](In t) -> Out { return at::xlogy(t[0], t[1]); }},
    {"mul/of_two_types",
     [] {
       return Tensors{sample({4, 6}), sample({4, 6}, at::kDouble)};
     },
     [](In t) -> Out { return at::mul(t[0], t[1]); }},
    {"mul/with_a_number",
     [] {
       return Tensors{sample({4, 6}), sample({}, at::kDouble)};
     },
     [](In t) -> Out { return at::mul(t[0], t[1]); }},
    {"add/of_a_transpose",
     [] {
       return Tensors{sample({4, 6}), sample({6, 4})};
     },
     [](In t) -> Out { return at::add(t[0], t[1].t()); }},
};

}  // namespace

std::span<const Case> binary_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
