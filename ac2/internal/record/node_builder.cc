#include "ac2/internal/record/node_builder.h"

#include <ATen/Context.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ac2/internal/graph/read_sample.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/record/discrete_results.h"
#include "ac2/internal/record/part_writes.h"

namespace ac2::internal {

namespace {

C10_NOINLINE bool is_idle_in_python(const at::Tensor& tensor, const RecordedCall& call) {
  return std::find(call.idle_in_python.begin(), call.idle_in_python.end(), tensor.unsafeGetTensorImpl()) !=
         call.idle_in_python.end();
}

// Whether nobody but the call's results has a handle on `tensor`.
C10_ALWAYS_INLINE bool is_ours_alone(const at::Tensor& tensor, const RecordedCall& call) {
  const size_t uses = tensor.use_count();
  return uses == 1 || (uses == 2 && is_idle_in_python(tensor, call));
}

// How many of the results nobody else has a handle on and lie in `storage`.
C10_NOINLINE size_t handles_among(const c10::Storage& storage, const RecordedCall& call) {
  size_t among_results = 0;
  for_each_tensor(call.results, [&](const at::Tensor& result) {
    among_results += result.defined() && result.has_storage() && result.storage().is_alias_of(storage) &&
                     is_ours_alone(result, call);
  });
  return among_results;
}

// A result that the op has made, rather than passed on or kept a handle of.
C10_ALWAYS_INLINE bool is_fresh(const at::Tensor& tensor, const RecordedCall& call) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  const size_t handles = storage.use_count();
  return handles == 1 ? is_ours_alone(tensor, call) : handles == handles_among(storage, call);
}

class NodeBuilder {
 public:
  NodeBuilder(LockedTape& tape, const RecordedCall& call)
      : tape_(tape), call_(call), asks_for_gradients_(tape.asks_for_gradients()) {}

  bool build(const ResolvedDecision& resolved) {
    const PolicyDecision& decision = resolved.decision;
    Node* node = node_ = tape_.lifetimes().make_node();
    node->facts = &call_.facts;
    node->keys = call_.keys;
    node->environment = tape_.intern(call_.environment);
    node->index = call_.index;
    node->decision = decision.policy();
    if (call_.draws != nullptr) {
      node->replayable = !call_.draws->empty();
      if (node->replayable) {
        node->add_extras().draws = *call_.draws;
      }
    }
    if (C10_UNLIKELY(call_.facts.communicates)) {
      // Not for the sake of a tag either.
      node->replayable &= decision.policy() == CheckpointPolicy::MUST_RECOMPUTE;
      if (node->replayable) {
        tape_.bytes().note_replays_communicate();
      }
    }
    add_writes();
    add_arguments();
    const bool has_budget = tape_.budget().get() != nullptr;
    saves_ = !call_.outlook.may_recompute() || (call_.outlook.offload && leaves_device());
    if (!saves_ && C10_UNLIKELY(!node->replayable || lacks_old_bytes_) && !must_save()) {
      return false;
    }
    const bool varies = may_vary_itself();
    const bool chooses_anew =
        follows_what_varies_ || (varies && (call_.facts.is_aten || chooses_mostly(call_.results)));
    if (!saves_ && C10_UNLIKELY(chooses_anew || tape_.kept().may_be_inexact())) {
      save_choices();
    }
    node->may_vary = varies || follows_what_varies_;
    samples_ = !saves_ && is_on_cpu_alone() && !call_.facts.communicates;
    attach_results(decision);
    if (node->live_outputs == 0) {
      tape_.lifetimes().discard(node);
      return true;
    }
    if (has_budget && !saves_) {
      tape_.kept().add_call(node, call_.cost, call_.outlook.result.retention);
      if (C10_UNLIKELY(tape_.kept().offers_forms())) {
        offer_forms();
      }
    }
    tape_.observers().tell(
        [&](Observer& observer) { observer.node_recorded(*node, decision, resolved.scope_id, call_.cost); });
    tape_.node_finished();
    return true;
  }

 private:
  void add_writes() {
    if (call_.writes == nullptr) {
      return;
    }
    call_.writes->note_versions();
    for (const Overwrites::Target& target : call_.writes->targets()) {
      node_->add_extras().writes.push_back(
          {target.is_read() ? target.old : nullptr, target.nbytes, target.tensor.device()});
      node_->replayable &= target.is_recoverable() || target.is_recoverable_by_name();
      node_->replayable &= !Overwrites::left_bytes_behind(target);
      lacks_old_bytes_ |= target.is_recoverable_by_name();
    }
    node_->replayable &= !call_.writes->opaque();
  }

  C10_ALWAYS_INLINE void add_arguments() {
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      const c10::IValue& argument = call_.arguments[i];
      if (argument.isTensor()) {
        add_input(argument.toTensor(), i, -1);
      } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
        for_each_tensor_at(argument, [&](const at::Tensor& tensor, int32_t place) { add_input(tensor, i, place); });
        node_->add_extras().lists.push_back({static_cast<uint16_t>(i), argument.isOptionalTensorList(),
                                             static_cast<int32_t>(argument.toListRef().size())});
      } else if (argument.isDevice()) {
        // In backward another may be current.
        node_->constants.emplace_back(with_index(argument.toDevice()));
      } else {
        node_->constants.push_back(argument);
        for_each_tensor(c10::ArrayRef<c10::IValue>(argument), [&](const at::Tensor&) { node_->replayable = false; });
      }
    }
  }

  C10_ALWAYS_INLINE void add_input(const at::Tensor& tensor, size_t argument, int32_t list_index) {
    if (!tensor.defined()) {
      if (list_index < 0) {
        node_->constants.emplace_back(tensor);
      }
      return;
    }
    NodeInput input;
    input.argument = static_cast<uint16_t>(argument);
    input.list_index = list_index;
    input.requires_grad = call_.facts.is_composite && tensor.requires_grad();
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const bool plain = has_plain_storage(impl);
    if (!plain && impl.is_python_dispatch()) {
      node_->replayable = false;  // its results are saved, because Python's code is Python's affair
    }
    const int target =
        call_.writes != nullptr && plain ? call_.writes->target_of(impl.unsafe_storage().unsafeGetStorageImpl()) : -1;
    if (target >= 0) {
      input.write = static_cast<int16_t>(target);
      input.value = node_->writes()[target].old;
      input.meta = meta_before(tensor, argument, list_index);
      follows_what_varies_ |=
          input.value != nullptr && input.value->counts_on_replay() && input.value->producer()->may_vary;
    } else {
      input.value = plain ? tape_.storages().read_plain(tensor) : tape_.storages().read(tensor);
      input.meta = plain ? tape_.intern(tensor) : nullptr;
      tape_.is_read(input.value, tensor);
      if (C10_UNLIKELY(input.value->is_foreign())) {
        input.value = read_foreign(input.value);
      } else if (C10_UNLIKELY(input.value->is_managed())) {
        node_->replayable &= !input.value->managed_form()->tensor->is_out_of_date;
      } else if (input.value->counts_on_replay()) {
        follows_what_varies_ |= input.value->producer()->may_vary;
      } else if (plain && !input.value->is_on_its_way()) {
        input.sample = read_sample(tensor);
      }
    }
    if (input.value != nullptr) {
      tape_.lifetimes().ref(input.value);
      if (asks_for_gradients_) {
        ask_for_gradient(tensor, input.value);
      }
      if (plain && target < 0) {
        tape_.observers().tell([&](Observer& observer) { observer.tensor_seen(*input.value, tensor); });
      }
    }
    node_->inputs.push_back(std::move(input));
  }

  // The copy that a replay takes in place of `value`. Without a copy there is no replay.
  C10_NOINLINE Value* read_foreign(Value* value) {
    if (Value* copy = call_.foreign_reads != nullptr ? call_.foreign_reads->copy_of(*value) : nullptr) {
      return copy;
    }
    reads_foreign_ = true;
    node_->replayable = false;
    return value;
  }
  // False if copies may yet be made, so that the results need not be saved.
  C10_NOINLINE bool must_save() {
    if (reads_foreign_ && call_.foreign_reads == nullptr) {
      tape_.lifetimes().discard(node_);
      return false;
    }
    saves_ = true;
    return true;
  }

  // Under deterministic algorithms LibTorch's kernels add in one order.
  C10_ALWAYS_INLINE bool may_vary_itself() const {
    return C10_UNLIKELY(call_.facts.varies != Varies::kNowhere) && varies_here();
  }
  C10_NOINLINE bool varies_here() const {
    if (call_.facts.varies == Varies::kOnAccelerators && is_on_cpu_alone()) {
      return false;
    }
    return !call_.facts.is_aten || !at::globalContext().deterministicAlgorithms();
  }
  // The op's choice is to stand in replays; see discrete_results.h.
  C10_NOINLINE void save_choices() {
    const bool is_inexact = tape_.kept().may_be_inexact();
    if ((is_inexact || node_->decision != CheckpointPolicy::MUST_RECOMPUTE) &&
        has_discrete_results(call_.facts, call_.arguments, call_.results)) {
      saves_ = true;
      if (is_inexact) {
        tape_.kept().note_choice();
      }
    }
  }

  C10_NOINLINE void ask_for_gradient(const at::Tensor& tensor, Value* value) {
    node_->reaches_far_back |= value->producer() != nullptr && value->producer()->reaches_far_back;
    if (!tensor.requires_grad()) {
      tape_.set_without_gradient(value);
      return;
    }
    takes_gradient_ = true;
    if (value->is_without_gradient()) {
      value->set_without_gradient(tensor.is_leaf());
    }
  }
  // Whether surely no gradient is recorded for the results.
  bool is_without_gradient() const { return !call_.environment.grad_mode || (asks_for_gradients_ && !takes_gradient_); }

  const TensorMeta* meta_before(const at::Tensor& tensor, size_t argument, int32_t list_index) const {
    for (const Overwrites::Argument& written : call_.writes->arguments()) {
      if (written.argument == argument && written.list_index == list_index) {
        return written.meta;
      }
    }
    return tape_.intern(tensor);  // the op only reads there
  }

  void attach_results(const PolicyDecision& decision) {
    int32_t flat_index = -1;
    for_each_tensor(call_.results, [&](const at::Tensor& tensor) {
      ++flat_index;
      if (!has_plain_storage(tensor)) {
        return;  // held whole, if anything needs it
      }
      c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if ((call_.writes != nullptr && call_.writes->target_of(storage) >= 0) ||
          !(is_fresh(tensor, call_) || is_on_its_way(storage))) {
        return;
      }
      if (Value* value = tape_.storages().add_made(tensor)) {
        if (C10_UNLIKELY(call_.facts.communicates)) {
          // The collective may be about to write there. The version is noted when the tensor has been waited for, or,
          // if nothing waits for results of the op, when it is used.
          value->forget_versions();
        }
        attach(value, {.flat_result = flat_index}, tensor, decision);
      }
    });
    if (call_.writes == nullptr) {
      return;
    }
    int16_t write = -1;
    for (const Overwrites::Target& target : call_.writes->targets()) {
      ++write;
      if (target.accumulates || target.handed_on || target.tensor.storage().unsafeGetStorageImpl() != target.storage) {
        continue;
      }
      // A value without its old bytes, or with others that write there, cannot be computed again. Such a value is like
      // those from outside, in this form.
      if ((!target.is_recoverable() && !target.is_recoverable_by_name()) || target.foreign ||
          tape_.is_exposed(target.storage)) {
        if (decision.form() || decision.offloads()) {
          set_form(tape_.storages().add_written(target.tensor), target.tensor, decision);
        }
        continue;
      }
      Value* value = tape_.storages().add_written(target.tensor);
      attach(value, {.write = write}, target.tensor, decision);
      const TensorMeta* written = call_.writes->only_argument_of(target);
      if (target.old != nullptr && target.is_read() && written != nullptr) {
        hand_on_recomputed(tape_, target.old, value, target.tensor, *written);
      }
    }
  }

  // Made by a collective that is to be replayed, which has a handle on it until it has come.
  bool is_on_its_way(const c10::StorageImpl* storage) const {
    if (C10_LIKELY(!call_.facts.communicates)) {
      return false;
    }
    bool taken = false;
    for_each_tensor(call_.arguments, [&](const at::Tensor& argument) {
      taken |= has_plain_storage(argument) && argument.storage().unsafeGetStorageImpl() == storage;
    });
    return node_->replayable && !taken;
  }

  void attach(Value* value, NodeOutput output, const at::Tensor& tensor, const PolicyDecision& decision) {
    tape_.decisions().set_decided(value, saves_ ? Decided::kSave : call_.outlook.result.decided);
    tape_.lifetimes().attach(node_, value, output, saves_);
    if (samples_) {
      value->set_sample(sample_of(*value->original_address()));
    }
    if (is_without_gradient()) {
      tape_.set_without_gradient(value);
    }
    tape_.observers().tell([&](Observer& observer) { observer.tensor_seen(*value, tensor); });
    set_form(value, tensor, decision);
  }

  void set_form(Value* value, const at::Tensor& tensor, const PolicyDecision& decision) {
    if (decision.form()) {
      tape_.decisions().set_form(value, decision.form(), tensor);
    } else if (decision.offloads() && !value->counts_on_replay()) {
      tape_.offloading().offload(value, tensor);
    }
  }

  C10_NOINLINE void offer_forms() {
    c10::SmallVector<at::Tensor, 4> results;
    for_each_tensor(call_.results, [&](const at::Tensor& tensor) { results.push_back(tensor); });
    for (const NodeOutput& output : node_->outputs) {
      if (output.value != nullptr) {
        tape_.kept().offer_forms(output.value, output.write >= 0 ? call_.writes->targets()[output.write].tensor
                                                                 : results[output.flat_result]);
      }
    }
  }

  // No other device may still be about to write what the op has returned.
  bool is_on_cpu_alone() const {
    c10::DispatchKeySet keys = call_.keys;  // raw_repr() is not const in LibTorch 2.7
    return (keys.raw_repr() & c10::full_backend_mask) == c10::DispatchKeySet(c10::BackendComponent::CPUBit).raw_repr();
  }

  // Even under a budget, because offloaded values take none of it.
  bool leaves_device() const {
    bool any = false;
    for_each_tensor(call_.results,
                    [&](const at::Tensor& tensor) { any |= tensor.defined() && tape_.offloading().may_leave(tensor); });
    return any;
  }

  LockedTape& tape_;
  const RecordedCall& call_;
  Node* node_ = nullptr;
  bool lacks_old_bytes_ = false;
  bool reads_foreign_ = false;        // the op reads bytes that a replay could not read again
  bool follows_what_varies_ = false;  // an op that a replay would run first may compute other bits
  bool saves_ = true;
  bool samples_ = false;  // results, so that a kernel which no dispatcher sees is found by what it has written
  const bool asks_for_gradients_;
  bool takes_gradient_ = false;  // if it asks
};

}  // namespace

bool build_node(LockedTape& tape, const RecordedCall& call, const ResolvedDecision& decision) {
  return NodeBuilder(tape, call).build(decision);
}

}  // namespace ac2::internal
