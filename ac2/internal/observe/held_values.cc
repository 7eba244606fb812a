#include "ac2/internal/observe/held_values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/observe/module_names.h"
#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

using NameOf = absl::flat_hash_map<const c10::StorageImpl*, std::string>;

// The values of one tape.
class Collection {
 public:
  Collection(LockedTape& tape, const NameOf& names, std::vector<HeldValue>& found, bool drops_in_time)
      : nodes_(tape.reachable_nodes()), names_(names), found_(found), drops_in_time_(drops_in_time) {
    for (const Node* node : nodes_) {
      for (const NodeInput& input : node->inputs) {
        note(input.value, input.meta);
      }
    }
    for (const TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
      note(hook->value(), hook->meta());
    }
    for (const Node* node : nodes_) {
      add(*node);
    }
    for (const TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
      add(*hook->value(), "", "");
    }
  }

 private:
  void note(const Value* value, const TensorMeta* meta) {
    if (value != nullptr && meta != nullptr) {
      metas_.try_emplace(value, meta);
    }
  }

  void add(const Node& node) {
    std::string_view parameter;
    for (const NodeInput& input : node.inputs) {
      const std::string* name = input.value == nullptr ? nullptr : parameter_name(*input.value);
      if (name != nullptr && parameter.empty()) {
        parameter = *name;
      }
    }
    const std::string where = modules_.next(parameter);
    for (const NodeInput& input : node.inputs) {
      if (input.value != nullptr && input.value->producer() == nullptr) {
        add(*input.value, where.empty() ? "" : absl::StrCat("taken by ", where), "from outside the region");
      }
    }
    for (const NodeOutput& output : node.outputs) {
      if (output.value != nullptr) {
        add(*output.value, where, node.facts->name);
      }
    }
  }

  void add(const Value& value, const std::string& where, std::string_view origin) {
    if (!seen_.insert(&value).second) {
      return;
    }
    if (value.is_managed()) {
      return;
    }
    HeldValue held;
    if (value.is_packed()) {
      held.bytes = value.held_bytes();
      held.alone = true;
    } else if (const c10::Storage& storage =
                   value.is_held_in_a_storage() ? value.held_storage() : value.there_storage()) {
      held.bytes = value.bytes();
      held.device = storage.device();
      held.storage = storage.unsafeGetStorageImpl();
      held.alone = static_cast<int64_t>(storage.use_count()) == value.references_to(storage);
    } else if (value.is_opaque() && value.opaque_form()->held.defined()) {
      const at::Tensor& tensor = value.opaque_form()->held;
      held.bytes = value.bytes();
      held.device = tensor.device();
      held.alone = tensor.use_count() == 1;
    } else {
      return;
    }
    held.drops_in_time = drops_in_time_;
    const std::string* parameter = parameter_name(value);
    held.where = parameter != nullptr ? *parameter : where;
    held.name = value.name() != nullptr ? *value.name() : "";
    held.what = parameter != nullptr ? "a parameter" : std::string(origin);
    if (const auto meta = metas_.find(&value); meta != metas_.end()) {
      held.what += (held.what.empty() ? "" : " ") + shape_text(meta->second->sizes(), meta->second->dtype());
    }
    found_.push_back(std::move(held));
  }

  // Null if it is none.
  const std::string* parameter_name(const Value& value) const {
    if (names_.empty() || value.producer() != nullptr) {
      return nullptr;
    }
    const auto name = names_.find(value.original_address());
    // The address may be another storage's by now.
    return name == names_.end() || !value.original_is_alive() ? nullptr : &name->second;
  }

  const std::vector<Node*> nodes_;
  const NameOf& names_;
  std::vector<HeldValue>& found_;
  const bool drops_in_time_;
  absl::flat_hash_map<const Value*, const TensorMeta*> metas_;
  absl::flat_hash_set<const Value*> seen_;
  ModuleNames modules_;
};

}  // namespace

std::vector<HeldValue> held_values(const StorageNames& names) {
  const NameOf name_of(names.begin(), names.end());
  std::vector<HeldValue> found;
  for_each_live_tape([&](Tape& tape) {
    const Tape::Lock locked(tape);
    const bool drops_in_time = tape.budget() != nullptr && tape.budget()->has_no_number();
    const Collection collection(*locked, name_of, found, drops_in_time);
  });
  return found;
}

}  // namespace ac2::internal
