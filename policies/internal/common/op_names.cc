#include "policies/internal/common/op_names.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ac2/internal/locks/mutex.h"

namespace ac2::policies::internal {

using ac2::internal::QualifiedName;

namespace {

// Variants that write (out=) do not count: autograd does not take them.
bool is_composite(const std::string& text) {
  const QualifiedName name = ac2::internal::split_name(text);
  bool composite = false;
  for (const std::string& overload : ac2::internal::overloads_of(name.base)) {
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.base.c_str(), overload.c_str());
    if (op.schema().is_mutable() || (name.overload && *name.overload != overload)) {
      continue;
    }
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      return false;
    }
    composite = true;
  }
  return composite;
}

// A warning and not an error: a backend may have a kernel of its own for such an operator, and then the op is seen.
void warn_if_composite(const std::string& caller, const std::string& name) {
  static ac2::internal::Mutex mutex;
  static std::set<std::string> checked ABSL_GUARDED_BY(mutex);
  {
    const ac2::internal::MutexLock lock(mutex);
    if (!checked.insert(name).second) {
      return;
    }
  }
  if (is_composite(name)) {
    TORCH_WARN(caller, ": \"", name,
               "\" is made of other operators, and in training a policy is asked about those, not about it. List them "
               "instead; ac2::to_dot shows what a region recorded.");
  }
}

}  // namespace

OpNameSet OpNameSet::parse(const std::string& caller, const std::vector<std::string>& names) {
  TORCH_CHECK(!names.empty(), caller, " was given no op. Name at least one, such as \"aten::mm\".");
  for (const std::string& name : names) {
    ac2::internal::check_registered(caller, name);
    if (!ac2::internal::is_pattern(name)) {
      warn_if_composite(caller, name);
    }
  }
  return parse_unchecked(names);
}

OpNameSet OpNameSet::parse_unchecked(const std::vector<std::string>& names) {
  OpNameSet set;
  for (const std::string& name : names) {
    set.insert(name);
  }
  return set;
}

void OpNameSet::insert(const std::string& name) {
  QualifiedName parts = ac2::internal::split_name(name);
  if (ac2::internal::is_pattern(name)) {
    patterns_.push_back(std::move(parts));
    return;
  }
  Overloads& overloads = by_base_[parts.base];
  if (parts.overload) {
    overloads.listed.push_back(*std::move(parts.overload));
  } else {
    overloads.all = true;
  }
}

bool OpNameSet::contains(const c10::OperatorName& op) const {
  const auto found = by_base_.find(op.name);
  if (found != by_base_.end()) {
    const Overloads& overloads = found->second;
    if (overloads.all ||
        std::find(overloads.listed.begin(), overloads.listed.end(), op.overload_name) != overloads.listed.end()) {
      return true;
    }
  }
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const QualifiedName& pattern) { return ac2::internal::matches(pattern, op); });
}

}  // namespace ac2::policies::internal
