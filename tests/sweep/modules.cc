// Modules of torch::nn: convolutions, normalisation, pooling, activations.
#include "tests/sweep/modules.h"

namespace ac2::test::sweep {

namespace {

namespace nn = torch::nn;

constexpr Case kCases[] = {
    {"nn::AdaptiveAvgPool2d", image,
     [](In t) -> Out {
       return call<nn::AdaptiveAvgPool2d>(t, nn::AdaptiveAvgPool2dOptions({2, 3}));
     }},
    {"nn::AdaptiveMaxPool2d", image,
     [](In t) -> Out {
       return call<nn::AdaptiveMaxPool2d>(t, nn::AdaptiveMaxPool2dOptions({2, 3}));
     }},
    {"nn::AlphaDropout", one, [](In t) -> Out { return call<nn::AlphaDropout>(t, 0.3); }},
    {"nn::AvgPool2d", image, [](In t) -> Out { return call<nn::AvgPool2d>(t, 2); }},
    {"nn::BatchNorm1d",
     [] {
       return Tensors{sample({6, 3})};
     },
     [](In t) -> Out { return call<nn::BatchNorm1d>(t, 3); }},
    {"nn::BatchNorm2d", image, [](In t) -> Out { return call<nn::BatchNorm2d>(t, 4); }},
    {"nn::BatchNorm2d/evaluation", image,
     [](In t) -> Out {
       auto m = built<nn::BatchNorm2d>(4);
       m->eval();
       return trained(*m, {m->forward(t[0])});
     }},
    {"nn::BatchNorm3d", volume, [](In t) -> Out { return call<nn::BatchNorm3d>(t, 2); }},
    {"nn::Bilinear",
     [] {
       return Tensors{sample({4, 3}), sample({4, 5})};
     },
     [](In t) -> Out { return call_two<nn::Bilinear>(t, nn::BilinearOptions(3, 5, 2)); }},
    {"nn::CELU", one, [](In t) -> Out { return call<nn::CELU>(t); }},
    {"nn::ConstantPad2d", image,
     [](In t) -> Out {
       return call<nn::ConstantPad2d>(t, nn::ConstantPad2dOptions({1, 2, 0, 1}, 0.5));
     }},
    {"nn::Conv1d", signal,
     [](In t) -> Out {
       return call<nn::Conv1d>(t, nn::Conv1dOptions(3, 4, 3).padding_mode(torch::kCircular).padding(1));
     }},
    {"nn::Conv2d", image,
     [](In t) -> Out { return call<nn::Conv2d>(t, nn::Conv2dOptions(4, 6, 3).groups(2).stride(2)); }},
    {"nn::Conv3d", volume, [](In t) -> Out { return call<nn::Conv3d>(t, nn::Conv3dOptions(2, 3, 2)); }},
    {"nn::ConvTranspose1d", signal,
     [](In t) -> Out { return call<nn::ConvTranspose1d>(t, nn::ConvTranspose1dOptions(3, 4, 3).stride(2)); }},
    {"nn::ConvTranspose2d", image,
     [](In t) -> Out { return call<nn::ConvTranspose2d>(t, nn::ConvTranspose2dOptions(4, 3, 2)); }},
    {"nn::Dropout", one, [](In t) -> Out { return call<nn::Dropout>(t, 0.4); }},
    {"nn::Dropout/in_place", one,
     [](In t) -> Out { return call<nn::Dropout>(t, nn::DropoutOptions(0.4).inplace(true)); }, kWritesAnInput},
    {"nn::Dropout2d", image, [](In t) -> Out { return call<nn::Dropout2d>(t, 0.4); }},
    {"nn::ELU/in_place", one, [](In t) -> Out { return call<nn::ELU>(t, nn::ELUOptions().inplace(true)); },
     kWritesAnInput},
    {"nn::FeatureAlphaDropout", image, [](In t) -> Out { return call<nn::FeatureAlphaDropout>(t, 0.4); }},
    {"nn::Fold",
     [] {
       return Tensors{sample({2, 16, 9})};
     },
     [](In t) -> Out {
       return call<nn::Fold>(t, nn::FoldOptions({6, 6}, {2, 2}).stride(2));
     }},
    {"nn::GELU", one, [](In t) -> Out { return call<nn::GELU>(t); }},
    {"nn::GLU", one, [](In t) -> Out { return call<nn::GLU>(t); }},
    {"nn::GroupNorm", image, [](In t) -> Out { return call<nn::GroupNorm>(t, nn::GroupNormOptions(2, 4)); }},
    {"nn::Hardtanh/in_place", one,
     [](In t) -> Out { return call<nn::Hardtanh>(t, nn::HardtanhOptions().inplace(true)); }, kWritesAnInput},
    {"nn::InstanceNorm2d", image,
     [](In t) -> Out {
       return call<nn::InstanceNorm2d>(t, nn::InstanceNorm2dOptions(4).affine(true).track_running_stats(true));
     }},
    {"nn::LPPool2d", image, [](In t) -> Out { return call<nn::LPPool2d>(t, nn::LPPool2dOptions(2, 2)); }},
    {"nn::LayerNorm", one, [](In t) -> Out { return call<nn::LayerNorm>(t, nn::LayerNormOptions({6})); }},
    {"nn::LeakyReLU/in_place", one,
     [](In t) -> Out { return call<nn::LeakyReLU>(t, nn::LeakyReLUOptions().inplace(true)); }, kWritesAnInput},
    {"nn::Linear", one, [](In t) -> Out { return call<nn::Linear>(t, 6, 3); }},
    {"nn::LocalResponseNorm", image,
     [](In t) -> Out { return call<nn::LocalResponseNorm>(t, nn::LocalResponseNormOptions(2)); }},
    {"nn::LogSoftmax", one, [](In t) -> Out { return call<nn::LogSoftmax>(t, 1); }},
    {"nn::MaxPool2d", image, [](In t) -> Out { return call<nn::MaxPool2d>(t, 2); }},
    {"nn::MaxPool3d", volume, [](In t) -> Out { return call<nn::MaxPool3d>(t, 2); }},
    {"nn::Mish", one, [](In t) -> Out { return call<nn::Mish>(t); }},
    {"nn::PReLU", one, [](In t) -> Out { return call<nn::PReLU>(t, nn::PReLUOptions().num_parameters(6)); }},
    {"nn::PixelShuffle", image, [](In t) -> Out { return call<nn::PixelShuffle>(t, nn::PixelShuffleOptions(2)); }},
    {"nn::RReLU", one, [](In t) -> Out { return call<nn::RReLU>(t); }},
    {"nn::ReLU/in_place", one, [](In t) -> Out { return call<nn::ReLU>(t, nn::ReLUOptions(true)); }, kWritesAnInput},
    {"nn::ReflectionPad2d", image,
     [](In t) -> Out {
       return call<nn::ReflectionPad2d>(t, nn::ReflectionPad2dOptions({1, 2, 0, 1}));
     }},
    {"nn::SELU/in_place", one, [](In t) -> Out { return call<nn::SELU>(t, nn::SELUOptions().inplace(true)); },
     kWritesAnInput},
    {"nn::SiLU", one, [](In t) -> Out { return call<nn::SiLU>(t); }},
    {"nn::Softmax2d", image, [](In t) -> Out { return call<nn::Softmax2d>(t); }},
    {"nn::Softplus", one, [](In t) -> Out { return call<nn::Softplus>(t); }},
    {"nn::Softsign", one, [](In t) -> Out { return call<nn::Softsign>(t); }},
    {"nn::Tanhshrink", one, [](In t) -> Out { return call<nn::Tanhshrink>(t); }},
    {"nn::Threshold/in_place", one,
     [](In t) -> Out { return call<nn::Threshold>(t, nn::ThresholdOptions(0.1, 0.2).inplace(true)); }, kWritesAnInput},
    {"nn::Unfold", image,
     [](In t) -> Out {
       return call<nn::Unfold>(t, nn::UnfoldOptions({3, 3}).padding(1));
     }},
    {"nn::Upsample", image,
     [](In t) -> Out {
       return call<nn::Upsample>(
           t,
           nn::UpsampleOptions().scale_factor(std::vector<double>{1.5, 2}).mode(torch::kBilinear).align_corners(false));
     }},
    {"nn::ZeroPad2d", image,
     [](In t) -> Out {
       return call<nn::ZeroPad2d>(t, nn::ZeroPad2dOptions({1, 2, 0, 1}));
     }},
};

}  // namespace

std::span<const Case> module_cases() {
  return kCases;
}

}  // namespace ac2::test::sweep
