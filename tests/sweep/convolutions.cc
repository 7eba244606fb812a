// Convolutions, patches, resampling.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"_upsample_bicubic2d_aa", image,
     [](In t) -> Out {
       return at::_upsample_bicubic2d_aa(t[0], {4, 9}, false);
     }},
    {"_upsample_bilinear2d_aa", image,
     [](In t) -> Out {
       return at::_upsample_bilinear2d_aa(t[0], {4, 9}, false);
     }},
    {"_upsample_nearest_exact1d", signal, [](In t) -> Out { return at::_upsample_nearest_exact1d(t[0], {5}); }},
    {"_upsample_nearest_exact2d", image,
     [](In t) -> Out {
       return at::_upsample_nearest_exact2d(t[0], {4, 9});
     }},
    {"_upsample_nearest_exact3d", volume,
     [](In t) -> Out {
       return at::_upsample_nearest_exact3d(t[0], {3, 5, 4});
     }},
    {"affine_grid_generator",
     [] {
       return Tensors{sample({2, 2, 3})};
     },
     [](In t) -> Out {
       return at::affine_grid_generator(t[0], {2, 1, 3, 4}, false);
     }},
    {"col2im",
     [] {
       return Tensors{sample({2, 16, 9})};
     },
     [](In t) -> Out {
       return at::col2im(t[0], {6, 6}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
     }},
    {"conv1d",
     [] {
       return Tensors{sample({2, 3, 8}), sample({5, 3, 3}), sample({5})};
     },
     [](In t) -> Out { return at::conv1d(t[0], t[1], t[2]); }},
    {"conv1d/same",
     [] {
       return Tensors{sample({2, 3, 8}), sample({5, 3, 3}), sample({5})};
     },
     [](In t) -> Out { return at::conv1d(t[0], t[1], t[2], 1, "same"); }},
    {"conv2d",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({5, 4, 3, 3}), sample({5})};
     },
     [](In t) -> Out { return at::conv2d(t[0], t[1], t[2], 2, 1); }},
    {"conv2d/channels_last",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({5, 4, 3, 3}), sample({5})};
     },
     [](In t) -> Out { return at::conv2d(t[0].contiguous(at::MemoryFormat::ChannelsLast), t[1], t[2]); }},
    {"conv2d/depthwise",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4, 1, 3, 3})};
     },
     [](In t) -> Out { return at::conv2d(t[0], t[1], {}, 1, at::IntArrayRef(0), 1, 4); }},
    {"conv2d/dilated",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({5, 4, 2, 2})};
     },
     [](In t) -> Out { return at::conv2d(t[0], t[1], {}, 1, at::IntArrayRef(0), 2); }},
    {"conv3d",
     [] {
       return Tensors{sample({1, 2, 4, 4, 4}), sample({3, 2, 2, 2, 2}), sample({3})};
     },
     [](In t) -> Out { return at::conv3d(t[0], t[1], t[2]); }},
    {"conv_tbc",
     [] {
       return Tensors{sample({6, 2, 3}), sample({3, 3, 4}), sample({4})};
     },
     [](In t) -> Out { return at::conv_tbc(t[0], t[1], t[2], 1); }},
    {"conv_transpose1d",
     [] {
       return Tensors{sample({2, 3, 8}), sample({3, 5, 3}), sample({5})};
     },
     [](In t) -> Out { return at::conv_transpose1d(t[0], t[1], t[2], 2); }},
    {"conv_transpose2d",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4, 3, 3, 3}), sample({3})};
     },
     [](In t) -> Out { return at::conv_transpose2d(t[0], t[1], t[2], 2, 1, 1); }},
    {"conv_transpose3d",
     [] {
       return Tensors{sample({1, 2, 4, 4, 4}), sample({2, 3, 2, 2, 2}), sample({3})};
     },
     [](In t) -> Out { return at::conv_transpose3d(t[0], t[1], t[2]); }},
    {"convolution",
     [] {
       return Tensors{sample({2, 4, 6, 6}), sample({4, 2, 3, 3}), sample({4})};
     },
     [](In t) -> Out {
       return at::convolution(t[0], t[1], t[2], {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 2);
     }},
    {"grid_sampler",
     [] {
       return Tensors{sample({2, 4, 6, 6}), leaf(constant({2, 3, 5, 2}).tanh())};
     },
     [](In t) -> Out { return at::grid_sampler(t[0], t[1], 0, 0, false); }, kNoSecondDerivativeBefore12},
    {"grid_sampler/nearest",
     [] {
       return Tensors{sample({2, 4, 6, 6}), leaf(constant({2, 3, 5, 2}).tanh())};
     },
     [](In t) -> Out { return at::grid_sampler(t[0], t[1], 1, 1, true); }, kNoSecondDerivativeBefore12},
    {"grid_sampler/bicubic",
     [] {
       return Tensors{sample({2, 4, 6, 6}), leaf(constant({2, 3, 5, 2}).tanh())};
     },
     [](In t) -> Out { return at::grid_sampler(t[0], t[1], 2, 2, true); }, kNoSecondDerivativeBefore12},
    {"grid_sampler_3d",
     [] {
       return Tensors{sample({1, 2, 4, 4, 4}), leaf(constant({1, 2, 3, 2, 3}).tanh())};
     },
     [](In t) -> Out { return at::grid_sampler_3d(t[0], t[1], 0, 0, false); }, kNoSecondDerivativeBefore12},
    {"im2col", image,
     [](In t) -> Out {
       return at::im2col(t[0], {3, 3}, {1, 1}, {1, 1}, {2, 2});
     }},
    {"upsample_bicubic2d", image,
     [](In t) -> Out {
       return at::upsample_bicubic2d(t[0], {4, 9}, true);
     }},
    {"upsample_bilinear2d", image,
     [](In t) -> Out {
       return at::upsample_bilinear2d(t[0], {4, 9}, false);
     }},
    {"upsample_linear1d", signal, [](In t) -> Out { return at::upsample_linear1d(t[0], {5}, false); }},
    {"upsample_nearest1d", signal, [](In t) -> Out { return at::upsample_nearest1d(t[0], {5}); }},
    {"upsample_nearest2d", image,
     [](In t) -> Out {
       return at::upsample_nearest2d(t[0], {4, 9});
     }},
    {"upsample_nearest3d", volume,
     [](In t) -> Out {
       return at::upsample_nearest3d(t[0], {3, 5, 4});
     }},
    {"upsample_trilinear3d", volume,
     [](In t) -> Out {
       return at::upsample_trilinear3d(t[0], {3, 5, 4}, false);
     }},
};

}  // namespace

std::span<const Case> convolution_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
