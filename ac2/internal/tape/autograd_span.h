// Which nodes of autograd's a region has made, by the numbers that autograd gives to those of one thread.
//
// Threads: guarded by the tape's lock. begin() and end() are for the recording thread.
#pragma once

#include <ATen/SequenceNumber.h>

#include <cstdint>
#include <thread>

namespace ac2::internal {

class AutogradSpan {
 public:
  void begin() {
    thread_ = std::this_thread::get_id();
    begin_ = at::sequence_number::peek();
  }
  void end() {
    end_ = at::sequence_number::peek();
    ended_ = true;
  }

  // Whether the thread has made next to no nodes since the region ended: then a loss follows, and not more of a model.
  // True on any other thread, which cannot tell.
  bool is_followed_by_little() const {
    if (thread_ != std::this_thread::get_id() || !ended_) {
      return true;
    }
    return at::sequence_number::peek() - end_ <= kFew + (end_ - begin_) / 10;
  }

 private:
  static constexpr uint64_t kFew = 10;

  std::thread::id thread_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  bool ended_ = false;
};

}  // namespace ac2::internal
