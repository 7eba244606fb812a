// LibTorch's warnings, collected in place of going to standard error:
//
//   const Warnings warnings;                      // while it lives
//   EXPECT_EQ(warnings_of([&] { … }).size(), 1);  // those of one call
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <vector>

namespace ac2::test {

class Warnings : public c10::WarningHandler {
 public:
  Warnings() : guard_(this) {}
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

inline std::vector<std::string> warnings_of(const std::function<void()>& fn) {
  const Warnings warnings;
  fn();
  return warnings.messages;
}

}  // namespace ac2::test
