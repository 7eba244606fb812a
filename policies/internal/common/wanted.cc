#include "policies/internal/common/wanted.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/nearest_names.h"
#include "ac2/policy_instance.h"
#include "policies/internal/common/first_backward.h"
#include "policies/internal/common/op_names.h"

namespace ac2::policies::internal {

namespace {

class Wanted final : public FirstBackward {
 public:
  struct Words {
    std::string caller;
    const char* kind;      // "name", "op"
    const char* happened;  // what nothing of the entries did
    const char* there;     // begins the list of what there was
    const char* nothing;   // where there was none
  };

  Wanted(Words words, std::vector<std::string> entries, Complain complain)
      : words_(std::move(words)), entries_(std::move(entries)), complain_(complain), came_(entries_.size(), false) {}

  // Something had the name. `matches(i)` says whether the entry i means it.
  void saw(const std::string& name, const std::function<bool(size_t)>& matches) {
    if (is_over()) {
      return;
    }
    const ac2::internal::MutexLock lock(mutex_);
    if (!there_.insert(name).second) {
      return;
    }
    for (size_t i = 0; i < entries_.size(); ++i) {
      came_[i] = came_[i] || matches(i);
    }
    if (std::all_of(came_.begin(), came_.end(), [](bool came) { return came; }) ||
        (complain_ == Complain::kIfNoneCame && std::find(came_.begin(), came_.end(), true) != came_.end())) {
      end();
    }
  }

 private:
  std::string complaint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    std::vector<std::string> missing;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!came_[i]) {
        missing.push_back(entries_[i]);
      }
    }
    std::set<std::string> near;
    for (const std::string& entry : missing) {
      for (std::string& name : ac2::internal::nearest_names(entry, there_, std::max<size_t>(2, entry.size() / 4))) {
        near.insert(std::move(name));
      }
    }
    return absl::StrCat(words_.caller, " decided for nothing by the ", words_.kind, missing.size() == 1 ? " " : "s ",
                        list_of(missing), ": ", words_.happened, " until the end of the first backward. ",
                        near.empty() ? "" : absl::StrCat("Is ", list_of(near), " meant? "),
                        there_.empty() ? words_.nothing : absl::StrCat(words_.there, list_of(there_), "."));
  }

  const Words words_;
  const std::vector<std::string> entries_;
  const Complain complain_;
  std::vector<bool> came_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> there_ ABSL_GUARDED_BY(mutex_);
};

// The operators that run in a region that has entered the policy.
class RegionWithOps {
 public:
  explicit RegionWithOps(std::shared_ptr<Wanted> wanted) : region_(std::move(wanted)) {}

  // `op` runs. One call at a time, as a region asks its policy.
  void saw(const c10::OperatorHandle& op, const std::vector<OpNameSet>& entries) {
    if (!region_.seen().is_over() && seen_.insert(&op.operator_name()).second) {
      region_.seen().saw(c10::toString(op.operator_name()),
                         [&](size_t i) { return entries[i].contains(op.operator_name()); });
    }
  }

 private:
  const WatchedRegion<Wanted> region_;
  absl::flat_hash_set<const c10::OperatorName*> seen_;
};

}  // namespace

Policy watch_names(Policy policy, std::string caller, const std::vector<std::string>& names) {
  if (names.empty()) {
    return policy;
  }
  auto wanted =
      std::make_shared<Wanted>(Wanted::Words{.caller = std::move(caller),
                                             .kind = "name",
                                             .happened = "name_tensor() gave no tensor such a name in its regions",
                                             .there = "The names that it gave are ",
                                             .nothing = "It gave no name at all."},
                               names, Complain::kOfEach);
  return policy_per_region([policy = std::move(policy), wanted, names] {
    PolicyInstance instance = enter_policy(policy);
    instance.by_name = [region = std::make_shared<const WatchedRegion<Wanted>>(wanted), names,
                        by_name = std::move(instance.by_name)](const NamedTensor& tensor) {
      region->seen().saw(std::string(tensor.name), [&](size_t i) { return names[i] == tensor.name; });
      return by_name(tensor);
    };
    return instance;
  });
}

Policy watch_ops(Policy policy, std::string caller, const std::vector<std::string>& ops, Complain complain) {
  auto wanted = std::make_shared<Wanted>(Wanted::Words{.caller = std::move(caller),
                                                       .kind = "op",
                                                       .happened = "no such op ran in its regions",
                                                       .there = "The ops that ran are ",
                                                       .nothing = "No op ran there at all."},
                                         ops, complain);
  std::vector<OpNameSet> entries;
  entries.reserve(ops.size());
  for (const std::string& op : ops) {
    entries.push_back(OpNameSet::parse_unchecked({op}));
  }
  return policy_per_region([policy = std::move(policy), wanted,
                            entries = std::make_shared<const std::vector<OpNameSet>>(std::move(entries))] {
    PolicyInstance instance = enter_policy(policy);
    const auto region = std::make_shared<RegionWithOps>(wanted);
    if (instance.fn) {
      instance.fn = [region, entries, fn = std::move(instance.fn)](const OpContext& op) {
        region->saw(op.op(), *entries);
        return fn(op);
      };
    } else if (instance.by_operator) {
      instance.by_operator = [region, entries,
                              by_operator = std::move(instance.by_operator)](const c10::OperatorHandle& op) {
        region->saw(op, *entries);
        return by_operator(op);
      };
    }
    return instance;
  });
}

}  // namespace ac2::policies::internal
