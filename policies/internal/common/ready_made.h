// A ready-made policy has a name, and a promise that the library can make of its own functions.
//
//   return internal::ready_made("save_ops", Policy::by_operator(…));
#pragma once

#include <string>

#include "ac2/policy.h"

namespace ac2::policies::internal {

// `policy` under this name. Its functions drop no tensor of the program's, so that ops under it need not hold their
// arguments.
Policy ready_made(std::string name, Policy policy);

}  // namespace ac2::policies::internal
