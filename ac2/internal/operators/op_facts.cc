#include "ac2/internal/operators/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/operators/hidden_writes.h"

namespace ac2::internal {

namespace {

// Factories whose result does not depend on chance. What user code writes into it through data_ptr() would be lost by
// running the factory again; torch::tensor() itself fills an aten::empty that way.
bool is_constant_factory(const std::string& name) {
  static const absl::flat_hash_set<std::string> names = {
      "aten::empty",
      "aten::empty_like",
      "aten::empty_strided",
      "aten::empty_permuted",
      "aten::empty_quantized",
      "aten::new_empty",
      "aten::new_empty_strided",
      "aten::_empty_affine_quantized",
      "aten::zeros",
      "aten::zeros_like",
      "aten::new_zeros",
      "aten::_efficientzerotensor",
      "aten::ones",
      "aten::ones_like",
      "aten::new_ones",
      "aten::full",
      "aten::full_like",
      "aten::new_full",
      "aten::scalar_tensor",
      "aten::arange",
      "aten::range",
      "aten::linspace",
      "aten::logspace",
      "aten::eye",
      "aten::tril_indices",
      "aten::triu_indices",
      "aten::from_file",
      "aten::bartlett_window",
      "aten::blackman_window",
      "aten::hamming_window",
      "aten::hann_window",
      "aten::kaiser_window",
  };
  return names.contains(name);
}

// In-place ops whose result does not depend on what was there. (out= arguments are overwritten by definition.)
bool is_overwriting(const std::string& name) {
  static const absl::flat_hash_set<std::string> names = {
      "aten::fill_",    "aten::zero_",       "aten::copy_",      "aten::normal_",
      "aten::uniform_", "aten::random_",     "aten::bernoulli_", "aten::exponential_",
      "aten::cauchy_",  "aten::log_normal_", "aten::geometric_",
  };
  return names.contains(name);
}

// These may move the bytes, and leave those that are added undefined.
bool is_resize(const std::string& name) {
  static const absl::flat_hash_set<std::string> names = {"aten::resize_", "aten::resize_as_", "aten::resize_as_sparse_",
                                                         "aten::_resize_output_"};
  return names.contains(name);
}

bool writes_metadata_only(const std::string& name, const c10::OperatorHandle& op) {
  static const absl::flat_hash_set<std::string> names = {
      "aten::set_", "aten::detach_", "aten::rename_", "aten::requires_grad_", "aten::set_data", "aten::retain_grad",
  };
  return names.contains(name) || (op.hasTag(at::Tag::inplace_view) && !is_resize(name));
}

struct ClobberedResult {
  std::string_view op;
  uint16_t result;
};

// The reserve space or workspace of these is scratch memory for their backward.
constexpr std::array<ClobberedResult, 6> kClobbered = {{
    {"aten::_cudnn_rnn", 3},
    {"aten::miopen_rnn", 3},
    {"aten::mkldnn_rnn_layer", 3},
    {"aten::cudnn_batch_norm", 3},
    {"aten::_batch_norm_with_update", 3},
    {"aten::_batch_norm_with_update_functional", 3},
}};

// Drops an operator's facts when the operator goes, for the next one may get its address.
class Table;
class Forgetter final : public c10::OpRegistrationListener {
 public:
  explicit Forgetter(Table& table) : table_(table) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override;

 private:
  Table& table_;
};

class Table {
 public:
  // Leaked: nodes and other threads' caches may outlive static destruction.
  static Table& instance() {
    static Table* table = [] {
      auto* t = new Table;
      t->listener_ = std::make_unique<c10::RegistrationHandleRAII>(
          c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Forgetter>(*t)));
      return t;
    }();
    return *table;
  }

  const OpFacts& find_or_add(const c10::OperatorHandle& op) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const OpFacts>& facts = facts_[&op.schema()];
    if (!facts) {
      facts = std::make_unique<const OpFacts>(op);
    }
    return *facts;
  }

  void forget(const c10::OperatorHandle& op) {
    const std::lock_guard lock(mutex_);
    auto it = facts_.find(&op.schema());
    if (it != facts_.end()) {
      retired_.push_back(std::move(it->second));
      facts_.erase(it);
    }
    generation_.fetch_add(1, std::memory_order_release);
  }

  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  absl::flat_hash_map<const c10::FunctionSchema*, std::unique_ptr<const OpFacts>> facts_;
  std::vector<std::unique_ptr<const OpFacts>> retired_;
  std::atomic<uint32_t> generation_{0};
  std::unique_ptr<c10::RegistrationHandleRAII> listener_;
};

void Forgetter::onOperatorDeregistered(const c10::OperatorHandle& op) {
  if (op.hasSchema()) {
    table_.forget(op);
  }
}

bool is_alias_write(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& handle) : op(handle) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& base = schema.name();
  name = schema.overload_name().empty() ? base : base + "." + schema.overload_name();
  num_arguments = static_cast<uint16_t>(schema.arguments().size());
  num_returns = static_cast<uint16_t>(schema.returns().size());
  is_aten = base.starts_with("aten::");

  const HiddenWrites* hidden = find_hidden_writes(base);
  bool only_out = true;
  for (uint16_t i = 0; i < num_arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    bool is_written = is_alias_write(argument);
    if (hidden != nullptr) {
      for (const std::string_view written_name : hidden->arguments) {
        if (argument.name() == written_name) {
          is_written = true;
          if (!hidden->results_depend_on_old) {
            written_unseen.push_back(i);
          }
        }
      }
      if (!hidden->only_if.empty() && argument.name() == hidden->only_if) {
        written_only_if = i;
      }
    }
    if (is_written) {
      written.push_back(i);
      only_out &= argument.is_out();
    }
    if (argument.name() == "generator") {
      generator_argument = i;
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    has_fresh_results |= !is_alias_write(result);
  }
  writes_metadata_only = internal::writes_metadata_only(base, op);
  overwrites = !written.empty() && (only_out || is_overwriting(base));

  bool returns_views = num_returns > 0;
  for (const c10::Argument& result : schema.returns()) {
    returns_views &= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  // The alias annotation alone would not do: reshape has one too, and may copy.
  is_view = returns_views && written.empty() && op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);

  draws = op.hasTag(at::Tag::nondeterministic_seeded);
  is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  bumps_version_only = writes_metadata_only && op.hasTag(at::Tag::inplace_view) && base != "aten::set_" &&
                       base != "aten::detach_" && op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
  never_recompute = is_constant_factory(base) || is_resize(base) || base.starts_with("c10d::") ||
                    base.starts_with("_c10d_functional::") || base.starts_with("c10d_functional::");
  for (const ClobberedResult& row : kClobbered) {
    if (row.op == base) {
      clobbered_results.push_back(row.result);
    }
  }
}

const OpFacts& op_facts(const c10::OperatorHandle& op) {
  struct Entry {
    const c10::FunctionSchema* schema = nullptr;
    const OpFacts* facts = nullptr;
    uint32_t generation = 0;
  };
  // Direct-mapped: a miss costs a lock, a collision no more than that.
  static thread_local std::array<Entry, 256> cache;
  static Table& table = Table::instance();

  const c10::FunctionSchema* schema = &op.schema();
  Entry& entry = cache[(reinterpret_cast<uintptr_t>(schema) >> 6) % cache.size()];
  const uint32_t generation = table.generation();
  if (entry.schema != schema || entry.generation != generation) {
    entry = {schema, &table.find_or_add(op), generation};
  }
  return *entry.facts;
}

}  // namespace ac2::internal
