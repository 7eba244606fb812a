// Pooling.
#include "tests/sweep/case.h"

namespace ac2::test::sweep {

namespace {

constexpr Case kCases[] = {
    {"adaptive_avg_pool1d", signal, [](In t) -> Out { return at::adaptive_avg_pool1d(t[0], {3}); }},
    {"adaptive_avg_pool2d", image,
     [](In t) -> Out {
       return at::adaptive_avg_pool2d(t[0], {2, 3});
     }},
    {"adaptive_avg_pool3d", volume,
     [](In t) -> Out {
       return at::adaptive_avg_pool3d(t[0], {2, 3, 2});
     }},
    {"adaptive_max_pool1d", signal, [](In t) -> Out { return at::adaptive_max_pool1d(t[0], {3}); }},
    {"adaptive_max_pool2d", image,
     [](In t) -> Out {
       return at::adaptive_max_pool2d(t[0], {2, 3});
     }},
    {"adaptive_max_pool3d", volume,
     [](In t) -> Out {
       return at::adaptive_max_pool3d(t[0], {2, 3, 2});
     }},
    {"avg_pool1d", signal, [](In t) -> Out { return at::avg_pool1d(t[0], {3}, {2}, {1}); }},
    {"avg_pool2d", image,
     [](In t) -> Out {
       return at::avg_pool2d(t[0], {2, 2}, {1, 1}, {1, 1}, false, false);
     }},
    {"avg_pool3d", volume,
     [](In t) -> Out {
       return at::avg_pool3d(t[0], {2, 2, 2});
     }},
    {"fractional_max_pool2d",
     [] {
       return Tensors{sample({2, 4, 6, 6}), constant({2, 4, 2}).sigmoid()};
     },
     [](In t) -> Out {
       return at::fractional_max_pool2d(t[0], {2, 2}, {3, 3}, t[1]);
     }},
    {"fractional_max_pool3d",
     [] {
       return Tensors{sample({1, 2, 4, 4, 4}), constant({1, 2, 3}).sigmoid()};
     },
     [](In t) -> Out {
       return at::fractional_max_pool3d(t[0], {2, 2, 2}, {2, 2, 2}, t[1]);
     }},
    {"max_pool1d", signal, [](In t) -> Out { return at::max_pool1d(t[0], {2}); }, kHeldWithoutGradients},
    {"max_pool1d_with_indices", signal, [](In t) -> Out { return at::max_pool1d_with_indices(t[0], {2}); }},
    {"max_pool2d", image,
     [](In t) -> Out {
       return at::max_pool2d(t[0], {2, 2}, {1, 1}, {1, 1});
     }},
    {"max_pool2d_with_indices", image,
     [](In t) -> Out {
       return at::max_pool2d_with_indices(t[0], {2, 2});
     }},
    {"max_pool3d", volume,
     [](In t) -> Out {
       return at::max_pool3d(t[0], {2, 2, 2});
     }},
    {"max_pool3d_with_indices", volume,
     [](In t) -> Out {
       return at::max_pool3d_with_indices(t[0], {2, 2, 2});
     }},
    {"max_unpool2d",
     [] {
       return Tensors{sample({1, 2, 2, 2}), integers({0, 3, 9, 10, 1, 6, 12, 15}, {1, 2, 2, 2})};
     },
     [](In t) -> Out {
       return at::max_unpool2d(t[0], t[1], {4, 4});
     }},
    {"max_unpool3d",
     [] {
       return Tensors{sample({1, 1, 1, 2, 2}), integers({0, 3, 9, 31}, {1, 1, 1, 2, 2})};
     },
     [](In t) -> Out {
       return at::max_unpool3d(t[0], t[1], {2, 4, 4}, {2, 2, 2}, {0, 0, 0});
     }},
};

}  // namespace

std::span<const Case> pooling_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
