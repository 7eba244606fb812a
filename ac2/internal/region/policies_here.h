// The policies of the calling thread's region, for code that cannot see the region.
//
// Threads: concerns the calling thread.
#pragma once

namespace ac2::internal {

// All policies in force here save the results of every op as they are, or no region is open.
bool policies_here_save_everything();

// Whether a region is open on this thread, also inside an op, while ops are not recorded.
bool is_region_open_here();

}  // namespace ac2::internal
