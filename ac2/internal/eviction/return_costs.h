// The costs of having dropped values back in another way than by computing them again, which the evictor weighs against
// that. HostCopies and PackingForms implement this.
#pragma once

#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class ReturnCosts {
 public:
  virtual ~ReturnCosts() = default;

  // In the evictor's unit of cost; infinity if the value cannot be had so. A change is to be told to the evictor
  // (Evictor::cost_of_return_changed).
  virtual double cost_of_return(ValueId value) const = 0;
};

}  // namespace ac2::internal
