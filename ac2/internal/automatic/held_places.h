// The parts of the program of which the regions of the process hold most at this moment, as closing_words() names them.
//
// Takes the lock of one tape after the other, and in Python looks through all modules: not for every step.
//
// Threads: any.
#pragma once

#include <vector>

#include "ac2/internal/automatic/closing_words.h"

namespace ac2::internal {

std::vector<ClosingFigures::Place> places_that_hold_most();

}  // namespace ac2::internal
