// Mixed precision for the length of a block.
#pragma once

#include <ATen/autocast_mode.h>

namespace ac2::test {

// CPU autocast to bfloat16, as torch.autocast enters and leaves it.
class Autocast {
 public:
  explicit Autocast(bool enabled = true) : was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool was_enabled_;
};

}  // namespace ac2::test
