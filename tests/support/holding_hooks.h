// Saved-tensor hooks for autograd without regions, which hold the very data that autograd would have saved.
//
//   {
//     const HoldingHooks hooks;
//     y = f(x);             // saves through hooks, outside of regions
//   }
//
// LibTorch treats a tensor differently if it was saved through a hook, whatever the hook does.
//
// On the CPU alone, and one thread at a time.
#pragma once

namespace ac2::test {

class HoldingHooks {
 public:
  HoldingHooks();
  ~HoldingHooks();
  HoldingHooks(const HoldingHooks&) = delete;
  HoldingHooks& operator=(const HoldingHooks&) = delete;
};

}  // namespace ac2::test
