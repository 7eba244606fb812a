// Policies that choose ops by themselves: by what they cost to compute, by how large their results are, or by where
// they stand in the program.
//
//   ac2::PolicyScope scope(ac2::policies::save_compute_intensive());
//
// Making one of them takes nanoseconds, so a forward() may make it anew each time. Those that save by the kind of an op
// are asked once per operator and region; memory(), by_size() and every_nth() look at the calls and are asked for every
// op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

// --- By what an op costs to compute.

// Saves the results of matrix products, convolutions and attention, recomputes everything else: most of the memory that
// activations take is in the cheap ops between them. MUST_SAVE for compute_intensive_ops(), PREFER_RECOMPUTE for all
// others. Guaranteed: none of the listed ops is replayed.
//
// The partitioner of PyTorch (torch/_functorch/partitioners.py) has a list of the same name. This one has all of it
// except upsample_bilinear2d, which speed() saves.
Policy save_compute_intensive();
// The names, as save_ops() takes them.
const std::vector<std::string>& compute_intensive_ops();

// Strategy "speed": saves what is slow, recomputes what costs little more than reading and writing memory. MUST_SAVE
// for slow_ops(), which are compute_intensive_ops() and others that do more than a few operations for each element they
// read: decompositions and solvers (linalg), Fourier transforms, sorting and searching, distances, resampling with
// interpolation, and CTC loss. PREFER_RECOMPUTE for all others. Guaranteed: none of the listed ops is replayed.
Policy speed();
// The names, as save_ops() takes them.
const std::vector<std::string>& slow_ops();

// --- By the size of results.

// Saves small results, recomputes large ones. A small result is not worth the time of a replay. PREFER_RECOMPUTE if the
// result tensors of the op take `min_bytes` or more together, MUST_SAVE if they take less. Bytes are number of elements
// × bytes per element; a tensor that the op writes into and returns counts as a result. So first_of({by_size(n), rule})
// saves what is small and leaves the rest to the rule. by_size(0) recomputes everything. MegEngine's option
// dtr.evictee_minimum_size draws the same line. Throws c10::Error for a negative size.
Policy by_size(int64_t min_bytes);

// --- By where an op stands.

// Strategy "memory": saves only where branches join. The strategy is for a region around many layers: backward replays
// from one join to the next, and never holds more than the layers between.
//
//   ac2::PolicyScope scope(ac2::policies::memory());   // around the whole model
//
// MUST_SAVE where an op joins branches, PREFER_RECOMPUTE elsewhere. An op joins branches if two conditions hold. At
// least two of its tensor inputs, in different storages, descend from the same tensor that came from outside the region
// and requires a gradient. And its results take no more bytes than those inputs together. Such an op makes one value of
// several.
//   - x + f(x), a residual, is saved, whether x comes from outside or not.
//   - gate * up, cat({a, b}), fused attention of q, k and v, and weights · v are saved, if both sides come from one x.
//   - x · W + b is not saved; neither are scores q · kᵀ that are larger than q and k, nor the sum with a mask.
//   - x · Wᵀ is not saved where W is a parameter that x descends from as well (tied weights). A leaf that an op takes
//     directly counts as a branch only if it has the sizes of a result, as x has in x + f(x).
// Tensors without a storage (sparse, nested) count as nobody's ancestors. Each region has state of its own. The time
// for an op is linear in its inputs and in the number of tensors from outside / 64.
Policy memory();

// Saves the result of every nth op and recomputes the n - 1 between: memory and replays in a fixed ratio, whatever the
// model. MUST_SAVE for the nth, 2nth, … op of a region that policies are asked about (views are not), PREFER_RECOMPUTE
// for all others. With a list, of names and patterns as in policies/listed_ops.h, only the listed ops are counted and
// saved: every_nth(2, {"aten::mm", "aten::addmm"}) saves every second product. Each region counts from its own
// beginning, nested scopes and threads that share the policy too. every_nth(1) saves everything, or all that is listed.
// Throws c10::Error if n is not positive, if the list is empty, and for a name that no operator has.
Policy every_nth(int64_t n);
Policy every_nth(int64_t n, const std::vector<std::string>& ops);

}  // namespace ac2::policies
