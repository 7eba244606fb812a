// Watches a run of the KeepSimulator, value by value.
//
// All that happens between before_event() and after_event() happens at that event. Of values that are copied to the
// host's memory and back only what is pinned is told.
#pragma once

#include <cstdint>

namespace ac2::internal {

class KeepWatch {
 public:
  KeepWatch() = default;
  virtual ~KeepWatch() = default;
  KeepWatch(const KeepWatch&) = delete;
  KeepWatch& operator=(const KeepWatch&) = delete;

  virtual void before_event(uint32_t event) = 0;
  virtual void after_event(uint32_t event) = 0;
  // The bytes of the value are there from now on, or no longer. `is_form`: in the other form in which it is held.
  virtual void bytes_come(uint32_t value, bool is_form) = 0;
  virtual void bytes_go(uint32_t value, bool is_form) = 0;
  // The op is about to run again. Its results come after this. It writes them over so many bytes of its inputs.
  virtual void replays(uint32_t op, int64_t over) = 0;
  // More bytes are there than before, and none have gone since: there may be as many as at no other time.
  virtual void may_be_most() = 0;
};

}  // namespace ac2::internal
