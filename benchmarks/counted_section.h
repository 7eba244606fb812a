// A function that callgrind counts under its name: what runs in it, and nothing else.
//
//   counted_section([&] { loss.backward(); });
//   valgrind --tool=callgrind --toggle-collect=counted_section --dump-after=counted_section PROGRAM
//
// Callgrind writes one file each time it ends.
//
// Threads: what other threads do meanwhile is not counted.
#pragma once

#include <functional>

extern "C" void counted_section(const std::function<void()>& section);
