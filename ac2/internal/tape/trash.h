// Objects that die under a tape's lock, to be freed after the lock has been released: neither deleters of storages nor
// destructors of the user's objects may run under the mutex.
//
// Threads: a TrashCan is guarded by the tape's lock; a Trash is emptied by the thread that held it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <utility>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/graph/pool.h"

namespace ac2::internal {

// The memory of a tape's values and nodes.
struct GraphMemory {
  Pool<Value> values;
  Pool<Node> nodes;
};

struct Trash {
  explicit Trash(GraphMemory& memory) : memory(memory) {}
  ~Trash() {
    while (values != nullptr) {
      memory.values.destroy(std::exchange(values, values->parts.next_dead.change()));
    }
    while (nodes != nullptr) {
      memory.nodes.destroy(std::exchange(nodes, nodes->next_dead));
    }
  }
  Trash(const Trash&) = delete;
  Trash& operator=(const Trash&) = delete;

  GraphMemory& memory;
  Value* values = nullptr;
  Node* nodes = nullptr;
  c10::SmallVector<c10::Storage, 4> storages;
  c10::SmallVector<at::Tensor, 2> tensors;
  c10::SmallVector<c10::IValue, 1> packed;
};

class TrashCan {
 public:
  explicit TrashCan(GraphMemory& memory) : memory_(memory) {}

  void put(Value* value) { value->parts.next_dead.change() = std::exchange(open().values, value); }
  void put(Node* node) { node->next_dead = std::exchange(open().nodes, node); }
  // These leave null behind, where a moved-from handle would do so too.
  void put(c10::Storage& storage) {
    open().storages.push_back(std::move(storage));
    storage = c10::Storage();
  }
  void put(at::Tensor& tensor) {
    open().tensors.push_back(std::move(tensor));
    tensor = at::Tensor();
  }
  void put(c10::IValue& packed) {
    open().packed.push_back(std::move(packed));
    packed = c10::IValue();
  }

  // The lock that is held now gives the place; most locks need none.
  void use(std::optional<Trash>& place) { place_ = &place; }

 private:
  Trash& open() { return *place_ ? **place_ : place_->emplace(memory_); }

  GraphMemory& memory_;
  std::optional<Trash>* place_ = nullptr;
};

}  // namespace ac2::internal
