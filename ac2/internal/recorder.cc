#include "ac2/internal/recorder.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "ac2/internal/budget.h"
#include "ac2/internal/cost_model.h"
#include "ac2/internal/op_context_factory.h"
#include "ac2/internal/out_of_memory.h"
#include "ac2/internal/overwrite.h"
#include "ac2/internal/packing.h"
#include "ac2/internal/random.h"
#include "ac2/internal/result_tensors.h"
#include "ac2/internal/timeline.h"
#include "ac2/internal/verifier.h"

namespace ac2::internal {

namespace {

using Arguments = c10::SmallVector<c10::IValue, 8>;

c10::ArrayRef<c10::IValue> top(const torch::jit::Stack& stack, size_t count) {
  return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count);
}

// A result that the op has made, rather than passed on or kept a handle of.
bool is_fresh(const at::Tensor& tensor, c10::ArrayRef<c10::IValue> results) {
  const c10::Storage& storage = tensor.storage();
  const size_t handles = storage.use_count();
  if (handles == 1) {
    return tensor.use_count() == 1;
  }
  size_t among_results = 0;
  for_each_tensor(results, [&](const at::Tensor& result) {
    among_results +=
        result.defined() && result.has_storage() && result.storage().is_alias_of(storage) && result.use_count() == 1;
  });
  return handles == among_results;
}

// What record_call() found out, on its way to a node.
struct Call {
  const OpFacts& facts;
  c10::DispatchKeySet keys;
  const c10::impl::PODLocalDispatchKeySet& tls_keys;
  const Arguments& arguments;
  c10::ArrayRef<c10::IValue> results;
  const Overwrites* writes;  // null if it writes nothing
  const at::Generator& random_state;
  int64_t index;
  double cost;  // if the tape has a budget
};

// Whether results are never computed again. A budget may drop what policies merely prefer to save.
bool saves(const PolicyDecision& decision, bool budget) {
  return decision.saves() && (!budget || decision.is_must());
}

class NodeBuilder {
 public:
  NodeBuilder(Tape& tape, const Call& call) : tape_(tape), call_(call) {}

  // Needs the tape's lock. The node lives on in its results; nothing is left if it has none.
  void build(const ResolvedDecision& resolved) {
    const PolicyDecision& decision = resolved.decision;
    Node* node = node_ = tape_.make_node();
    node->facts = &call_.facts;
    node->keys = call_.keys;
    node->tls_keys = call_.tls_keys;
    node->index = call_.index;
    node->decision = decision.policy();
    node->grad_mode = at::GradMode::is_enabled();
    node->random_state = call_.random_state;
    node->replayable = !call_.facts.draws || call_.random_state.defined();
    add_writes();
    add_arguments();
    saves_ = saves(decision, tape_.budget() != nullptr) || !node->replayable || lacks_old_bytes_;
    attach_results(decision);
    if (Timeline* timeline = tape_.timeline(); timeline != nullptr && node->refs > 0) {
      timeline->describe(*node, resolved.decided_by);
    }
    if (node->refs > 0) {
      if (tape_.budget() != nullptr && !saves_) {
        tape_.add_to_budget(node, call_.cost);
      }
      tape_.node_recorded();
    } else {
      tape_.discard(node);
    }
  }

 private:
  void add_writes() {
    if (call_.writes == nullptr) {
      return;
    }
    for (const Overwrites::Target& target : call_.writes->targets()) {
      node_->writes.push_back({target.of_no_matter ? nullptr : target.old, target.nbytes, target.tensor.device()});
      node_->replayable &= target.recoverable() || target.recoverable_by_name();
      lacks_old_bytes_ |= target.recoverable_by_name();
    }
    node_->replayable &= !call_.writes->opaque();
  }

  void add_arguments() {
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      const c10::IValue& argument = call_.arguments[i];
      if (argument.isTensor()) {
        node_->arguments.emplace_back();
        add_input(argument.toTensor(), i, -1);
      } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
        node_->arguments.emplace_back();
        int32_t list_index = 0;
        for (const c10::IValue& element : argument.toListRef()) {
          if (element.isTensor()) {
            add_input(element.toTensor(), i, list_index);
          }
          ++list_index;
        }
        node_->lists.push_back({static_cast<uint16_t>(i), argument.isOptionalTensorList(), list_index});
      } else {
        node_->arguments.push_back(argument);
        for_each_tensor(c10::ArrayRef<c10::IValue>(argument), [&](const at::Tensor&) { node_->replayable = false; });
      }
    }
  }

  void add_input(const at::Tensor& tensor, size_t argument, int32_t list_index) {
    if (!tensor.defined()) {
      if (list_index < 0) {
        node_->arguments.back() = tensor;
      }
      return;
    }
    NodeInput input;
    input.argument = static_cast<uint16_t>(argument);
    input.list_index = list_index;
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const bool plain = has_plain_storage(impl);
    const int target =
        call_.writes != nullptr && plain ? call_.writes->target_of(impl.storage().unsafeGetStorageImpl()) : -1;
    if (target >= 0) {
      input.write = static_cast<int16_t>(target);
      input.value = node_->writes[target].old;
      input.meta = meta_before(tensor, argument, list_index);
    } else {
      input.value = tape_.current(tensor);
      if (plain) {
        input.meta = tape_.intern(tensor);
      }
    }
    if (input.value != nullptr) {
      tape_.ref(input.value);
      if (Timeline* timeline = tape_.timeline(); timeline != nullptr && plain && target < 0) {
        timeline->note_shape(input.value, tensor);
      }
    }
    node_->inputs.push_back(std::move(input));
  }

  const TensorMeta* meta_before(const at::Tensor& tensor, size_t argument, int32_t list_index) const {
    for (const Overwrites::Argument& written : call_.writes->arguments()) {
      if (written.argument == argument && written.list_index == list_index) {
        return written.meta;
      }
    }
    return tape_.intern(tensor);  // it only reads there
  }

  void attach_results(const PolicyDecision& decision) {
    int32_t flat_index = -1;
    for_each_tensor(call_.results, [&](const at::Tensor& tensor) {
      ++flat_index;
      if (!tensor.defined() || !has_plain_storage(*tensor.unsafeGetTensorImpl())) {
        return;  // held whole, if anything needs it
      }
      c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      if ((call_.writes != nullptr && call_.writes->target_of(storage) >= 0) || !is_fresh(tensor, call_.results)) {
        return;
      }
      if (Value* value = tape_.add_made(tensor)) {
        attach(value, {.flat_result = flat_index}, tensor, decision);
      }
    });
    if (call_.writes == nullptr) {
      return;
    }
    int16_t write = -1;
    for (const Overwrites::Target& target : call_.writes->targets()) {
      ++write;
      // Without its old bytes there is no computing it again: it is a value like those from outside.
      if (target.accumulates || !(target.recoverable() || target.recoverable_by_name()) ||
          target.tensor.storage().unsafeGetStorageImpl() != target.storage) {
        continue;
      }
      attach(tape_.add_written(target.tensor), {.write = write}, target.tensor, decision);
    }
  }

  void attach(Value* value, NodeOutput output, const at::Tensor& tensor, const PolicyDecision& decision) {
    tape_.attach(node_, value, output, saves_);
    if (Timeline* timeline = tape_.timeline()) {
      timeline->note_shape(value, tensor);
    }
    if (decision.hooks()) {
      tape_.set_hooks(value, decision.hooks(), tensor);
    }
  }

  Tape& tape_;
  const Call& call_;
  Node* node_ = nullptr;
  bool lacks_old_bytes_ = false;
  bool saves_ = true;
};

bool has_result_tensors(c10::ArrayRef<c10::IValue> results) {
  bool any = false;
  for_each_tensor(results, [&](const at::Tensor& tensor) { any |= tensor.defined(); });
  return any;
}

// Nothing to record, but ADInplaceOrView may be about to count a new version of bytes that stay as they are. Told to
// the tape after the op, for it may throw.
void change_metadata(Tape& tape, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  c10::SmallVector<at::Tensor, 1> tensors;
  if (facts.bumps_version_only && !c10::InferenceMode::is_enabled()) {
    for_each_tensor(top(*stack, facts.num_arguments), [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  facts.op.redispatchBoxed(keys, stack);
  if (!tensors.empty()) {
    const Tape::Lock lock(tape);
    for (const at::Tensor& tensor : tensors) {
      tape.expect_new_version(tensor);
    }
  }
}

void leave_results(TimedCall& call, c10::ArrayRef<c10::IValue> results, c10::ArrayRef<Overwrites::Target> targets) {
  call.leaves(results);
  for (const Overwrites::Target& target : targets) {
    call.leaves(target.tensor);
  }
}

}  // namespace

void run_unrecorded(Region& region, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!facts.written.empty() && !facts.writes_metadata_only) {
    const Overwrites writes(*region.tape, facts, top(*stack, facts.num_arguments), /*keep_old=*/false);
    facts.op.redispatchBoxed(keys, stack);
    return;
  }
  facts.op.redispatchBoxed(keys, stack);
}

// Once more, if memory ran out and the budget could free some. Not where half of a write or of the draws may have
// happened.
void run_op(const OpFacts& facts, c10::DispatchKeySet keys, const Arguments& arguments, Budget* budget,
            torch::jit::Stack* stack) {
  if (budget == nullptr || facts.draws || !facts.written.empty()) {
    facts.op.redispatchBoxed(keys, stack);
    return;
  }
  const size_t below = stack->size() - facts.num_arguments;
  try {
    facts.op.redispatchBoxed(keys, stack);
    return;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error) || !budget->make_all_room()) {
      throw;
    }
  }
  stack->resize(below);
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  facts.op.redispatchBoxed(keys, stack);
}

void record_call(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
                 const c10::impl::PODLocalDispatchKeySet& tls_keys, torch::jit::Stack* stack) {
  // The region may be closed by a scope that a policy or an op destroys.
  const std::shared_ptr<Tape> tape = region.tape;
  const int64_t index = tape->next_op();
  std::optional<TimedCall> logged;
  if (tape->timeline() != nullptr) {
    logged.emplace(*tape, facts, index);
  }
  if (facts.is_view || facts.writes_metadata_only) {
    change_metadata(*tape, facts, keys, stack);
    return;
  }
  if (facts.never_recompute) {
    run_unrecorded(region, facts, keys, stack);
    if (logged) {
      logged->ran();
      logged->leaves(top(*stack, facts.num_returns));
    }
    return;
  }
  const c10::ArrayRef<c10::IValue> on_stack = top(*stack, facts.num_arguments);
  const Arguments arguments(on_stack.begin(), on_stack.end());
  if (logged) {
    logged->takes(arguments);
  }
  // A copy: an op may open scopes of its own.
  std::optional<ResolvedDecision> known;
  if (const ResolvedDecision* resolved = region.policies.known(facts)) {
    known = *resolved;
  }
  Budget* const budget = tape->budget();
  const bool may_recompute = !known || !saves(known->decision, budget != nullptr);
  const bool names_decide = region.policies.looks_at_names();

  std::optional<VerifiedCall> verified;
  if (tape->verifier() != nullptr) {
    verified.emplace(*tape, facts, arguments, index);
  }
  std::optional<Overwrites> writes;
  if (!facts.written.empty()) {
    writes.emplace(*tape, facts, arguments, may_recompute && facts.has_fresh_results, names_decide);
  }
  const bool timed = budget != nullptr && !budget->modelled_costs();
  const auto started = timed ? c10::getApproximateTime() : 0;
  at::Generator random_state;
  if (facts.draws && (may_recompute || names_decide)) {
    const RecordedDraw draw(facts, stack->data() + (stack->size() - facts.num_arguments));
    random_state = draw.before();
    facts.op.redispatchBoxed(keys, stack);
  } else {
    run_op(facts, keys, arguments, budget, stack);
  }
  const auto elapsed = timed ? c10::getApproximateTime() - started : 0;
  if (logged) {
    logged->ran();
  }
  if (verified) {
    verified->check_arguments();
  }
  const c10::ArrayRef<c10::IValue> results = top(*stack, facts.num_returns);
  if (!writes && !has_result_tensors(results)) {
    return;
  }
  if (!known) {
    known = region.policies.decide(facts, OpContextFactory::make(facts.op, arguments, results, index));
  }
  c10::SmallVector<Value*, 2> packs;
  {
    const Tape::Lock lock(*tape);
    tape->names_decide = names_decide;
    NodeBuilder(*tape, {.facts = facts,
                        .keys = keys,
                        .tls_keys = tls_keys,
                        .arguments = arguments,
                        .results = results,
                        .writes = writes ? &*writes : nullptr,
                        .random_state = random_state,
                        .index = index,
                        .cost = budget != nullptr && budget->modelled_costs() ? modelled_cost(facts, arguments, results)
                                                                              : static_cast<double>(elapsed)})
        .build(*known);
    packs = tape->take_pending_packs();
  }
  if (logged) {
    leave_results(*logged, results, writes ? writes->targets() : c10::ArrayRef<Overwrites::Target>());
  }
  if (verified) {
    verified->note_results(results);
  }
  pack_values(*tape, packs);
  if (budget != nullptr) {
    budget->make_room(0, [&] { return facts.name; });
  }
}

}  // namespace ac2::internal
