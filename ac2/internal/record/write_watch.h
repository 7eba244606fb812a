// Sees each op that writes, on whatever thread and whether or not a region is open there, as long as a tape is alive:
// what a region has taken may be written to between the region and its backward.
//
// The kernels stand behind the dispatch key BackendSelect, which LibTorch includes for every thread. PyTorch itself has
// kernels there for factories alone. Only operators that write get one of ours; all others never come here.
//
//   install_write_watch();   // at the opening of each region: operators may have been loaded since
//
// While no tape is alive, an op that writes pays for the way through the kernel. The commonest have a typed one, the
// others are called with a stack.
//
// Rejected: kRecordKey, kept included on a thread while a graph of a region that is over waits. Every op would come
// there, and a thread that never had a region would not. Rejected too: a key in the tensors themselves, which an alias
// that was made before has not; copy-on-write storages (c10/core/impl/COW.h), which give the writer other memory, so
// that its pointers and NumPy's views of it are no longer those of the tensor.
//
// Not seen: writes that no dispatcher sees (through data_ptr()), and writes to tensors that have neither a plain
// storage nor part_storages().
//
// Threads: any.
#pragma once

namespace ac2::internal {

void install_write_watch();

}  // namespace ac2::internal
