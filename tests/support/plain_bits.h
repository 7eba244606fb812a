// Programs that must have the bits of plain autograd under each kind of policy and budget, whatever they do between
// their regions and backward.
//
//   expect_plain_bits([](const Region& region) {
//     …make the tensors…
//     region([&] { y = (x + buffer).sin(); });
//     buffer.zero_();
//     return gradients_of({y}, {x});
//   });
#pragma once

#include <functional>
#include <vector>

#include "ac2/scope.h"
#include "tests/support/regions.h"
#include "tests/support/ways.h"

namespace ac2::test {

using Forward = std::function<void()>;
using Region = std::function<void(const Forward&)>;
// Runs its forwards by way of the argument and returns what backward has computed. It makes its tensors itself: the
// same ones each time.
using Program = std::function<Tensors(const Region&)>;

inline void expect_plain_bits(const Program& program, const std::vector<Way>& ways = all_ways()) {
  const Tensors expected = program([](const Forward& forward) { forward(); });
  for (const Way& way : ways) {
    const Tensors actual = program([&](const Forward& forward) {
      const PolicyScope scope(way.policy, way.options);
      forward();
    });
    expect_same_bits(actual, expected, way.name);
  }
}

}  // namespace ac2::test
