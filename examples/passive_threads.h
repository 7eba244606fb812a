// OpenMP threads that sleep while they wait.
//
// By default they spin. That is a little faster on an idle machine, and ten times slower (measured) where other
// programs use the cores as well: a spinning thread takes the time that the one it waits for needs.
#pragma once

namespace gpt {

// Starts the program anew with OMP_WAIT_POLICY=passive, unless the variable is set already. The OpenMP library reads it
// while it is loaded, before main(), so that setting it here would be too late. Call it first in main().
void use_passive_threads(char** argv);

}  // namespace gpt
