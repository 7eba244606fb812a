#include "benchmarks/counted_section.h"

extern "C" [[gnu::noinline]] void counted_section(const std::function<void()>& section) {
  section();
  asm volatile("" ::: "memory");  // no tail call, which would end the count too early
}
