#include "ac2/internal/planning/step_uses.h"

#include <algorithm>

namespace ac2::internal {

using Event = StepGraph::Event;
using Fate = StepGraph::Fate;

StepUses::StepUses(const StepGraph& graph)
    : wanted_(graph.values.size()),
      used_again_(graph.values.size()),
      kept_bytes_(graph.ops.size()),
      wanted_bytes_(graph.ops.size()),
      result_bytes_(graph.ops.size()),
      first_taken_(graph.values.size(), ~uint32_t{0}),
      last_released_(graph.values.size(), 0),
      ends_(graph.events.size() + 1) {
  note_hooks(graph);
  note_replays(graph);
}

void StepUses::note_hooks(const StepGraph& graph) {
  const auto end = static_cast<uint32_t>(graph.events.size());
  std::vector<uint8_t> alive(graph.hooks.size());
  for (uint32_t i = 0; i < end; ++i) {
    const Event& event = graph.events[i];
    if (event.kind == Event::kBackward) {
      for (uint32_t hook = 0; hook < graph.hooks.size(); ++hook) {
        if (alive[hook] != 0) {
          wanted_[graph.hooks[hook]] = 1;
        }
      }
    } else if (event.kind == Event::kWanted) {
      alive[event.index] = 1;
    } else if (event.kind == Event::kTaken) {
      uint32_t& first = first_taken_[graph.hooks[event.index]];
      first = std::min(first, i);
    } else if (event.kind == Event::kReleased) {
      alive[event.index] = 0;
      last_released_[graph.hooks[event.index]] = i;
    }
  }
  for (uint32_t hook = 0; hook < graph.hooks.size(); ++hook) {
    if (alive[hook] != 0) {
      last_released_[graph.hooks[hook]] = end;
    }
  }
}

void StepUses::note_replays(const StepGraph& graph) {
  // A node lives, and with it the use of its inputs, while the program has one of its results, or a hook wants one or
  // something that was made of one.
  const auto end = static_cast<uint32_t>(graph.events.size());
  std::vector<uint32_t> dies(graph.values.size(), end);
  for (uint32_t i = 0; i < end; ++i) {
    if (graph.events[i].kind == Event::kDies) {
      dies[graph.events[i].index] = i;
    }
  }
  std::vector<uint32_t> lives_until = last_released_;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const StepGraph::Op& op = graph.ops[i];
    uint32_t until = 0;
    for (const uint32_t result : op.results) {
      until = std::max({until, dies[result], lives_until[result]});
    }
    for (const uint32_t input : op.inputs) {
      lives_until[input] = std::max(lives_until[input], until);
      used_again_[input] |= op.fate != Fate::kSaved;
    }
  }
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    for (const uint32_t result : graph.ops[i].results) {
      const int64_t bytes = graph.values[result].bytes;
      result_bytes_[i] += bytes;
      wanted_bytes_[i] += wanted_[result] != 0 ? bytes : 0;
      kept_bytes_[i] += wanted_[result] != 0 || used_again_[result] != 0 ? bytes : 0;
    }
  }
  for (uint32_t value = 0; value < graph.values.size(); ++value) {
    if (used_again_[value] != 0) {
      ends_[lives_until[value]].push_back(value);
      if (wanted_[value] == 0) {
        last_released_[value] = lives_until[value];
      }
    }
  }
}

}  // namespace ac2::internal
