// Fourier transforms and complex numbers.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"fft_fft", one, [](In t) -> Out { return at::fft_fft(t[0]); }},
    {"fft_fft/complex", complex_one, [](In t) -> Out { return at::fft_fft(t[0], 8, 1, "ortho"); }},
    {"fft_fft2", one, [](In t) -> Out { return at::fft_fft2(t[0]); }},
    {"fft_fftn", complex_one, [](In t) -> Out { return at::fft_fftn(t[0]); }},
    {"fft_fftshift", one, [](In t) -> Out { return at::fft_fftshift(t[0]); }},
    {"fft_hfft", complex_one, [](In t) -> Out { return at::fft_hfft(t[0]); }},
    {"fft_hfft2", complex_one, [](In t) -> Out { return at::fft_hfft2(t[0]); }},
    {"fft_hfftn", complex_one, [](In t) -> Out { return at::fft_hfftn(t[0]); }},
    {"fft_ifft", complex_one, [](In t) -> Out { return at::fft_ifft(t[0]); }},
    {"fft_ifft2", complex_one, [](In t) -> Out { return at::fft_ifft2(t[0]); }},
    {"fft_ifftn", complex_one, [](In t) -> Out { return at::fft_ifftn(t[0]); }},
    {"fft_ifftshift", one, [](In t) -> Out { return at::fft_ifftshift(t[0]); }},
    {"fft_ihfft", one, [](In t) -> Out { return at::fft_ihfft(t[0]); }},
    {"fft_ihfft2", one, [](In t) -> Out { return at::fft_ihfft2(t[0]); }},
    {"fft_ihfftn", one, [](In t) -> Out { return at::fft_ihfftn(t[0]); }},
    {"fft_irfft", complex_one, [](In t) -> Out { return at::fft_irfft(t[0]); }},
    {"fft_irfft2", complex_one, [](In t) -> Out { return at::fft_irfft2(t[0]); }},
    {"fft_irfftn", complex_one, [](In t) -> Out { return at::fft_irfftn(t[0]); }},
    {"fft_rfft", one, [](In t) -> Out { return at::fft_rfft(t[0]); }},
    {"fft_rfft2", one, [](In t) -> Out { return at::fft_rfft2(t[0]); }},
    {"fft_rfftn", one, [](In t) -> Out { return at::fft_rfftn(t[0]); }},
    {"istft",
     [] {
       return Tensors{sample({5, 6}, at::kComplexFloat), leaf(at::ones({8})).detach()};
     },
     [](In t) -> Out { return at::istft(t[0], 8, 2, std::nullopt, t[1]); }},
    {"stft",
     [] {
       return Tensors{sample({24}), leaf(at::ones({8})).detach()};
     },
     [](In t) -> Out { return at::stft(t[0], 8, 2, std::nullopt, t[1], true, "reflect", false, true, true); }},
    // Complex numbers.
    {"abs/complex", complex_one, [](In t) -> Out { return at::abs(t[0]); }},
    {"angle", one, [](In t) -> Out { return at::angle(t[0]); }, kFlat},
    {"angle/complex", complex_one, [](In t) -> Out { return at::angle(t[0]); }},
    {"complex", two, [](In t) -> Out { return at::complex(t[0], t[1]); }},
    {"conj", complex_one, [](In t) -> Out { return at::conj(t[0]); }, kNothingToReplay},
    {"conj_physical", complex_one, [](In t) -> Out { return at::conj_physical(t[0]); }},
    {"adjoint", complex_one, [](In t) -> Out { return at::adjoint(t[0]); }, kNothingToReplay},
    {"imag", complex_one, [](In t) -> Out { return at::imag(t[0]); }, kNothingToReplay},
    {"imag/of_a_conjugate", complex_one, [](In t) -> Out { return at::imag(t[0].conj()); }, kNothingToReplay},
    {"polar", two_positive, [](In t) -> Out { return at::polar(t[0], t[1]); }},
    {"real", complex_one, [](In t) -> Out { return at::real(t[0]); }, kNothingToReplay},
    {"resolve_conj", complex_one, [](In t) -> Out { return at::resolve_conj(t[0].conj()); }},
    {"sgn/complex", complex_one, [](In t) -> Out { return at::sgn(t[0]); }},
    {"view_as_complex",
     [] {
       return Tensors{sample({4, 6, 2})};
     },
     [](In t) -> Out { return at::view_as_complex(t[0]); }, kNothingToReplay},
    {"view_as_real", complex_one, [](In t) -> Out { return at::view_as_real(t[0]); }, kNothingToReplay},
    {"view_as_real_copy", complex_one, [](In t) -> Out { return at::view_as_real_copy(t[0]); }},
    {"acos/complex", complex_one, [](In t) -> Out { return at::acos(t[0]); }},
    {"div/complex", complex_two, [](In t) -> Out { return at::div(t[0], t[1]); }},
    {"exp/complex", complex_one, [](In t) -> Out { return at::exp(t[0]); }},
    {"log/complex", complex_one, [](In t) -> Out { return at::log(t[0]); }},
    {"matmul/conjugate",
     [] {
       return Tensors{sample({4, 6}, at::kComplexFloat), sample({4, 3}, at::kComplexFloat)};
     },
     [](In t) -> Out { return at::matmul(t[0].adjoint(), t[1]); }},
    {"mul/complex", complex_two, [](In t) -> Out { return at::mul(t[0], t[1]); }},
    {"mul/complex_and_real",
     [] {
       return Tensors{sample({4, 6}, at::kComplexFloat), sample({4, 6})};
     },
     [](In t) -> Out { return at::mul(t[0], t[1]); }},
    {"pow/complex", complex_two, [](In t) -> Out { return at::pow(t[0], t[1]); }},
    {"prod/complex", complex_one, [](In t) -> Out { return at::prod(t[0], 1); }},
    {"reciprocal/complex", complex_one, [](In t) -> Out { return at::reciprocal(t[0]); }},
    {"sigmoid/complex", complex_one, [](In t) -> Out { return at::sigmoid(t[0]); }},
    {"sqrt/complex", complex_one, [](In t) -> Out { return at::sqrt(t[0]); }},
    {"std/complex", complex_one, [](In t) -> Out { return at::std(t[0], at::OptionalIntArrayRef({1}), true); }},
    {"tanh/complex", complex_one, [](In t) -> Out { return at::tanh(t[0]); }},
    {"linalg_solve/complex",
     [] {
       return Tensors{leaf(constant({3, 3}, at::kComplexFloat) + at::eye(3) * 3), sample({3, 2}, at::kComplexFloat)};
     },
     [](In t) -> Out { return at::linalg_solve(t[0], t[1]); }},
    {"linalg_eigh/complex",
     [] {
       return Tensors{sample({4, 4}, at::kComplexFloat)};
     },
     [](In t) -> Out {
       auto [values, vectors] = at::linalg_eigh(t[0] + t[0].adjoint());
       return {{values, vectors.abs()}};
     }},
};

}  // namespace

std::span<const Case> spectral_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
