#include "ac2/internal/report/holdings.h"

#include <algorithm>

#include "ac2/policy.h"

namespace ac2::internal {

Holdings::Holdings(const TraceLog& log) : log_(log) {
  std::vector<int64_t> bytes(log.values.size());
  std::transform(log.values.begin(), log.values.end(), bytes.begin(),
                 [](const TraceLog::Value& value) { return value.held_bytes; });
  now_ = std::any_of(bytes.begin(), bytes.end(), [](int64_t b) { return b > 0; });
  if (!now_) {
    bytes = bytes_at_peak();
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) {
      values_.push_back({static_cast<int64_t>(i), bytes[i]});
      held_.insert(static_cast<int64_t>(i));
      bytes_ += bytes[i];
    }
  }
  std::stable_sort(values_.begin(), values_.end(),
                   [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
  find_replayed();
}

std::vector<int64_t> Holdings::bytes_at_peak() const {
  std::vector<int64_t> bytes(log_.values.size());
  const auto peak = std::max_element(log_.events.begin(), log_.events.end(),
                                     [](const auto& a, const auto& b) { return a.saved_bytes < b.saved_bytes; });
  for (auto it = log_.events.begin(); peak != log_.events.end() && it <= peak; ++it) {
    if (it->change == TraceLog::Change::HOLD) {
      bytes[it->value] = it->bytes;
    } else if (it->change == TraceLog::Change::RELEASE) {
      bytes[it->value] = 0;
    }
  }
  return bytes;
}

void Holdings::find_replayed() {
  std::vector<int64_t> work;
  for (size_t i = 0; i < log_.values.size(); ++i) {
    if (is_missing(static_cast<int64_t>(i)) && hooks(log_.values[i]) > 0) {
      work.push_back(log_.values[i].op);
    }
  }
  while (!work.empty()) {
    const int64_t op = work.back();
    work.pop_back();
    if (op == TraceLog::kNone || !replayed_.insert(op).second) {
      continue;
    }
    for (const int64_t input : log_.ops[op].inputs) {
      if (is_missing(input)) {
        work.push_back(log_.values[input].op);
      }
    }
  }
}

Holdings::Saving Holdings::saving(const Holding& holding) const {
  Saving saving{.value = holding.value};
  absl::flat_hash_set<int64_t> seen_ops;
  absl::flat_hash_set<int64_t> seen_values{holding.value};
  std::vector<int64_t> work{log_.values[holding.value].op};
  while (!work.empty()) {
    const int64_t op = work.back();
    work.pop_back();
    if (op == TraceLog::kNone || replayed_.contains(op) || !seen_ops.insert(op).second) {
      continue;
    }
    ++saving.ops;
    saving.time += log_.ops[op].forward.length();
    for (const int64_t input : log_.ops[op].inputs) {
      if (!seen_values.insert(input).second) {
        continue;
      }
      if (is_missing(input)) {
        work.push_back(log_.values[input].op);
      } else if (!held_.contains(input)) {
        saving.instead += log_.values[input].bytes;
      }
    }
  }
  saving.bytes = holding.bytes - saving.instead;
  return saving;
}

std::vector<Holdings::Saving> Holdings::savings() const {
  // Each saving takes a walk through the graph. Those that save most are among the largest values.
  constexpr size_t kLookedAt = 200;
  std::vector<Saving> savings;
  for (size_t i = 0; i < std::min(values_.size(), kLookedAt); ++i) {
    const TraceLog::Value& value = log_.values[values_[i].value];
    if (value.op == TraceLog::kNone) {
      continue;
    }
    const TraceLog::Op& op = log_.ops[value.op];
    // A random op whose results are saved is not replayable, because the generator's state was not kept. The op would
    // be replayable if its results were recomputed.
    const bool cannot = !op.replayable || (value.saved && value.source == TraceLog::Source::OP);
    if (!op.is_node || (cannot && !PolicyDecision(op.decision).saves())) {
      continue;
    }
    const Saving saving = this->saving(values_[i]);
    if (saving.bytes > 0) {
      savings.push_back(saving);
    }
  }
  std::stable_sort(savings.begin(), savings.end(), [](const Saving& a, const Saving& b) { return a.bytes > b.bytes; });
  return savings;
}

}  // namespace ac2::internal
