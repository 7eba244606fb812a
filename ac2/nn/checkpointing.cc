#include "ac2/nn/checkpointing.h"

#include <c10/core/GradMode.h>

namespace ac2::nn {

Checkpointing::Checkpointing(Policy policy, CheckpointOptions options)
    : policy_(std::move(policy)), options_(std::move(options)) {}

Checkpointing::Checkpointing(const Checkpointing& other)
    : policy_(other.policy_), options_(other.options_), on_(other.on_) {}

Checkpointing& Checkpointing::operator=(const Checkpointing& other) {
  policy_ = other.policy_;
  options_ = other.options_;
  on_ = other.on_;
  return *this;
}

std::shared_ptr<const Trace> Checkpointing::last_trace() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_trace_;
}

bool Checkpointing::opens_region(bool is_training) const {
  return on_ && (is_training || !options_.off_in_eval) && (!options_.off_under_no_grad || c10::GradMode::is_enabled());
}

void Checkpointing::remember(std::shared_ptr<const Trace> trace) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The older one is released when `trace` goes, after the lock.
  last_trace_.swap(trace);
}

void Checkpointing::offload(const at::Tensor& input) {
  if (input.defined() && !input.is_inference()) tag_with_policy(input, CheckpointPolicy::MUST_CPU_OFFLOAD);
}

void Checkpointing::save(const at::Tensor& output) {
  // Nothing of inference mode is ever needed by a backward.
  if (output.defined() && !output.is_inference()) tag_with_policy(output, CheckpointPolicy::MUST_SAVE);
}

}  // namespace ac2::nn
