#include "ac2/internal/libtorch/op_environment.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <algorithm>
#include <array>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/locks/fork_locks.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ac2::internal {

namespace {

struct Switch {
  bool (at::Context::*get)() const;
  void (at::Context::*set)(bool);
};

// The switches that all versions of LibTorch have in this form.
constexpr std::array kSwitches = {
    Switch{&at::Context::deterministicFillUninitializedMemory, &at::Context::setDeterministicFillUninitializedMemory},
    Switch{&at::Context::userEnabledCuDNN, &at::Context::setUserEnabledCuDNN},
    Switch{&at::Context::benchmarkCuDNN, &at::Context::setBenchmarkCuDNN},
    Switch{&at::Context::deterministicCuDNN, &at::Context::setDeterministicCuDNN},
    Switch{&at::Context::userEnabledMkldnn, &at::Context::setUserEnabledMkldnn},
    Switch{&at::Context::deterministicMkldnn, &at::Context::setDeterministicMkldnn},
    Switch{&at::Context::userEnabledNNPACK, &at::Context::setUserEnabledNNPACK},
    Switch{&at::Context::userEnabledFlashSDP, &at::Context::setSDPUseFlash},
    Switch{&at::Context::userEnabledMemEfficientSDP, &at::Context::setSDPUseMemEfficient},
    Switch{&at::Context::userEnabledMathSDP, &at::Context::setSDPUseMath},
    Switch{&at::Context::userEnabledCuDNNSDP, &at::Context::setSDPUseCuDNN},
    Switch{&at::Context::userEnabledOverrideableSDP, &at::Context::setSDPUseOverrideable},
    Switch{&at::Context::allowFP16BF16ReductionMathSDP, &at::Context::setAllowFP16BF16ReductionMathSDP},
    Switch{&at::Context::allowFP16AccumulationCuBLAS, &at::Context::setAllowFP16AccumulationCuBLAS},
    Switch{&at::Context::allowFP16ReductionCPU, &at::Context::setAllowFP16ReductionCPU},
};
// These two are set together. The bits after them are those of reduced_precision_of_cublas().
constexpr uint32_t kDeterministic = 1U << kSwitches.size();
constexpr uint32_t kWarnOnly = kDeterministic << 1U;
constexpr size_t kReducedPrecisionShift = kSwitches.size() + 2;

bool flushes_denormals() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  return (_mm_getcsr() & kFlushToZero) != 0;
#elif defined(__aarch64__)
  constexpr uint64_t kFlushToZero = uint64_t{1} << 24U;
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return (control & kFlushToZero) != 0;
#else
  return false;
#endif
}

uint32_t switches_here() {
  const at::Context& context = at::globalContext();
  uint32_t switches = 0;
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    switches |= (context.*kSwitches[i].get)() ? 1U << i : 0;
  }
  switches |= context.deterministicAlgorithms() ? kDeterministic : 0;
  switches |= context.deterministicAlgorithmsWarnOnly() ? kWarnOnly : 0;
  return switches | reduced_precision_of_cublas() << kReducedPrecisionShift;
}

void set_switches(uint32_t switches, uint32_t now) {
  at::Context& context = at::globalContext();
  const uint32_t differ = switches ^ now;
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    if ((differ & (1U << i)) != 0) {
      (context.*kSwitches[i].set)((switches & (1U << i)) != 0);
    }
  }
  if ((differ & (kDeterministic | kWarnOnly)) != 0) {
    context.setDeterministicAlgorithms((switches & kDeterministic) != 0, (switches & kWarnOnly) != 0);
  }
  if (differ >> kReducedPrecisionShift != 0) {
    set_reduced_precision_of_cublas(switches >> kReducedPrecisionShift);
  }
}

void set_of_process(const OpEnvironment& environment, const OpEnvironment& now) {
  if (environment.default_dtype != now.default_dtype) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(environment.default_dtype));
  }
  if (environment.switches != now.switches) {
    set_switches(environment.switches, now.switches);
  }
  if (environment.threads != now.threads) {
    at::set_num_threads(environment.threads);
  }
  if (environment.precisions != now.precisions) {
    set_float32_precisions(environment.precisions);
  }
}

// Shared by replays that find the process as their ops need it, and held alone by one that changes it.
SharedMutex& process_mutex() {
  static auto& mutex = ForkLocks::make_first<SharedMutex>();
  return mutex;
}

}  // namespace

OpEnvironment OpEnvironment::here(Reach reach) {
  OpEnvironment here;
  here.default_dtype = c10::get_default_dtype_as_scalartype();
  here.flushes_denormals = internal::flushes_denormals();
  here.grad_mode = c10::AutogradState::get_tls_state().get_grad_mode();
  here.reach = reach;
  if (reach != Reach::kDtype) {
    here.switches = switches_here();
    here.threads = at::get_num_threads();
  }
  if (reach == Reach::kPrecision) {
    here.precisions = float32_precisions();
  }
  return here;
}

InEnvironment::InEnvironment(const OpEnvironment& environment, bool may_wait)
    : grad_mode_(environment.grad_mode), flushed_denormals_(flushes_denormals()) {
  if (flushed_denormals_ != environment.flushes_denormals) {
    at::Context::setFlushDenormal(environment.flushes_denormals);
  }
  if (may_wait) {
    beside_others_ = std::shared_lock(process_mutex());
  }
  OpEnvironment now = OpEnvironment::here(environment.reach);
  if (now.is_same_process_as(environment)) {
    return;
  }
  if (may_wait) {
    beside_others_.unlock();
    alone_ = std::unique_lock(process_mutex());
    now = OpEnvironment::here(environment.reach);
  }
  set_of_process(environment, now);
  before_ = now;
}

InEnvironment::~InEnvironment() {
  if (before_) {
    set_of_process(*before_, OpEnvironment::here(before_->reach));
  }
  if (flushes_denormals() != flushed_denormals_) {
    at::Context::setFlushDenormal(flushed_denormals_);
  }
}

const OpEnvironment* EnvironmentTable::find_or_add(const OpEnvironment& environment) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& known) { return *known == environment; });
  if (found != all_.end()) {
    return found->get();
  }
  return all_.emplace_back(std::make_unique<const OpEnvironment>(environment)).get();
}

}  // namespace ac2::internal
