// The parts of a value that classes of the tape and of the budget keep on it: all may read them, and each is changed by
// the classes that its type names.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <cstdint>

#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/graph/owned_by.h"
#include "ac2/internal/graph/value_state.h"

namespace ac2::internal {

struct Node;
class Value;
class ValueBytes;
class Decisions;
class KeptValues;
class HeldRegister;
class BudgetShare;
class Lifetimes;
class TapeHook;
class Pins;
class StorageMap;
class TrashCan;
struct Trash;

// As what a budget counts bytes that it cannot drop. Those of tracked values count by their place instead.
enum class Counted : uint8_t { kNot, kUntracked, kFixed, kOutside };

// A budget's notes on a value.
struct BudgetedValue {
  ValueId id = kNoId;
  bool droppable : 1 = false;     // the budget may drop its bytes
  bool tracked : 1 = false;       // the budget's evictor knows of it
  bool copyable : 1 = false;      // the value may be copied to the host instead
  bool settled : 1 = false;       // the ranks of a job have agreed on it, and the budget drops it no more
  Counted held = Counted::kNot;   // for what is held
  Counted there = Counted::kNot;  // for what is there
  Retention retention = Retention::kPreferSave;
};

struct ValueParts {
  static constexpr uint32_t kNotInMap = ~uint32_t{0};

  OwnedBy<Decided, Decisions> decided{Decided::kSave};
  OwnedBy<bool, Decisions> is_tagged{false};  // a tag decided, which no name overrules
  // Lifetimes has a node's inputs come to be used, or cease to be, with this.
  OwnedBy<bool, Lifetimes> counts_on_replay{false};
  OwnedBy<bool, Pins> waits{false};

  OwnedBy<Node*, Lifetimes> producer{nullptr};  // owned
  OwnedBy<uint32_t, Lifetimes> slot{0};
  OwnedBy<uint32_t, StorageMap> map_index{kNotInMap};
  OwnedBy<Value*, Lifetimes, TrashCan, Trash> next_dead{nullptr};
  OwnedBy<int32_t, Lifetimes, ValueBytes> refs{0};
  OwnedBy<int32_t, Lifetimes> users{0};
  OwnedBy<int32_t, TapeHook> hooks{0};
  OwnedBy<int32_t, Pins> pins{0};

  // The evictor of HeldRegister gives the value an id.
  OwnedBy<BudgetedValue, KeptValues, HeldRegister, BudgetShare> budget{BudgetedValue()};
};

}  // namespace ac2::internal
