// The local searches of Planner: they change a plan a little at a time, while that makes it better.
#include <algorithm>
#include <utility>

#include "ac2/internal/planning/planner.h"

namespace ac2::internal {

void Planner::keep_more(int64_t bytes, KeepPlan& plan) {
  keep_more_as(Keep::kWanted, by_rate_, bytes, plan);
}

void Planner::keep_more_as(Keep way, const std::vector<uint32_t>& ops, int64_t bytes, KeepPlan& plan) {
  std::vector<uint32_t> dropped;
  for (const uint32_t op : ops) {
    if (plan.kept[op] == Keep::kNothing) {
      dropped.push_back(op);
    }
  }
  // Blocks of ops are kept at once. A block that does not fit is halved.
  std::vector<std::pair<size_t, size_t>> blocks{{0, dropped.size()}};
  while (!blocks.empty() && evaluations_ > 0) {
    const auto [begin, end] = blocks.back();
    blocks.pop_back();
    if (begin == end) {
      continue;
    }
    std::vector<Keep> kept = plan.kept;
    for (size_t i = begin; i < end; ++i) {
      kept[dropped[i]] = way;
    }
    KeepPlan more = evaluate(std::move(kept));
    if (more.outcome.total_bytes <= bytes) {
      if (is_better(more.outcome, plan.outcome)) {
        plan = std::move(more);
      }
    } else if (end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      blocks.emplace_back(middle, end);
      blocks.emplace_back(begin, middle);
    }
  }
}

void Planner::make_fit(int64_t bytes, uint32_t except, KeepPlan& plan) {
  for (size_t i = by_rate_.size(); i-- > 0 && plan.outcome.total_bytes > bytes && evaluations_ > 0;) {
    const uint32_t op = by_rate_[i];
    if (op != except && plan.kept[op] != Keep::kNothing) {
      std::vector<Keep> kept = plan.kept;
      kept[op] = Keep::kNothing;
      KeepPlan less = evaluate(std::move(kept));
      if (less.outcome.total_bytes < plan.outcome.total_bytes) {
        plan = std::move(less);
      }
    }
  }
}

void Planner::exchange(int64_t bytes, KeepPlan& plan) {
  for (bool improved = true; improved && evaluations_ > 0;) {
    improved = false;
    for (size_t i = by_rate_.size(); i-- > 0 && evaluations_ > 0;) {
      const uint32_t op = by_rate_[i];
      const bool was_kept = plan.kept[op] != Keep::kNothing;
      std::vector<Keep> kept = plan.kept;
      kept[op] = was_kept ? Keep::kNothing : Keep::kWanted;
      KeepPlan other = evaluate(std::move(kept));
      make_fit(bytes, op, other);
      if (other.outcome.total_bytes > bytes) {
        continue;
      }
      keep_more(bytes, other);
      if (is_better(other.outcome, plan.outcome)) {
        plan = std::move(other);
        improved = true;
      }
    }
  }
}

bool Planner::try_as(Keep keep, uint32_t op, const std::vector<FormTries>& tries, int64_t bytes, KeepPlan& plan) {
  std::vector<Keep> kept = plan.kept;
  kept[op] = keep;
  KeepPlan other = evaluate(std::move(kept));
  make_fit(bytes, op, other);
  if (other.outcome.total_bytes > bytes) {
    return false;
  }
  keep_more(bytes, other);
  for (const FormTries& form : tries) {
    if (graph_.forms[form.form] == StepGraph::Queue::kOps) {
      // The freed bytes may be too few for a result, and enough for a form.
      keep_more_as(keep_in(form.form), form.ops, bytes, other);
    }
  }
  const bool is_better_now = is_better(other.outcome, plan.outcome);
  if (is_better_now) {
    plan = std::move(other);
  }
  return is_better_now;
}

void Planner::try_forms(int64_t bytes, const std::vector<FormTries>& tries, KeepPlan& plan) {
  evaluations_ = patience_;
  keep_more(bytes, plan);
  for (bool improved = true; improved && evaluations_ > 0;) {
    improved = false;
    for (const FormTries& form : tries) {
      for (size_t i = 0; i < form.ops.size() && evaluations_ > 0; ++i) {
        const uint32_t op = form.ops[i];
        for (const Keep keep : {keep_in(form.form), Keep::kWanted, Keep::kNothing}) {
          const bool is_so =
              keep == Keep::kWanted ? plan.kept[op] == Keep::kAll || plan.kept[op] == keep : plan.kept[op] == keep;
          improved = (!is_so && try_as(keep, op, tries, bytes, plan)) || improved;
        }
      }
    }
  }
}

bool Planner::shrink() {
  const KeepPlan before = *smallest_;
  const auto count = static_cast<uint32_t>(by_rate_.size());
  std::vector<Keep> kept = before.kept;
  const auto flip = [&](uint32_t i) {
    Keep& keep = kept[by_rate_[i]];
    keep = keep == Keep::kNothing ? Keep::kWanted : Keep::kNothing;
  };
  for (uint32_t apart = 0; apart < count; ++apart) {
    for (uint32_t i = 0; i + apart < count && evaluations_ > 0; ++i) {
      kept = before.kept;
      flip(i);
      if (apart > 0) {
        flip(i + apart);
      }
      if (evaluate(kept).outcome.total_bytes < before.outcome.total_bytes) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace ac2::internal
