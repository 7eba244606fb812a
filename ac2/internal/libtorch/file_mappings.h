// Files that are mapped into this process and that nobody else writes to through the mapping.
//
//   if (is_file_that_stays(storage, /*may_be_written=*/true)) …
//
// Model weights are often read so: by torch.load(mmap=True), by safetensors, by loaders of the program's own.
//
// Threads: any.
#pragma once

#include <c10/core/StorageImpl.h>

namespace ac2::internal {

// Whether the bytes of `storage`, in the host's memory, are those of a file on a disk, and stay as they are:
//   - the mapping cannot be written to, and is no shared memory by which processes talk to each other; or
//   - unless `may_be_written` says that the program may have the pointer, it is private to this process, and no part of
//     a program or library.
// False where the system does not say.
//
// Reads the process's list of mappings the first time that it is asked about a storage, and remembers the answer for as
// long as the storage lives. A storage of less than 64 KiB may be taken for what was mapped there earlier; the answer
// is false then.
bool is_file_that_stays(c10::StorageImpl& storage, bool may_be_written);

}  // namespace ac2::internal
