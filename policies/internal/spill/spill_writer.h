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

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

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
  // With the lock: there is a thread if there is something to write.
  void start();
  void lock_for_fork() override { mutex_.lock(); }
  void unlock_after_fork() override { mutex_.unlock(); }
  void forked() override;
  void run();
  // Writes it with no lock held.
  void write_out(SpilledTensor& spilled, int64_t offset);
  // With the lock, after that. Returns the tensor, to be let go of without the lock.
  at::Tensor finish(SpilledTensor& spilled);

  const std::string directory_;
  const int64_t queue_bytes_;
  const int64_t file_bytes_;

  // A forked child can neither use nor destroy these, for in them a thread waits that it does not have.
  struct Waits {
    std::condition_variable work;     // for the thread
    std::condition_variable changed;  // for those that wait for room, or for a tensor
    std::thread thread;
  };

  std::mutex mutex_;
  std::unique_ptr<Waits> waits_ = std::make_unique<Waits>();
  std::deque<std::shared_ptr<SpilledTensor>> queue_;
  std::shared_ptr<SpilledTensor> being_written_;
  int64_t queued_bytes_ = 0;
  int64_t needed_ = 0;  // tensors not forgotten
  bool stopping_ = false;
  std::string error_;  // not reported to anybody yet
  std::shared_ptr<const SpillFile> file_;
  int64_t file_end_ = 0;
};

}  // namespace ac2::policies::internal
