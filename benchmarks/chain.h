// Chains of one cheap op on 8 elements, where the kernel is nothing and the bookkeeping everything. Nothing of ac2 is
// in here, so that a process without it can run them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace benchmarks {

using Link = std::function<at::Tensor(const at::Tensor&)>;

// 8 ones that require a gradient.
at::Tensor leaf();

// "cos" or "mul": ops whose inputs autograd saves, so that a chain of them has everything to recompute. Throws
// c10::Error for others.
Link make_link(const std::string& op);

at::Tensor run_chain(const Link& link, at::Tensor x, int64_t length);

// Runs a chain's forward inside `around`, and its backward; once to warm up, and once more with each section in
// counted_section(), for callgrind's --toggle-collect, printing its name ("forward", "backward") and the chain's
// length. With the name of a section as `only`, just that one counts.
using Around = std::function<void(const std::function<void()>& forward)>;
void run_counted_sections(const std::string& op, const std::string& only, const Around& around);

// The same outside all regions, on one thread, as "cos|mul [forward|backward]" in a program's arguments says. Returns
// what main() returns.
int run_plain_sections(int argc, char** argv);

}  // namespace benchmarks
