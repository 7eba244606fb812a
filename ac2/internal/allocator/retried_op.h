// While it lives, an op runs on this thread that is tried again, as often as something can be dropped, if memory runs
// out in it. Nothing need be dropped beforehand, by a guess, for what it allocates.
//
//   const RetriedOp retried(budget.has_no_number());
//   …
//   if (RetriedOp::is_under_way()) …
//
// The thread-local count is of the scopes that are open: an op may run others.
#pragma once

namespace ac2::internal {

class RetriedOp {
 public:
  explicit RetriedOp(bool is_retried) : is_retried_(is_retried) { count_ += is_retried ? 1 : 0; }
  ~RetriedOp() { count_ -= is_retried_ ? 1 : 0; }
  RetriedOp(const RetriedOp&) = delete;
  RetriedOp& operator=(const RetriedOp&) = delete;

  static bool is_under_way() { return count_ > 0; }

 private:
  static inline constinit thread_local int count_ = 0;
  bool is_retried_;
};

}  // namespace ac2::internal
