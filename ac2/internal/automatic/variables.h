// The names of the environment's variables that programs are told by. python/ac2/_start.py has those of a user for
// itself, because Python reads them before there is any library of ac2's; a test compares them.
//
// Needs nothing, so that libac2_preload.so may include it.
#pragma once

namespace ac2::internal::variables {

// Of users.
inline constexpr char kBudget[] = "AC2_MEMORY_BUDGET";
inline constexpr char kPolicy[] = "AC2_POLICY";
inline constexpr char kForms[] = "AC2_FORMS";
inline constexpr char kReport[] = "AC2_REPORT";
inline constexpr char kVerify[] = "AC2_VERIFY";
inline constexpr char kQuiet[] = "AC2_QUIET";

// The id of the process that ac2-run has become, for libac2_preload.so.
inline constexpr char kRunProcess[] = "AC2_RUN_PROCESS";
// The id of a process that is linked to //ac2:auto, for libac2_preload.so.
inline constexpr char kLinkedInto[] = "AC2_LINKED_INTO";

// Of launchers of several processes, such as torchrun.
inline constexpr char kRank[] = "RANK";
inline constexpr char kWorldSize[] = "WORLD_SIZE";

}  // namespace ac2::internal::variables
