// A Sequential in segments: all but the last run in regions, so that only the tensors between them are kept.
//
//   at::Tensor y = ac2::checkpoint_sequential(layers, 4, x);   // four segments
//   at::Tensor y = ac2::checkpoint_sequential(layers, x);      // sqrt_segments(layers->size())
//
// As torch.utils.checkpoint.checkpoint_sequential: a segment has layers->size() / segments modules, rounded down, and
// the last one has the rest as well. It is not checkpointed, because its backward comes at once.
// What passes between modules may be of any type (the tuple that an LSTM returns); the first takes a tensor and the
// last returns one.
//
// Threads: as the modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "ac2/policy.h"

namespace ac2::nn {

// Throws c10::Error if `functions` is empty, `segments` is not in 1..functions->size(), or `input` is undefined.
at::Tensor checkpoint_sequential(torch::nn::Sequential functions, int64_t segments, const at::Tensor& input,
                                 Policy policy = "recompute_all");

// In sqrt_segments(functions->size()) segments.
at::Tensor checkpoint_sequential(torch::nn::Sequential functions, const at::Tensor& input,
                                 Policy policy = "recompute_all");

// How many segments hold the least, if every module's results are as large: the s in 1..modules with the least
//   (s - 1) + (modules - (s - 1) * (modules / s)),
// that is, what is kept between segments, and all of the last segment, the largest. About the square root of `modules`
// (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174); the smallest s where several
// do. Throws c10::Error if `modules` is less than 1.
int64_t sqrt_segments(int64_t modules);

}  // namespace ac2::nn

namespace ac2 {
using nn::checkpoint_sequential;
}
