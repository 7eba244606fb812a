// The words at the end of a program that ran as a whole in a region: one line if nothing was needed, else what was
// dropped and computed again, the time that took, what most was held of, and code with which the program may take less
// time.
//
//   std::cerr << closing_words({.recorded_ops = 812, .shortages = 3, .dropped_values = 40, .recomputed_ops = 44});
//
// The words follow from figures alone: whoever opened the region gathers them.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ac2::internal {

// Figures of all regions of the process. A figure that nobody knows stays as it is here, and is not spoken of.
struct ClosingFigures {
  static constexpr size_t kNamedPlaces = 3;

  enum class Language : uint8_t { kPython, kCpp };
  // A part of the program, and the bytes that were held of it.
  struct Place {
    std::string where = {};  // "layers.3.mlp: aten::gelu"
    int64_t bytes = 0;
  };

  std::string who = {};                   // of several processes: "rank 1"; empty: the one that was started
  Language language = Language::kPython;  // of the lines of code
  std::string budget = {};                // as it was given: "auto", "8GiB", "peak:20GiB", "soft:1GiB"; empty: none
  std::string policy = {};                // by its name; empty: none

  int64_t recorded_ops = 0;
  int64_t shortages = 0;       // how often memory ran out, or a peak was reached, and values were dropped for it
  int64_t dropped_values = 0;  // those and all others that a budget dropped
  int64_t dropped_bytes = 0;
  int64_t packed_values = 0;  // packed in place of being dropped
  int64_t recomputed_ops = 0;
  int64_t recomputed_bytes = 0;  // of all results of those
  int64_t peak_bytes = 0;        // the most that a region held for backward
  // Of a soft budget, and of one for a peak.
  int64_t times_over = 0;
  int64_t most_bytes_over = 0;

  // That went into dropping values and into computing them again, by the clock of the threads that did, all threads
  // together; and the time from when that began first, `spent_since` by the steady clock, to now.
  int64_t spent_nanoseconds = 0;
  int64_t spent_of_nanoseconds = 0;
  int64_t spent_since = std::numeric_limits<int64_t>::max();
  int64_t threads = 0;      // whose ops were computed again
  bool has_queued = false;  // some of it on an accelerator, whose own time is not in there

  // How the program ended, as far as memory is concerned.
  enum class End : uint8_t { kByItself, kMemoryRanOut, kBudgetRefused };
  End end = End::kByItself;
  std::vector<Place> held = {};           // before a backward, or at the error; the first are named
  std::vector<std::string> reasons = {};  // sentences: why no more could be done
  std::string repeated = {};              // modules with which a region for each makes sense: "model.layers.*"
  std::string report = {};                // where the page was written

  // Adds the figures of another part of the process: sums, and the most of either.
  void add(const ClosingFigures& other);
};

// Whether there was anything to do: closing_words() is then more than a line.
bool was_needed(const ClosingFigures& figures);

// Lines that begin with "ac2: ", or with spaces where they go on. Ends with a line feed.
std::string closing_words(const ClosingFigures& figures);

}  // namespace ac2::internal
