#include "ac2/internal/tape/byte_ledger.h"

namespace ac2::internal {

void ByteLedger::packed(const Value& value) {
  const PackedForm& form = *value.packed_form();
  if (form.is_offload) {
    offloaded_bytes_ += value.bytes();
  } else {
    saved(value, form.packed_bytes, ByteChange::Kind::kHold);
  }
}

void ByteLedger::unpacked(const Value& value) {
  const PackedForm& form = *value.packed_form();
  if (form.is_offload) {
    offloaded_bytes_ -= value.bytes();
  } else {
    saved(value, -form.packed_bytes, ByteChange::Kind::kRelease);
  }
}

void ByteLedger::write_to(TraceStats& stats) const {
  stats.saved_bytes = saved_bytes_;
  stats.offloaded_bytes = offloaded_bytes_;
  stats.recomputed_bytes = recomputed_bytes_;
  stats.peak_bytes = peak_bytes_;
  stats.copied_bytes = copied_bytes_;
  stats.evicted_values = evicted_values_;
  stats.recomputed_ops = replayed_nodes_;
}

}  // namespace ac2::internal
