// ReturnCosts are the costs of bringing dropped values back without computing them again. The evictor compares these
// costs with those of computing. HostCopies and PackingForms implement this.
#pragma once

#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class ReturnCosts {
 public:
  virtual ~ReturnCosts() = default;

  // In the evictor's unit of cost; infinity if the value cannot be brought back in this way. The evictor must be told
  // of a change (Evictor::cost_of_return_changed).
  virtual double cost_of_return(ValueId value) const = 0;
};

}  // namespace ac2::internal
