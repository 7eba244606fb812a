// What a trace counts. Trace::stats() in ac2/trace.h returns one.
#pragma once

#include <cstdint>

namespace ac2 {

// Bytes are those of whole storages: a view counts what it views, and a storage counts once.
struct TraceStats {
  int64_t recorded_ops = 0;      // ops seen by the region, views included
  int64_t live_nodes = 0;        // op nodes still reachable
  int64_t saved_bytes = 0;       // held for backward now, inputs and parameters that ops need included
  int64_t recomputed_ops = 0;    // ops replayed so far
  int64_t recomputed_bytes = 0;  // bytes of replayed results held now
  int64_t copied_bytes = 0;      // copied so far because a value still needed was about to be overwritten
  int64_t evicted_values = 0;    // values that a memory budget dropped so far
  int64_t offloaded_bytes = 0;   // now in another memory, or on the way there; not in saved_bytes
  // Kept on the device because there was no pinned memory left to offload them to, so far. In saved_bytes while held.
  int64_t not_offloaded_bytes = 0;
};

}  // namespace ac2
