// A thread that writes tensors to files, and a queue of bounded size before it.
//
//   const auto writer = std::make_shared<SpillWriter>("/scratch", 64 << 20, 256 << 20);
//   const std::shared_ptr<SpilledTensor> spilled = writer->write(tensor, "aten::mm");
//   writer->read(*spilled, out);
//   writer->forget(*spilled);
//
// A file is filled up to its size, then a new one is begun: its space is free when no tensor in it is needed any more.
//
// After fork() the thread is not in the child. There the queue begins anew, with what was in it and the tensor that was
// just being written, another thread and another file. Bytes that are in files already are read from these.
//
// Threads: any. No reference to a tensor is made or dropped with the writer's mutex: that takes Python's lock if Python
// has the tensor, and the thread that has that lock may want the mutex.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "ac2/internal/locks/condition.h"
#include "ac2/internal/locks/mutex.h"
#include "policies/internal/spill/fork_watch.h"
#include "policies/internal/spill/spill_file.h"

namespace ac2::policies::internal {

// A tensor's bytes on their way to a file, or there. The writer's mutex guards it.
struct SpilledTensor {
  enum class State { QUEUED, WRITING, WRITTEN, FAILED };

  std::string op;
  int64_t nbytes = 0;
  State state = State::QUEUED;
  bool counted = false;    // among the bytes of the queue
  bool forgotten = false;  // nobody will read it
  at::Tensor bytes;        // until they are written
  std::shared_ptr<const SpillFile> file;
  int64_t offset = 0;
  uint32_t checksum = 0;  // CRC-32
  std::string error;      // of the write that failed
};

class SpillWriter final : private WatchesFork {
 public:
  // Throws c10::Error if no file can be made in the directory. The thread starts with the first tensor.
  SpillWriter(std::string directory, int64_t queue_bytes, int64_t file_bytes);
  ~SpillWriter() override;
  SpillWriter(const SpillWriter&) = delete;
  SpillWriter& operator=(const SpillWriter&) = delete;

  // `dense` has no gaps, lies on the CPU, and may be overwritten once this returns. Waits for room in the queue. A
  // tensor that would never fit in is written before this returns, and not copied. Throws c10::Error if a write has
  // failed since the last call.
  std::shared_ptr<SpilledTensor> write(const at::Tensor& dense, const std::string& op);
  // Waits until it is written. c10::Error if that failed, or if other bytes come back.
  void read(const SpilledTensor& spilled, const at::Tensor& out);
  // The tensor will not be read any more.
  void forget(SpilledTensor& spilled);

 private:
  // There is a thread if there is something to write.
  void start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void lock_for_fork() override ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex_) { mutex_.lock(); }
  void unlock_after_fork() override ABSL_UNLOCK_FUNCTION(mutex_) { mutex_.unlock(); }
  void forked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run();
  // To `file`, which it makes if there is none.
  void write_out(SpilledTensor& spilled, std::shared_ptr<const SpillFile>& file, int64_t offset)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After that. Returns the tensor, to be let go of without the lock.
  at::Tensor finish(SpilledTensor& spilled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const int64_t queue_bytes_;
  const int64_t file_bytes_;

  // A forked child can neither use nor destroy these, for in them a thread waits that it does not have.
  struct Waits {
    ac2::internal::Condition work;     // for the thread
    ac2::internal::Condition changed;  // for those that wait for room, or for a tensor
    std::thread thread;
  };

  ac2::internal::Mutex mutex_;
  std::unique_ptr<Waits> waits_ = std::make_unique<Waits>();
  std::deque<std::shared_ptr<SpilledTensor>> queue_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SpilledTensor> being_written_ ABSL_GUARDED_BY(mutex_);
  int64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t needed_ ABSL_GUARDED_BY(mutex_) = 0;  // tensors not forgotten
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string error_ ABSL_GUARDED_BY(mutex_);  // not reported to anybody yet
  std::shared_ptr<const SpillFile> file_ ABSL_GUARDED_BY(mutex_);
  int64_t file_end_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ac2::policies::internal
