#include "ac2/internal/budget/rank_agreement.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "ac2/internal/libtorch/unrecorded.h"

namespace ac2::internal {

namespace {

// The group may keep a reference to the tensor, so the numbers are copied into memory of their own.
template <class Numbers>
void take_largest(RankGroup& group, Numbers& numbers, at::ScalarType type) {
  const Unrecorded unrecorded;
  const at::NoGradGuard no_grad;
  const auto size = static_cast<int64_t>(numbers.size());
  at::Tensor tensor = at::empty({size}, at::TensorOptions(type).device(at::kCPU));
  using Number = typename Numbers::value_type;
  Number* data = tensor.mutable_data_ptr<Number>();
  std::copy(numbers.begin(), numbers.end(), data);
  group.take_largest(tensor);
  TORCH_CHECK(tensor.defined() && tensor.numel() == size && tensor.scalar_type() == type && tensor.is_cpu() &&
                  tensor.is_contiguous(),
              "RankGroup::take_largest was given ", size, " numbers of the type ", type,
              " on the CPU and has left something else. It must replace each number by the largest of all ranks.");
  const Number* largest = tensor.const_data_ptr<Number>();
  std::copy(largest, largest + size, numbers.begin());
}

// The same on all ranks for the same bytes (FNV-1a), and not negative.
int64_t digest_of(const RankAgreement::Drops& drops) {
  uint64_t digest = 0xcbf29ce484222325ULL;
  for (const uint8_t byte : drops) {
    digest = (digest ^ byte) * 0x100000001b3ULL;
  }
  return static_cast<int64_t>(digest >> 1);
}

}  // namespace

RankAgreement::Common RankAgreement::compare(const Standing& standing) {
  const auto calls = static_cast<int64_t>(standing.drops.size()) / kBytesOfCall;
  const int64_t digest = digest_of(standing.drops);
  // The least of numbers is the largest of the negated ones.
  std::array<int64_t, 5> numbers = {-standing.limit, calls, -calls, digest, -digest};
  take_largest(*group_, numbers, at::kLong);
  return {
      .limit = -numbers[0], .has_same_calls = numbers[1] == -numbers[2], .has_same_drops = numbers[3] == -numbers[4]};
}

void RankAgreement::unite(Drops& drops) {
  if (!drops.empty()) {
    take_largest(*group_, drops, at::kByte);
  }
}

}  // namespace ac2::internal
