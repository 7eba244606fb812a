// Functions of one tensor, element by element.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"abs", one, [](In t) -> Out { return at::abs(t[0]); }},
    {"acos", unit, [](In t) -> Out { return at::acos(t[0]); }},
    {"acosh", positive, [](In t) -> Out { return at::acosh(t[0]); }},
    {"asin", unit, [](In t) -> Out { return at::asin(t[0]); }},
    {"asinh", one, [](In t) -> Out { return at::asinh(t[0]); }},
    {"atan", one, [](In t) -> Out { return at::atan(t[0]); }},
    {"atanh", unit, [](In t) -> Out { return at::atanh(t[0]); }},
    {"ceil", one, [](In t) -> Out { return at::ceil(t[0]); }, kFlat},
    {"celu", one, [](In t) -> Out { return at::celu(t[0], 0.7); }},
    {"clamp", one, [](In t) -> Out { return at::clamp(t[0], -0.5, 0.8); }},
    {"clamp/tensors", three, [](In t) -> Out { return at::clamp(t[0], t[1], t[2]); }},
    {"clamp_max", one, [](In t) -> Out { return at::clamp_max(t[0], 0.3); }},
    {"clamp_min", one, [](In t) -> Out { return at::clamp_min(t[0], -0.3); }},
    {"cos", one, [](In t) -> Out { return at::cos(t[0]); }},
    {"cosh", one, [](In t) -> Out { return at::cosh(t[0]); }},
    {"deg2rad", one, [](In t) -> Out { return at::deg2rad(t[0]); }},
    {"digamma", positive, [](In t) -> Out { return at::digamma(t[0]); }},
    {"elu", one, [](In t) -> Out { return at::elu(t[0], 0.8); }},
    {"erf", one, [](In t) -> Out { return at::erf(t[0]); }},
    {"erfc", one, [](In t) -> Out { return at::erfc(t[0]); }},
    {"erfinv", unit, [](In t) -> Out { return at::erfinv(t[0]); }},
    {"exp", one, [](In t) -> Out { return at::exp(t[0]); }},
    {"exp2", one, [](In t) -> Out { return at::exp2(t[0]); }},
    {"expm1", one, [](In t) -> Out { return at::expm1(t[0]); }},
    {"fix", one, [](In t) -> Out { return at::fix(t[0]); }, kFlat},
    {"floor", one, [](In t) -> Out { return at::floor(t[0]); }, kFlat},
    {"frac", one, [](In t) -> Out { return at::frac(t[0]); }},
    {"gelu", one, [](In t) -> Out { return at::gelu(t[0]); }},
    {"gelu/tanh", one, [](In t) -> Out { return at::gelu(t[0], "tanh"); }},
    {"glu", one, [](In t) -> Out { return at::glu(t[0], 1); }},
    {"hardshrink", one, [](In t) -> Out { return at::hardshrink(t[0], 0.3); }},
    {"hardsigmoid", one, [](In t) -> Out { return at::hardsigmoid(t[0]); }, kNoSecondDerivative},
    {"hardswish", one, [](In t) -> Out { return at::hardswish(t[0]); }},
    {"hardtanh", one, [](In t) -> Out { return at::hardtanh(t[0], -0.5, 0.5); }},
    {"i0", one, [](In t) -> Out { return at::i0(t[0]); }},
    {"leaky_relu", one, [](In t) -> Out { return at::leaky_relu(t[0], 0.1); }},
    {"lgamma", positive, [](In t) -> Out { return at::lgamma(t[0]); }},
    {"log", positive, [](In t) -> Out { return at::log(t[0]); }},
    {"log/of_negative_numbers", one, [](In t) -> Out { return at::log(t[0]); }},
    {"log10", positive, [](In t) -> Out { return at::log10(t[0]); }},
    {"log1p", positive, [](In t) -> Out { return at::log1p(t[0]); }},
    {"log2", positive, [](In t) -> Out { return at::log2(t[0]); }},
    {"log_sigmoid", one, [](In t) -> Out { return at::log_sigmoid(t[0]); }},
    {"logit", fraction, [](In t) -> Out { return at::logit(t[0]); }},
    {"logit/eps", fraction, [](In t) -> Out { return at::logit(t[0], 0.2); }},
    {"mish", one, [](In t) -> Out { return at::mish(t[0]); }},
    {"mvlgamma",
     [] {
       return Tensors{leaf(constant({4, 6}).abs() + 1.1)};
     },
     [](In t) -> Out { return at::mvlgamma(t[0], 2); }},
    {"nan_to_num",
     [] {
       return Tensors{leaf(constant({4, 6}).log())};
     },
     [](In t) -> Out { return at::nan_to_num(t[0], 0.5); }},
    {"neg", one, [](In t) -> Out { return at::neg(t[0]); }},
    {"polygamma", positive, [](In t) -> Out { return at::polygamma(1, t[0]); }},
    {"positive", one, [](In t) -> Out { return at::positive(t[0]); }, kNothingToReplay},
    {"pow/scalar", one, [](In t) -> Out { return at::pow(t[0], 3); }},
    {"pow/scalar_base", one, [](In t) -> Out { return at::pow(2.5, t[0]); }},
    {"rad2deg", one, [](In t) -> Out { return at::rad2deg(t[0]); }},
    {"reciprocal", one, [](In t) -> Out { return at::reciprocal(t[0]); }},
    {"relu", one, [](In t) -> Out { return at::relu(t[0]); }},
    {"relu6", one, [](In t) -> Out { return at::relu6(t[0]); }},
    {"round", one, [](In t) -> Out { return at::round(t[0]); }, kFlat},
    {"round/decimals", one, [](In t) -> Out { return at::round(t[0], 1); }, kFlat},
    {"rrelu/evaluation", one, [](In t) -> Out { return at::rrelu(t[0], 0.1, 0.3, false); }},
    {"rrelu/training", one, [](In t) -> Out { return at::rrelu(t[0], 0.1, 0.3, true); }},
    {"rsqrt", positive, [](In t) -> Out { return at::rsqrt(t[0]); }},
    {"rsub", one, [](In t) -> Out { return at::rsub(t[0], 1.5); }},
    {"selu", one, [](In t) -> Out { return at::selu(t[0]); }},
    {"sgn", one, [](In t) -> Out { return at::sgn(t[0]); }, kFlat},
    {"sigmoid", one, [](In t) -> Out { return at::sigmoid(t[0]); }},
    {"sign", one, [](In t) -> Out { return at::sign(t[0]); }, kFlat},
    {"silu", one, [](In t) -> Out { return at::silu(t[0]); }},
    {"sin", one, [](In t) -> Out { return at::sin(t[0]); }},
    {"sinc", one, [](In t) -> Out { return at::sinc(t[0]); }},
    {"sinh", one, [](In t) -> Out { return at::sinh(t[0]); }},
    {"softplus", one, [](In t) -> Out { return at::softplus(t[0], 2, 0.5); }},
    {"softshrink", one, [](In t) -> Out { return at::softshrink(t[0], 0.2); }},
    {"special_entr", positive, [](In t) -> Out { return at::special_entr(t[0]); }},
    {"special_erfcx", one, [](In t) -> Out { return at::special_erfcx(t[0]); }},
    {"special_expit", one, [](In t) -> Out { return at::special_expit(t[0]); }},
    {"special_i0e", one, [](In t) -> Out { return at::special_i0e(t[0]); }},
    {"special_i1", one, [](In t) -> Out { return at::special_i1(t[0]); }},
    {"special_i1e", one, [](In t) -> Out { return at::special_i1e(t[0]); }},
    {"special_log_ndtr", one, [](In t) -> Out { return at::special_log_ndtr(t[0]); }},
    {"special_ndtr", one, [](In t) -> Out { return at::special_ndtr(t[0]); }},
    {"special_ndtri", fraction, [](In t) -> Out { return at::special_ndtri(t[0]); }},
    {"sqrt", positive, [](In t) -> Out { return at::sqrt(t[0]); }},
    {"sqrt/of_negative_numbers", one, [](In t) -> Out { return at::sqrt(t[0]); }},
    {"square", one, [](In t) -> Out { return at::square(t[0]); }},
    {"tan", one, [](In t) -> Out { return at::tan(t[0]); }},
    {"tanh", one, [](In t) -> Out { return at::tanh(t[0]); }},
    {"threshold", one, [](In t) -> Out { return at::threshold(t[0], 0.1, 0.2); }},
    {"trunc", one, [](In t) -> Out { return at::trunc(t[0]); }, kFlat},
    // In other types.
    {"exp/double",
     [] {
       return Tensors{sample({4, 6}, at::kDouble)};
     },
     [](In t) -> Out { return at::exp(t[0]); }},
    {"gelu/half",
     [] {
       return Tensors{sample({4, 6}, at::kHalf)};
     },
     [](In t) -> Out { return at::gelu(t[0]); }},
    {"tanh/bfloat16",
     [] {
       return Tensors{sample({4, 6}, at::kBFloat16)};
     },
     [](In t) -> Out { return at::tanh(t[0]); }},
};

}  // namespace

std::span<const Case> pointwise_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
