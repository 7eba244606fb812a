// The costs of copying dropped values back. The evictor weighs them against computing the values again. HostCopies
// implements this.
#pragma once

#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class CopyCosts {
 public:
  virtual ~CopyCosts() = default;

  // In the evictor's unit of cost; infinity if there is no copy of the value. A change is to be told to the evictor
  // (Evictor::copy_changed).
  virtual double cost_of_return(ValueId value) const = 0;
};

}  // namespace ac2::internal
