// A region of its own for each thread of a program that knows nothing of regions.
//
//   start_own_regions();   // as the environment says (settings.h)
//
// From then on a region is opened where a thread begins to record a graph, outside of any backward. The region lasts as
// long as the thread. The main thread's ends when main() returns or exit() is called. The first op of a thread's graph
// is an op from outside: the region begins in its middle. Threads that record no graph get no region: those of the
// engine, of OpenMP, and those that load data.
//
// All regions share one budget. At the end of the process, and not where it ends by _exit() or a signal, what they did
// is said on stderr, and the page is written (last_words.h).
//
// A forked child of the program goes on in the region of the thread that forked. At its end it speaks of what was done
// in the child, if something was dropped or computed again there (process_record.h).
//
// Rejected: to open regions when threads start. Ops of threads that compute without a graph would pay for it. Rejected
// too: to close them before the thread's other thread_local objects are destroyed; C++ destroys those in the reverse
// order of their construction.
//
// Threads: any.
#pragma once

namespace ac2::internal {

// The second call and later ones do nothing. What is wrong with the environment is said on stderr, and nothing starts
// then.
void start_own_regions() noexcept;

}  // namespace ac2::internal
