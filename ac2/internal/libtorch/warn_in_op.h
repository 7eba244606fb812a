// Warns from code that runs inside an op of the program, as TORCH_WARN does.
//
//   warn_in_op(c10::str("The plan ", …));
//   static constinit SaidOnce said;
//   if (said.is_to_say()) warn_in_op("…");
//
// A program may make errors of warnings. In C++ the error is thrown from here. In Python LibTorch keeps warnings until
// the op has returned its result, and then raises: the result, and with it the graph behind it, is lost and never
// freed. So a Python process takes the warnings of this function (HostLanguage::take_warning), and raises them when the
// op is over.
//
// Threads: any.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <string>

namespace ac2::internal {

void warn_in_op(const std::string& text);

// Says a thing once a process, unless LibTorch is to say everything always (c10::WarningUtils::set_warnAlways).
class SaidOnce {
 public:
  bool is_to_say() { return !said_.exchange(true, std::memory_order_relaxed) || c10::WarningUtils::get_warnAlways(); }

 private:
  std::atomic<bool> said_{false};
};

}  // namespace ac2::internal
