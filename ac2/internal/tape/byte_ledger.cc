#include "ac2/internal/tape/byte_ledger.h"

namespace ac2::internal {

void ByteLedger::tell_change(const Value& value, StateChange what, ValueState old, const CountedBytes& before,
                             const CountedBytes& now) const {
  const ValueState state = value.state();
  const auto counts_as_saved = [&](Held held) {
    const bool is_on_host = held == Held::kPacked && contains(kOnHost, value.packed_form()->reason());
    return held != Held::kNot && held != Held::kWhole && !is_on_host;
  };
  // The sums as each event leaves them.
  int64_t saved = saved_bytes_ - (now.saved - before.saved);
  int64_t recomputed = recomputed_bytes_ - (now.recomputed - before.recomputed);
  const auto tell_sums = [&](int64_t bytes, ByteChange::Kind kind) {
    observers_.tell([&](Observer& observer) { observer.bytes_changed({value, kind, bytes, saved, recomputed}); });
  };
  if (changes_held(what) && counts_as_saved(old.held)) {
    saved -= before.saved;
    tell_sums(before.saved, ByteChange::Kind::kRelease);
  }
  if (changes_there(what) && old.there == There::kReplayed) {
    recomputed -= before.recomputed;
    tell_sums(before.recomputed, ByteChange::Kind::kDrop);
  }
  if (changes_there(what) && state.there == There::kReplayed) {
    recomputed += now.recomputed;
    tell_sums(now.recomputed, ByteChange::Kind::kReplay);
  }
  if (changes_held(what) && state.held == Held::kPacked) {
    tell_sums(value.bytes(), value.is_offloaded() ? ByteChange::Kind::kOffload : ByteChange::Kind::kPack);
  }
  if (changes_held(what) && counts_as_saved(state.held)) {
    saved += now.saved;
    tell_sums(now.saved, ByteChange::Kind::kHold);
  }
}

void ByteLedger::write_to(TraceStats& stats) const {
  stats.saved_bytes = saved_bytes_;
  stats.offloaded_bytes = offloaded_bytes_;
  stats.recomputed_bytes = recomputed_bytes_;
  stats.peak_bytes = peak_bytes_;
  stats.copied_bytes = copied_bytes_;
  stats.evicted_values = evicted_values_;
  stats.evicted_bytes = evicted_bytes_;
  stats.packed_values = packed_values_;
  stats.recomputed_ops = replayed_nodes_;
  stats.replayed_bytes = replayed_bytes_;
  stats.verified_results = verified_results_;
}

}  // namespace ac2::internal
