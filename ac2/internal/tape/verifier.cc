#include "ac2/internal/tape/verifier.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "ac2/internal/libtorch/fingerprint.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/operators/op_tables.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && has_plain_storage(*tensor.unsafeGetTensorImpl());
}

std::string_view name_without_overload(const OpFacts& facts) {
  return std::string_view(facts.name).substr(0, facts.name.find('.'));
}

std::string describe(const Node& node) {
  return node.facts->name + " (op " + std::to_string(node.index) + " of its region)";
}

uint64_t fingerprint_of(const TensorMeta& elements, const c10::Storage& storage) {
  return fingerprint(elements.over(storage));
}

// Of all of the storage that `tensor` lies in, if nothing better is known.
const TensorMeta* elements_of_storage(Tape& tape, const at::Tensor& tensor) {
  const TensorMeta meta(*tensor.unsafeGetTensorImpl());
  const size_t nbytes = tensor.storage().nbytes();
  return meta.covers(nbytes) ? tape.intern(tensor) : tape.intern(meta.flattened(nbytes).over(tensor.storage()));
}

}  // namespace

VerifiedCall::VerifiedCall(Tape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, int64_t index)
    : tape_(tape), facts_(facts), index_(index) {
  c10::SmallVector<const c10::StorageImpl*, 2> targets;
  {
    const Tape::Lock lock(tape);
    for (const uint16_t i : facts.written) {
      for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
        if (!is_plain(tensor)) {
          return;
        }
        const Value* old = tape.known(tensor);
        const Expected* expected =
            old != nullptr && old->nbytes == tensor.storage().nbytes() ? tape.verifier()->expected(old) : nullptr;
        written_.push_back({tensor, expected != nullptr ? expected->elements : elements_of_storage(tape, tensor)});
        targets.push_back(tensor.storage().unsafeGetStorageImpl());
      });
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
      if (!is_plain(tensor)) {
        return;
      }
      check_unchanged(tape, tensor);
      const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      if (std::find(targets.begin(), targets.end(), storage) == targets.end()) {
        reads_.push_back({tensor, static_cast<uint16_t>(i), fingerprint(tensor)});
      }
    });
  }
}

void VerifiedCall::check_arguments() const {
  for (const Read& read : reads_) {
    TORCH_CHECK(fingerprint(read.tensor) == read.before, "Verify: ", facts_.name, " (op ", index_,
                " of its region) wrote into its argument '", facts_.op.schema().arguments()[read.argument].name(),
                "' of sizes ", read.tensor.sizes(),
                ", which its schema does not say, so gradients that need the old or the new contents would be wrong. "
                "Declare the argument as Tensor(a!) where the op is registered; for an op that is not yours, add a row "
                "to the table in ac2/internal/operators/op_tables.cc.");
  }
}

void VerifiedCall::note_results(c10::ArrayRef<c10::IValue> results) const {
  std::vector<Written> made = written_;
  {
    const Tape::Lock lock(tape_);
    for_each_tensor(results, [&](const at::Tensor& tensor) {
      const bool known = !is_plain(tensor) || std::any_of(made.begin(), made.end(), [&](const Written& other) {
        return other.tensor.storage().is_alias_of(tensor.storage());
      });
      if (!known) {
        made.push_back({tensor, tape_.intern(tensor)});
      }
    });
  }
  for (Written& value : made) {
    const c10::Storage& storage = value.tensor.storage();
    if (value.elements->needed_bytes() > storage.nbytes()) {
      continue;  // a write that shrank it
    }
    const uint64_t bits = fingerprint_of(*value.elements, storage);
    const Tape::Lock lock(tape_);
    const Value* current = tape_.known(value.tensor);
    if (current == nullptr || current->producer == nullptr) {
      continue;
    }
    if (is_undefined_result(name_without_overload(facts_), current->producer->outputs[current->slot].flat_result)) {
      tape_.verifier()->set_inexact(current);
    } else {
      tape_.verifier()->expect(current, {value.elements, bits});
    }
  }
}

void check_unchanged(Tape& tape, const at::Tensor& tensor) {
  if (!is_plain(tensor)) {
    return;
  }
  Expected expected;
  std::string producer;
  {
    const Tape::Lock lock(tape);
    const Value* value = tape.known(tensor);
    if (value == nullptr || value->saved || value->changed_outside() || value->nbytes != tensor.storage().nbytes() ||
        tape.verifier()->expected(value) == nullptr) {
      return;
    }
    expected = *tape.verifier()->expected(value);
    producer = describe(*value->producer);
  }
  TORCH_CHECK(
      fingerprint_of(*expected.elements, tensor.storage()) == expected.fingerprint, "Verify: the result of ", producer,
      ", of sizes ", expected.elements->sizes(),
      ", has changed since, though no version counter says so. Something wrote to it that no dispatcher sees "
      "(data_ptr(), another library), and it would be recomputed as it was. Write to it with ATen ops, or tag it "
      "with tag_with_policy(tensor, CheckpointPolicy::MUST_SAVE) before.");
}

void check_replay(Tape& tape, const Node& node, c10::ArrayRef<c10::Storage> storages) {
  std::vector<std::optional<Expected>> expected(storages.size());
  {
    const Tape::Lock lock(tape);
    Verifier& verifier = *tape.verifier();
    const bool inexact = std::any_of(node.inputs.begin(), node.inputs.end(), [&](const NodeInput& input) {
      return input.value != nullptr && verifier.is_inexact(input.value);
    });
    for (size_t i = 0; i < storages.size(); ++i) {
      const Value* value = node.outputs[i].value;
      if (!storages[i] || value == nullptr) {
        continue;
      }
      if (inexact) {
        verifier.set_inexact(value);
      } else if (const Expected* known = verifier.expected(value)) {
        expected[i] = *known;
      }
    }
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    if (!expected[i]) {
      continue;
    }
    TORCH_CHECK(fingerprint_of(*expected[i]->elements, storages[i]) == expected[i]->fingerprint, "Verify: replaying ",
                describe(node), " gave other bits than forward, in a result of sizes ", expected[i]->elements->sizes(),
                " and dtype ", expected[i]->elements->dtype(),
                ". Either its kernel is not deterministic, or one of its inputs was written to since without anyone "
                "saying so (an op whose schema does not declare a write, data_ptr()). Save its results "
                "(ac2::policies::save_ops or tag_with_policy), use deterministic algorithms, or declare the write.");
  }
}

void note_packed(Tape& tape, const Value& value, const at::Tensor& tensor) {
  const uint64_t bits = fingerprint(tensor);
  const Tape::Lock lock(tape);
  if (tape.verifier()->expected(&value) == nullptr) {
    tape.verifier()->expect(&value, {tape.intern(tensor), bits});
  }
}

void check_unpacked(Tape& tape, const Value& value, const c10::Storage& storage) {
  Expected expected;
  {
    const Tape::Lock lock(tape);
    if (tape.verifier()->expected(&value) == nullptr) {
      return;
    }
    expected = *tape.verifier()->expected(&value);
  }
  if (fingerprint_of(*expected.elements, storage) != expected.fingerprint) {
    const Tape::Lock lock(tape);
    tape.verifier()->set_inexact(&value);
  }
}

}  // namespace ac2::internal
