#include "ac2/internal/operators/op_facts.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/op_tables.h"

namespace ac2::internal {

namespace {

// Forgets an operator's facts when the operator is deregistered, because the next one may get its address.
class FactsTable;
class Forgetter final : public c10::OpRegistrationListener {
 public:
  explicit Forgetter(FactsTable& table) : table_(table) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override;

 private:
  FactsTable& table_;
};

class FactsTable {
 public:
  // Leaked: nodes and other threads' caches may outlive static destruction.
  static FactsTable& instance() {
    static FactsTable* table = [] {
      auto* t = new FactsTable;
      ForkLocks::add_last(t->mutex_);
      t->listener_ = std::make_unique<c10::RegistrationHandleRAII>(
          c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Forgetter>(*t)));
      return t;
    }();
    return *table;
  }

  const OpFacts& find_or_add(const c10::OperatorHandle& op) {
    const MutexLock lock(mutex_);
    std::unique_ptr<const OpFacts>& facts = facts_[&op.schema()];
    if (!facts) {
      facts = std::make_unique<const OpFacts>(op);
    }
    return *facts;
  }

  void forget(const c10::OperatorHandle& op) {
    const MutexLock lock(mutex_);
    auto it = facts_.find(&op.schema());
    if (it != facts_.end()) {
      retired_.push_back(std::move(it->second));
      facts_.erase(it);
    }
    // Pairs with the acquire of generation(), which a thread reads before it looks facts up. The facts that a thread
    // keeps are never newer than the generation that it keeps with them.
    generation_.fetch_add(1, std::memory_order_release);
  }

  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  Mutex mutex_;
  absl::flat_hash_map<const c10::FunctionSchema*, std::unique_ptr<const OpFacts>> facts_ ABSL_GUARDED_BY(mutex_);
  // The facts of operators that are gone, because nodes may still refer to them.
  std::vector<std::unique_ptr<const OpFacts>> retired_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> generation_{0};
  std::unique_ptr<c10::RegistrationHandleRAII> listener_;
};

void Forgetter::onOperatorDeregistered(const c10::OperatorHandle& op) {
  if (op.hasSchema()) {
    table_.forget(op);
  }
}

bool is_declared_write(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_view_of_argument(const c10::Argument& result) {
  return result.alias_info() != nullptr && !result.alias_info()->isWrite();
}

bool is_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  return type->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
}

bool contains(c10::ArrayRef<std::string_view> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The group of processes itself, or a name by which c10d finds it.
bool is_process_group(const c10::Argument& argument) {
  return argument.name() == "process_group" || argument.name() == "group_name" ||
         argument.type()->str().find("torch.classes.c10d.") != std::string::npos;
}

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& handle) : op(handle) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& base = schema.name();
  name = schema.overload_name().empty() ? base : base + "." + schema.overload_name();
  is_aten = base.starts_with("aten::");
  draws = op.hasTag(at::Tag::nondeterministic_seeded);
  is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  never_recompute = is_constant_factory(base) || is_resize(base) || describes_nested(base);
  counts_writes = is_aten || is_composite || op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
  note_arguments(schema);
  note_results(schema);
  note_metadata_writes(base);
  note_communication(schema);
  is_pointwise = is_aten && !draws && written.empty() && op.hasTag(at::Tag::pointwise);
  reads_precision = !is_aten || is_composite || computes_products(base);
  varies = is_aten ? where_it_varies(base) : Varies::kEverywhere;
}

void OpFacts::note_arguments(const c10::FunctionSchema& schema) {
  num_arguments = static_cast<uint16_t>(schema.arguments().size());
  const HiddenWrites* hidden = find_hidden_writes(schema.name());
  bool only_out = true;
  for (uint16_t i = 0; i < num_arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool is_hidden_write = hidden != nullptr && contains(hidden->arguments, argument.name());
    if (is_hidden_write && !hidden->results_depend_on_old) {
      written_unseen.push_back(i);
    }
    if (hidden != nullptr && !hidden->only_if.empty() && argument.name() == hidden->only_if) {
      written_only_if = i;
    }
    if (is_hidden_write || is_declared_write(argument)) {
      written.push_back(i);
      only_out &= argument.is_out();
    }
    if (is_generator(argument)) {
      generator_argument = i;
      draws |= is_aten;
    }
  }
  overwrites = !written.empty() && (only_out || overwrites_in_place(schema.name()));
}

void OpFacts::note_results(const c10::FunctionSchema& schema) {
  const std::vector<c10::Argument>& results = schema.returns();
  num_returns = static_cast<uint16_t>(results.size());
  has_fresh_results = !std::all_of(results.begin(), results.end(), is_declared_write);
  // The alias annotation alone would not do: reshape has one too, and may copy.
  is_view = !results.empty() && std::all_of(results.begin(), results.end(), is_view_of_argument) && written.empty() &&
            op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
  for (uint16_t i = 0; i < num_returns; ++i) {
    if (is_clobbered_result(schema.name(), i)) {
      clobbered_results.push_back(i);
    }
  }
}

void OpFacts::note_communication(const c10::FunctionSchema& schema) {
  const std::vector<c10::Argument>& arguments = schema.arguments();
  communicates = is_collective(schema.name()) || std::any_of(arguments.begin(), arguments.end(), is_process_group);
  returns_early = returns_before_results_come(schema.name());
  // A replay would have nothing of its own to write to, or to wait for.
  never_recompute |= communicates && (!written.empty() || waits_for_collective(schema.name()));
}

void OpFacts::note_metadata_writes(const std::string& base) {
  detaches = base == "aten::detach" || base == "aten::detach_";
  const bool is_inplace_view = op.hasTag(at::Tag::inplace_view);
  writes_metadata_only = writes_metadata(base) || (is_inplace_view && !is_resize(base));
  bumps_version_only = writes_metadata_only && is_inplace_view && !counts_no_version(base) &&
                       op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
}

const OpFacts& op_facts(const c10::OperatorHandle& op) {
  struct Entry {
    const c10::FunctionSchema* schema = nullptr;
    const OpFacts* facts = nullptr;
    uint32_t generation = 0;
  };
  // Direct-mapped. A miss costs a lock, and so does a collision.
  static thread_local std::array<Entry, 256> cache;
  static FactsTable& table = FactsTable::instance();

  const c10::FunctionSchema* schema = &op.schema();
  Entry& entry = cache[(reinterpret_cast<uintptr_t>(schema) >> 6) % cache.size()];
  const uint32_t generation = table.generation();
  if (entry.schema != schema || entry.generation != generation) {
    entry = {schema, &table.find_or_add(op), generation};
  }
  return *entry.facts;
}

}  // namespace ac2::internal
