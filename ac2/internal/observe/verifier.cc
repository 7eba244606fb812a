#include "ac2/internal/observe/verifier.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ac2/internal/forms/functions_form.h"
#include "ac2/internal/libtorch/fingerprint.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/operators/op_tables.h"

namespace ac2::internal {

namespace {

std::string_view name_without_overload(const OpFacts& facts) {
  return std::string_view(facts.name).substr(0, facts.name.find('.'));
}

uint64_t fingerprint_of(const TensorMeta& elements, const c10::Storage& storage) {
  return fingerprint(elements.over(storage));
}

// The elements of all of the storage that `tensor` lies in, if nothing better is known.
const TensorMeta* elements_of_storage(LockedTape& tape, const at::Tensor& tensor) {
  const TensorMeta meta(*tensor.unsafeGetTensorImpl());
  const size_t nbytes = tensor.storage().nbytes();
  return meta.covers(nbytes) ? tape.intern(tensor) : tape.intern(meta.flattened(nbytes).over(tensor.storage()));
}

}  // namespace

// A call in forward.
class Verifier::VerifiedCall final : public CallObservation {
 public:
  VerifiedCall(Verifier& verifier, const OpFacts& facts, int64_t index)
      : verifier_(verifier), facts_(facts), index_(index) {}

  // Throws if an argument that would be recomputed is not what its op returned: something wrote to it that no
  // dispatcher saw.
  void takes(c10::ArrayRef<c10::IValue> arguments) override {
    note_targets(arguments);
    for (size_t i = 0; i < arguments.size(); ++i) {
      for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
        if (!has_plain_storage(tensor)) {
          return;
        }
        verifier_.check_unwritten(tensor);
        if (!is_written(tensor)) {
          reads_.push_back({tensor, static_cast<uint16_t>(i), fingerprint(tensor)});
        }
      });
    }
  }

  // Throws if the op changed an argument that neither its schema nor the table of hidden writes says it writes.
  void check() override {
    const char* const cure = facts_.name.starts_with("replayable::")
                                 ? "Have the function write to a copy (clone()) and return it."
                                 : "Declare the argument as Tensor(a!) where the op is registered; for an op that is "
                                   "not yours, add a row to the "
                                   "table in ac2/internal/operators/op_tables.cc.";
    for (const Read& read : reads_) {
      TORCH_CHECK(
          fingerprint(read.tensor) == read.before, "Verify: ", facts_.name, " (op ", index_,
          " of its region) wrote into its argument '", facts_.op.schema().arguments()[read.argument].name(),
          "' of sizes ", read.tensor.sizes(),
          ", which its schema does not say, so gradients that need the old or the new contents would be wrong. ", cure);
    }
  }

  void recorded(c10::ArrayRef<c10::IValue> results, c10::ArrayRef<at::Tensor> /*written*/) override {
    if (!takes_part_) {
      return;
    }
    for (const Made& made : made_values(results)) {
      const c10::Storage& storage = made.tensor.storage();
      if (made.elements->needed_bytes() <= storage.nbytes()) {  // else a write has shrunk it
        note(made, fingerprint_of(*made.elements, storage));
      }
    }
  }

 private:
  struct Read {
    at::Tensor tensor;
    uint16_t argument;
    uint64_t before;
  };
  // A value that the op makes, or writes over, and the elements of it that are compared.
  struct Made {
    at::Tensor tensor;
    const TensorMeta* elements;
  };

  // The elements that made up the values which stand in the storages that the op writes.
  void note_targets(c10::ArrayRef<c10::IValue> arguments) {
    takes_part_ = true;
    const Tape::Lock tape(verifier_.tape_);
    for (const uint16_t i : facts_.written) {
      for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
        if (!has_plain_storage(tensor)) {
          return;
        }
        const Value* old = tape->storages().peek(tensor);
        const Expected* expected =
            old != nullptr && old->nbytes() == tensor.storage().nbytes() ? verifier_.expected(*old) : nullptr;
        written_.push_back({tensor, expected != nullptr ? expected->elements : elements_of_storage(*tape, tensor)});
      });
    }
  }

  bool is_written(const at::Tensor& tensor) const {
    return std::any_of(written_.begin(), written_.end(),
                       [&](const Made& target) { return target.tensor.storage().is_alias_of(tensor.storage()); });
  }

  std::vector<Made> made_values(c10::ArrayRef<c10::IValue> results) const {
    std::vector<Made> made = written_;
    const Tape::Lock tape(verifier_.tape_);
    for_each_tensor(results, [&](const at::Tensor& tensor) {
      const bool known = !has_plain_storage(tensor) || std::any_of(made.begin(), made.end(), [&](const Made& other) {
        return other.tensor.storage().is_alias_of(tensor.storage());
      });
      if (!known) {
        made.push_back({tensor, tape->intern(tensor)});
      }
    });
    return made;
  }

  void note(const Made& made, uint64_t bits) {
    const Tape::Lock tape(verifier_.tape_);
    const Value* value = tape->storages().peek(made.tensor);
    if (value == nullptr || value->producer() == nullptr) {
      return;
    }
    if (is_undefined_result(name_without_overload(facts_), value->producer()->outputs[value->slot()].flat_result)) {
      verifier_.inexact_.insert(value);
    } else {
      verifier_.expected_.insert_or_assign(value, Expected{made.elements, bits});
    }
  }

  Verifier& verifier_;
  const OpFacts& facts_;
  const int64_t index_;
  bool takes_part_ = false;
  std::vector<Read> reads_;
  std::vector<Made> written_;
};

// A replay of a node.
class Verifier::VerifiedReplay final : public ReplayObservation {
 public:
  VerifiedReplay(Verifier& verifier, const Node& node) : verifier_(verifier), node_(node) {}

  // Throws if what the replay made is not what forward computed.
  void check(c10::ArrayRef<c10::Storage> storages) override {
    const std::vector<std::optional<Expected>> expected = expected_of(storages);
    for (size_t i = 0; i < storages.size(); ++i) {
      if (!expected[i]) {
        continue;
      }
      const TensorMeta& elements = *expected[i]->elements;
      const bool same = fingerprint_of(elements, storages[i]) == expected[i]->fingerprint;
      note_compared();
      TORCH_CHECK(same, "Verify: replaying ", describe(node_), " gave other bits than forward, in a result of sizes ",
                  elements.sizes(), " and dtype ", elements.dtype(),
                  ". Either its kernel is not deterministic, or it draws random numbers that no default generator of "
                  "LibTorch's and no Generator among its arguments gives, or one of its inputs was written to since "
                  "without anyone saying so (an op whose schema does not declare a write, data_ptr()). Save its "
                  "results (",
                  spelled("ac2::policies::save_ops or tag_with_policy", "ac2.policies.save_ops or ac2.tag_with_policy"),
                  "), use deterministic algorithms, draw from "
                  "LibTorch's generators and register the op with the tag nondeterministic_seeded, or declare the "
                  "write.");
    }
  }

 private:
  void note_compared() {
    const Tape::Lock tape(verifier_.tape_);
    tape->ledger().result_verified();
  }

  std::vector<std::optional<Expected>> expected_of(c10::ArrayRef<c10::Storage> storages) {
    std::vector<std::optional<Expected>> all(storages.size());
    const Tape::Lock lock(verifier_.tape_);
    const bool inexact = std::any_of(node_.inputs.begin(), node_.inputs.end(), [&](const NodeInput& input) {
      return input.value != nullptr && verifier_.inexact_.contains(input.value);
    });
    for (size_t i = 0; i < storages.size(); ++i) {
      const Value* value = node_.outputs[i].value;
      if (!storages[i] || value == nullptr) {
        continue;
      }
      if (inexact) {
        verifier_.inexact_.insert(value);
      } else if (const Expected* expected = verifier_.expected(*value)) {
        all[i] = *expected;
      }
    }
    return all;
  }

  Verifier& verifier_;
  const Node& node_;
};

std::shared_ptr<Verifier> Verifier::start(Tape& tape) {
  std::shared_ptr<Verifier> verifier(new Verifier(tape));
  const Tape::Lock locked(tape);
  locked->observers().add(verifier);
  return verifier;
}

const Verifier::Expected* Verifier::expected(const Value& value) const {
  const auto it = expected_.find(&value);
  return it == expected_.end() ? nullptr : &it->second;
}

void Verifier::value_died(const Value& value) {
  expected_.erase(&value);
  inexact_.erase(&value);
}

std::unique_ptr<CallObservation> Verifier::observe_call(const OpFacts& facts, int64_t index) {
  return std::make_unique<VerifiedCall>(*this, facts, index);
}

std::unique_ptr<ReplayObservation> Verifier::observe_replay(const Node& node) {
  return std::make_unique<VerifiedReplay>(*this, node);
}

void Verifier::check_unwritten(const at::Tensor& tensor) {
  if (!has_plain_storage(tensor)) {
    return;
  }
  Expected known;
  std::string producer;
  {
    const Tape::Lock tape(tape_);
    const Value* value = tape->storages().peek(tensor);
    if (value == nullptr || !value->counts_on_replay() || value->changed_outside() ||
        value->nbytes() != tensor.storage().nbytes() || expected(*value) == nullptr) {
      return;
    }
    known = *expected(*value);
    producer = describe(*value->producer());
  }
  TORCH_CHECK(
      fingerprint_of(*known.elements, tensor.storage()) == known.fingerprint, "Verify: the result of ", producer,
      ", of sizes ", known.elements->sizes(),
      ", has changed since, though no version counter says so. Something wrote to it that no dispatcher sees "
      "(data_ptr(), another library), and it would be recomputed as it was. Write to it with ATen ops, or call ",
      spelled("ac2::expose(tensor)", "ac2.expose(tensor)"), " before, or save it, with a tag that it is given before (",
      spelled("tag_with_policy(tensor, CheckpointPolicy::MUST_SAVE)",
              "ac2.tag_with_policy(tensor, ac2.CheckpointPolicy.MUST_SAVE)"),
      ").");
}

void Verifier::before_pack(const Value& value, const at::Tensor& tensor) {
  const uint64_t bits = fingerprint(tensor);
  const Tape::Lock tape(tape_);
  if (expected(value) == nullptr && !inexact_.contains(&value)) {
    expected_.insert_or_assign(&value, Expected{tape->intern(tensor), bits});
  }
}

void Verifier::after_unpack(const Value& value, const c10::Storage& storage) {
  Expected known;
  {
    const Tape::Lock lock(tape_);
    if (expected(value) == nullptr) {
      return;
    }
    known = *expected(value);
  }
  if (fingerprint_of(*known.elements, storage) != known.fingerprint) {
    // The caller has pinned the value, so that its form stays.
    const Form& form = *value.packed_form()->form;
    TORCH_CHECK(!form.is_exact(), "Verify: ", described(form), " says that it is exact, but what it has unpacked for ",
                value.producer() != nullptr ? "the result of " + describe(*value.producer())
                                            : std::string("a tensor that was tagged or written to"),
                ", of sizes ", known.elements->sizes(),
                ", has other bits than what it packed. Return false from is_exact(), or mend the form.");
    const Tape::Lock lock(tape_);
    inexact_.insert(&value);
  }
}

}  // namespace ac2::internal
