#include "ac2/internal/tape/byte_ledger.h"

namespace ac2::internal {

void ByteLedger::held(const Value& value) {
  const CountedBytes counted = value.counted_bytes();
  offloaded_bytes_ += counted.offloaded;
  if (value.is_packed()) {
    tell(value, value.bytes(), value.is_offloaded() ? ByteChange::Kind::kOffload : ByteChange::Kind::kPack);
  }
  if (value.state().held != Held::kWhole && !value.is_offloaded()) {
    saved(value, counted.saved, ByteChange::Kind::kHold);
  }
}

void ByteLedger::held_no_more(const Value& value) {
  const CountedBytes counted = value.counted_bytes();
  offloaded_bytes_ -= counted.offloaded;
  if (value.state().held != Held::kWhole && !value.is_offloaded()) {
    saved(value, -counted.saved, ByteChange::Kind::kRelease);
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
  stats.verified_results = verified_results_;
}

}  // namespace ac2::internal
