// A Sequential in segments: all segments but the last run in regions, so that only the tensors between segments are
// held.
//
//   at::Tensor y = ac2::checkpoint_sequential(layers, 4, x);   // four segments
//   at::Tensor y = ac2::checkpoint_sequential(layers, x);      // sqrt_segments(layers->size())
//
// As in torch.utils.checkpoint.checkpoint_sequential, a segment has layers->size() / segments modules, rounded down,
// and the last segment has the rest as well. The last segment is not checkpointed, because its backward comes at once.
// The first module takes a tensor and the last one returns a tensor; between modules values of any type may pass, such
// as the tuple that an LSTM returns.
//
// Threads: those that the modules allow.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "ac2/policy.h"

namespace ac2 {

// Throws c10::Error if `functions` is empty, `segments` is not in 1..functions->size(), or `input` is undefined.
at::Tensor checkpoint_sequential(torch::nn::Sequential functions, int64_t segments, const at::Tensor& input,
                                 Policy policy = "recompute_all");

// In sqrt_segments(functions->size()) segments.
at::Tensor checkpoint_sequential(torch::nn::Sequential functions, const at::Tensor& input,
                                 Policy policy = "recompute_all");

// The number of segments that holds the least if the results of all modules have the same size. This is the smallest s
// in 1..modules that minimises
//   (s - 1) + (modules - (s - 1) * (modules / s)),
// which is what is held between segments plus all of the last segment, the largest one. The number is about the square
// root of `modules` (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174). Throws
// c10::Error if `modules` is less than 1.
int64_t sqrt_segments(int64_t modules);

}  // namespace ac2
