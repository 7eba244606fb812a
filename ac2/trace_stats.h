// The numbers that a trace counts. Trace::stats() in ac2/trace.h returns them.
#pragma once

#include <cstdint>

namespace ac2 {

// Bytes are those of whole storages: a view counts what it views, and a storage counts once.
struct TraceStats {
  int64_t recorded_ops = 0;      // ops seen by the region, views included
  int64_t live_nodes = 0;        // nodes (recorded calls) that something still needs
  int64_t saved_bytes = 0;       // held for backward now, with the inputs and parameters that ops need
  int64_t recomputed_ops = 0;    // ops replayed so far
  int64_t recomputed_bytes = 0;  // bytes of replayed results held now
  int64_t replayed_bytes = 0;    // bytes of all results that replays have computed so far
  // Replayed results that verify mode has compared with forward's so far. If it stays 0 after a backward of a region
  // with ScopeOptions::verify, nothing that could be compared was replayed: the option has checked no replay.
  int64_t verified_results = 0;
  int64_t peak_bytes = 0;  // the most of saved_bytes and recomputed_bytes together so far
  // Copied so far because an op was about to overwrite a value that was still needed, or had read memory that LibTorch
  // did not allocate and that may change at any time.
  int64_t copied_bytes = 0;
  int64_t evicted_values = 0;   // values that a memory budget dropped so far
  int64_t evicted_bytes = 0;    // bytes of those
  int64_t packed_values = 0;    // values that a memory budget packed into a form so far, in place of dropping
  int64_t offloaded_bytes = 0;  // now in another memory, or on the way there; these are not in saved_bytes
  // Should have been offloaded so far, but stayed on the device because no pinned memory was left. In saved_bytes while
  // they are held.
  int64_t not_offloaded_bytes = 0;
};

}  // namespace ac2
