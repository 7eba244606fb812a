#include "ac2/nn/checkpointing.h"

#include <c10/core/GradMode.h>
#include <c10/util/Type.h>

#include <string>
#include <vector>

#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/modules/module_stack.h"

namespace ac2::nn {

using ac2::internal::CalledModule;
using ac2::internal::ModuleStack;
using ac2::internal::Mutex;
using ac2::internal::MutexLock;

struct Checkpointing::LastTrace {
  Mutex mutex;
  std::shared_ptr<const Trace> trace ABSL_GUARDED_BY(mutex);
};

Checkpointing::Checkpointing(Policy policy, CheckpointOptions options)
    : policy_(std::move(policy)), options_(std::move(options)), last_trace_(std::make_unique<LastTrace>()) {}

Checkpointing::~Checkpointing() = default;

Checkpointing::Checkpointing(const Checkpointing& other)
    : policy_(other.policy_),
      options_(other.options_),
      on_(other.on_),
      module_(other.module_),
      last_trace_(std::make_unique<LastTrace>()) {}

Checkpointing& Checkpointing::operator=(const Checkpointing& other) {
  policy_ = other.policy_;
  options_ = other.options_;
  on_ = other.on_;
  module_ = other.module_;
  return *this;
}

void Checkpointing::set_class(const std::type_info& type) {
  const std::string class_name = ac2::internal::without_namespaces(c10::demangle(type.name()));
  ac2::internal::note_class(class_name);
  module_ = std::make_shared<const CalledModule>(class_name, std::vector<ac2::internal::ModuleName>(), nullptr);
}

Checkpointing::InModule::InModule(const Checkpointing& checkpointing) {
  if (checkpointing.module_ != nullptr && ac2::internal::are_modules_wanted()) {
    depth_ = ModuleStack::here().enter(checkpointing.module_);
    entered_ = true;
  }
}

Checkpointing::InModule::~InModule() {
  if (entered_) {
    ModuleStack::here().leave(depth_);
  }
}

std::shared_ptr<const Trace> Checkpointing::last_trace() const {
  const MutexLock lock(last_trace_->mutex);
  return last_trace_->trace;
}

bool Checkpointing::opens_region(bool is_training) const {
  return on_ && (is_training || !options_.off_in_eval) && (!options_.off_under_no_grad || c10::GradMode::is_enabled());
}

void Checkpointing::remember(std::shared_ptr<const Trace> trace) {
  const MutexLock lock(last_trace_->mutex);
  // The older one is released when `trace` goes, after the lock.
  last_trace_->trace.swap(trace);
}

void Checkpointing::offload(const at::Tensor& input) {
  if (input.defined() && !input.is_inference()) tag_with_policy(input, CheckpointPolicy::MUST_CPU_OFFLOAD);
}

void Checkpointing::save(const at::Tensor& output) {
  // Nothing of inference mode is ever needed by a backward.
  if (output.defined() && !output.is_inference()) tag_with_policy(output, CheckpointPolicy::MUST_SAVE);
}

}  // namespace ac2::nn
