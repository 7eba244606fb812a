#include "ac2/nn/checkpointing.h"

#include <c10/core/GradMode.h>
#include <c10/util/Type.h>

#include <string>
#include <vector>

#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/modules/module_stack.h"

namespace ac2 {

using internal::CalledModule;
using internal::ModuleStack;
using internal::Mutex;
using internal::MutexLock;

ScopeOptions internal::scope_options(const CheckpointOptions& options) {
  return {.memory_budget = options.memory_budget,
          .modelled_costs = options.modelled_costs,
          .verify = options.verify,
          .timeline = options.timeline,
          .offload = options.offload,
          .gather_units = options.gather_units,
          .keep_for_next_backward = options.keep_for_next_backward,
          .forms = options.forms};
}

CheckpointOptions internal::checkpoint_options(ScopeOptions options) {
  return {.memory_budget = std::move(options.memory_budget),
          .modelled_costs = options.modelled_costs,
          .verify = options.verify,
          .timeline = options.timeline,
          .offload = options.offload,
          .gather_units = std::move(options.gather_units),
          .keep_for_next_backward = options.keep_for_next_backward,
          .forms = std::move(options.forms)};
}

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
  const std::string class_name = internal::without_namespaces(c10::demangle(type.name()));
  internal::note_class(class_name);
  module_ = std::make_shared<const CalledModule>(class_name, std::vector<internal::ModuleName>(), nullptr);
}

Checkpointing::InModule::InModule(const Checkpointing& checkpointing) {
  if (checkpointing.module_ != nullptr && internal::are_modules_wanted()) {
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

}  // namespace ac2
