#include "policies/internal/common/wanted.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/after_backward.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/nearest_names.h"
#include "ac2/policy_instance.h"
#include "policies/internal/common/op_names.h"

namespace ac2::policies::internal {

namespace {

constexpr size_t kMostNamed = 12;

std::string quoted(const std::string& name) {
  return absl::StrCat("\"", name, "\"");
}

template <class Names>
std::string list_of(const Names& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kMostNamed) {
      shown.push_back(absl::StrCat("and ", names.size() - kMostNamed, " more"));
      break;
    }
    shown.push_back(quoted(name));
  }
  return absl::StrJoin(shown, ", ");
}

// Whether nobody has said the text in this process.
bool is_news(const std::string& text) {
  static auto* mutex = new ac2::internal::Mutex;
  static auto* said ABSL_PT_GUARDED_BY(*mutex) = new std::set<std::string>;
  const ac2::internal::MutexLock lock(*mutex);
  return said->insert(text).second || c10::WarningUtils::get_warnAlways();
}

class Wanted : public std::enable_shared_from_this<Wanted> {
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

  void region_begins() {
    const ac2::internal::MutexLock lock(mutex_);
    ++open_;
  }
  void region_ends() {
    {
      const ac2::internal::MutexLock lock(mutex_);
      if (--open_ > 0 || waits_ || is_over()) {
        return;
      }
      waits_ = true;
    }
    // Keeps this alive: most programs give a policy to a scope and keep none themselves.
    ac2::internal::after_backward([self = shared_from_this()] { return self->tell(); });
  }

  // Enough has come, or has been said.
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }
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
      is_over_.store(true, std::memory_order_relaxed);
    }
  }

 private:
  // False while a region of the policy's is open.
  bool tell() {
    std::string text;
    {
      const ac2::internal::MutexLock lock(mutex_);
      if (open_ > 0) {
        return false;
      }
      if (is_over()) {
        return true;
      }
      is_over_.store(true, std::memory_order_relaxed);
      text = complaint();
    }
    if (is_news(text)) {
      ac2::internal::warn_in_op(text);
    }
    return true;
  }

  std::string complaint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
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
  std::atomic<bool> is_over_{false};  // relaxed: a look that comes too late is made with the lock
  ac2::internal::Mutex mutex_;
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<bool> came_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> there_ ABSL_GUARDED_BY(mutex_);
};

// A region that has entered the policy.
class WatchedRegion {
 public:
  explicit WatchedRegion(std::shared_ptr<Wanted> wanted) : wanted_(std::move(wanted)) { wanted_->region_begins(); }
  ~WatchedRegion() { wanted_->region_ends(); }
  WatchedRegion(const WatchedRegion&) = delete;
  WatchedRegion& operator=(const WatchedRegion&) = delete;

  Wanted& wanted() const { return *wanted_; }
  // `op` runs. One call at a time, as a region asks its policy.
  void saw(const c10::OperatorHandle& op, const std::vector<OpNameSet>& entries) {
    if (!wanted_->is_over() && seen_.insert(&op.operator_name()).second) {
      wanted_->saw(c10::toString(op.operator_name()),
                   [&](size_t i) { return entries[i].contains(op.operator_name()); });
    }
  }

 private:
  const std::shared_ptr<Wanted> wanted_;
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
    instance.by_name = [region = std::make_shared<WatchedRegion>(wanted), names,
                        by_name = std::move(instance.by_name)](const NamedTensor& tensor) {
      region->wanted().saw(std::string(tensor.name), [&](size_t i) { return names[i] == tensor.name; });
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
    const auto region = std::make_shared<WatchedRegion>(wanted);
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
