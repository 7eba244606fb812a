// The names of gloo/context.h that LibTorch uses; see the README of this folder.
#pragma once

#include <chrono>

namespace gloo {

// LibTorch makes all objects of this class, and has the function.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class UnboundBuffer;
}

}  // namespace gloo
