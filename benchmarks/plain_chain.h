// The chains of chain_sections.cc without anything of ac2: what they cost that no region sees.
#pragma once

namespace benchmarks {

// Reads "cos|mul forward|backward" from a program's arguments and runs that chain twice, the second time with the
// section in counted_section(), for callgrind's --toggle-collect. Returns what main() returns.
int run_plain_chain(int argc, char** argv);

}  // namespace benchmarks
