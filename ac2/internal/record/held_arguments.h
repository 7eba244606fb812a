// Ops hold their arguments until they return, where policies or pack functions of the program's may run in the middle
// of them.
//
//   h = x.sin();   // a policy decides on a SaveWithHooks
//   h.cos();       // autograd saves h before cos runs: the pack function runs, and may drop the program's `h`
//
// C++ passes tensors by reference, so that autograd, and ops that are made of ops, would go on with an undefined one.
// The kernel here is above all of that. The kernel gets arguments boxed, with a reference to each, and passes them on.
//
// Rejected: the copies of the interceptor, which is below autograd; a reference in the hook, which keeps the tensor but
// not the program's variable, from which the op reads it.
//
// Threads: any.
#pragma once

namespace ac2::internal {

// Puts the kernel behind kHoldKey, once. Regions include the key; see ThreadRegions. Does nothing if another library
// has a kernel there.
void install_holding();

}  // namespace ac2::internal
