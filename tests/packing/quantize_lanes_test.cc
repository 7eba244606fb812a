// The work of a device's warp (policies/internal/quantize/quantize_lanes.h, bit_lanes.h), run on the host, group after
// group and lane after lane, as the kernels of quantize_cuda_kernels.cu are started: the same codes, ranges and bits as
// the loops for CPUs, in places that no two lanes share.
#include "policies/internal/quantize/quantize_lanes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "policies/internal/quantize/bit_lanes.h"
#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantize.h"

namespace ac2::policies::internal {
namespace {

constexpr uint64_t kKey = 0x1234567890abcdefU;
constexpr uint8_t kUntouched = 0xa5;
constexpr std::array<int64_t, 12> kLengths = {1, 2, 3, 15, 31, 33, 255, 256, 257, 1000, 4096, 70001};

// fn(block or warp, lane of all 32) for all warps that are started for `warps`, as many as the grid has.
template <class Fn>
void for_each_warp(int64_t warps, Fn&& fn) {
  for (int64_t group = 0; group < groups_of_warps(warps); ++group) {
    for (int thread = 0; thread < kThreadsPerGroup; thread += kLanes) {
      const int64_t warp = block_lane_of(group, thread).block;
      for (int lane = 0; lane < kLanes; ++lane) {
        ASSERT_EQ(block_lane_of(group, thread + lane).block, warp);
        ASSERT_EQ(block_lane_of(group, thread + lane).lane, lane);
      }
      if (warp < warps) fn(warp);
    }
  }
}

// All that a pack or an unpack leaves, with a guard behind it.
std::vector<uint8_t> guarded(int64_t bytes) {
  return std::vector<uint8_t>(static_cast<size_t>(bytes) + 64, kUntouched);
}

void expect_guard_untouched(const std::vector<uint8_t>& bytes, int64_t used) {
  for (size_t i = static_cast<size_t>(used); i < bytes.size(); ++i) ASSERT_EQ(bytes[i], kUntouched) << i - used;
}

// quantize_kernel, and how lanes exchange their ranges: each with the one at a distance.
template <class T, int bits>
int quantize_by_lanes(const T* numbers, int64_t numel, bool vectors, uint8_t* codes, ComputedAs<T>* ranges) {
  using C = ComputedAs<T>;
  int without_codes = 0;
  for_each_warp(blocks_of(numel), [&](int64_t block) {
    const int length = length_of_block(numel, block);
    C x[kLanes][kPerLane<T>];
    std::array<LaneRange<C>, kLanes> of_lane;
    for (int lane = 0; lane < kLanes; ++lane) {
      load_lane(numbers + block * kQuantizeBlock, length, lane, vectors, x[lane]);
      of_lane[lane] = range_of_lane(x[lane], kPerLane<T>);
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      const auto before = of_lane;
      for (int lane = 0; lane < kLanes; ++lane) of_lane[lane] = merge(before[lane], before[lane ^ distance]);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const BlockEnds<C> ends = ends_of(of_lane[lane], levels_of(bits));
      store_codes<T, bits>(x[lane], ends, block_key(kKey, block), length, lane,
                           codes + block * (kQuantizeBlock * bits / 8));
      if (lane == 0) {
        ranges[2 * block] = ends.low;
        ranges[2 * block + 1] = ends.high;
        without_codes += ends.has_codes ? 0 : 1;
      }
    }
  });
  return without_codes;
}

template <class T, int bits>
void dequantize_by_lanes(const uint8_t* codes, const ComputedAs<T>* ranges, int64_t numel, bool vectors, T* numbers) {
  for_each_warp(blocks_of(numel), [&](int64_t block) {
    for (int lane = 0; lane < kLanes; ++lane) {
      load_codes<T, bits>(codes + block * (kQuantizeBlock * bits / 8), ranges[2 * block], ranges[2 * block + 1],
                          length_of_block(numel, block), lane, vectors, numbers + block * kQuantizeBlock);
    }
  });
}

template <class T>
class QuantizeLanesTest : public ::testing::Test {};

using NumberTypes = ::testing::Types<float, double, at::Half, at::BFloat16>;
TYPED_TEST_SUITE(QuantizeLanesTest, NumberTypes);

// Of every kind that a block can be: a normal one, constant, with zeros of both signs, all -0, denormal, and without
// codes for each reason; then all of it again.
template <class T>
at::Tensor numbers_of(int64_t numel) {
  at::manual_seed(numel);
  const at::Tensor x = at::randn({numel}, at::kDouble);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t begin = 0, kind = 0; begin < numel; begin += kQuantizeBlock, ++kind) {
    const at::Tensor block = x.slice(0, begin, begin + kQuantizeBlock);
    switch (kind % 9) {
      case 1:
        block.fill_(0.3);
        break;
      case 2:
        block.relu_().slice(0, 0, block.numel(), 3).mul_(-0.0);
        break;
      case 3:
        block.fill_(-0.0);
        break;
      case 4:
        block[block.numel() / 2] = std::nan("");
        break;
      case 5:
        block[block.numel() - 1] = -kInfinity;
        break;
      case 6:
        block.mul_(1e-44);
        break;
      case 7:
        block.neg_().abs_().mul_(-1);
        break;
      case 8:
        block[0] = 3e38;
        block.slice(0, 1, 2).fill_(-3e38);
        break;
    }
  }
  return x.to(c10::CppTypeToScalarType<T>::value);
}

template <class T, int bits>
void expect_what_the_loops_give(int64_t numel, bool vectors) {
  using C = ComputedAs<T>;
  // One number behind the first, where vectors cannot be used.
  at::Tensor aligned = numbers_of<T>(numel + 1);
  const at::Tensor x = vectors ? aligned.slice(0, 0, numel) : aligned.slice(0, 1, numel + 1);
  const auto parts = quantize(x, bits, kKey).toTupleRef().elements().vec();
  const at::Tensor &codes = parts[2].toTensor(), &ranges = parts[3].toTensor();
  const bool has_exact = parts[4].toTensor().defined();

  const auto* numbers = x.const_data_ptr<T>();
  ASSERT_EQ(is_aligned_16(numbers), vectors);
  std::vector<uint8_t> own_codes = guarded(codes.numel());
  std::vector<C> own_ranges(static_cast<size_t>(ranges.numel()));
  const int without_codes = quantize_by_lanes<T, bits>(numbers, numel, vectors, own_codes.data(), own_ranges.data());
  EXPECT_EQ(std::memcmp(own_codes.data(), codes.const_data_ptr(), codes.nbytes()), 0);
  expect_guard_untouched(own_codes, codes.numel());
  EXPECT_EQ(std::memcmp(own_ranges.data(), ranges.const_data_ptr(), ranges.nbytes()), 0);
  EXPECT_EQ(without_codes > 0, has_exact);
  EXPECT_EQ(without_codes, ranges.select(1, 0).isnan().sum().template item<int>());

  const at::Tensor expected = dequantize(c10::ivalue::Tuple::create(parts));
  at::Tensor own = x.clone();  // blocks without codes stay
  at::Tensor space = at::full({numel + 64}, 7, x.options());
  const at::Tensor out = vectors ? space.slice(0, 0, numel) : space.slice(0, 1, numel + 1);
  out.copy_(x);
  dequantize_by_lanes<T, bits>(own_codes.data(), own_ranges.data(), numel, vectors, out.mutable_data_ptr<T>());
  EXPECT_EQ(std::memcmp(out.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()), 0);
  EXPECT_TRUE(space.slice(0, numel + (vectors ? 0 : 1)).eq(7).all().template item<bool>());
}

TYPED_TEST(QuantizeLanesTest, GivesTheCodesAndNumbersOfTheLoops) {
  for (const int64_t numel : kLengths) {
    for (const bool vectors : {true, false}) {
      SCOPED_TRACE(std::to_string(numel) + (vectors ? ", vectors" : ", number by number"));
      expect_what_the_loops_give<TypeParam, 8>(numel, vectors);
      expect_what_the_loops_give<TypeParam, 4>(numel, vectors);
    }
  }
}

TYPED_TEST(QuantizeLanesTest, EveryNumberOfABlockHasOneLane) {
  std::vector<int> times(kQuantizeBlock);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < kPerLane<TypeParam>; ++i) ++times.at(number_in_block<TypeParam>(lane, i));
  }
  EXPECT_EQ(times, std::vector<int>(kQuantizeBlock, 1));
}

// pack_bits_kernel: lanes that have a word together exchange their bits.
template <class T, class Flag>
void pack_by_lanes(const T* elements, int64_t numel, bool vectors, Flag flag, uint8_t* bits) {
  for_each_warp(warps_of<T>(numel), [&](int64_t warp) {
    std::array<uint32_t, kLanes> words;
    for (int lane = 0; lane < kLanes; ++lane) {
      words[lane] = bits_of_lane(elements, numel, warp, lane, vectors, flag);
    }
    for (int distance = kLanesPerWord<T> / 2; distance > 0; distance /= 2) {
      const auto before = words;
      for (int lane = 0; lane < kLanes; ++lane) words[lane] = before[lane] | before[lane ^ distance];
    }
    for (int lane = 0; lane < kLanes; ++lane) store_bits<T>(words[lane], numel, warp, lane, bits);
  });
}

// unpack_bits_kernel, for elements of any type as integers of their size.
template <class Bits>
void expect_unpacked(const c10::IValue& packed, int64_t numel, const at::Tensor& like, bool vectors) {
  const auto& parts = packed.toTupleRef().elements();
  const at::Tensor expected = unpack_bits(packed);
  at::Tensor space = at::full({numel + 65}, 7, like.options().dtype(at::kByte)).repeat({int64_t{sizeof(Bits)}});
  auto* out = reinterpret_cast<Bits*>(space.mutable_data_ptr<uint8_t>()) + (vectors ? 0 : 1);
  const auto zero = static_cast<Bits>(parts[2].toInt()), one = static_cast<Bits>(parts[3].toInt());
  for_each_warp(warps_of<Bits>(numel), [&](int64_t warp) {
    for (int lane = 0; lane < kLanes; ++lane) {
      load_bits(parts[1].toTensor().const_data_ptr<uint8_t>(), numel, warp, lane, vectors, zero, one, out);
    }
  });
  EXPECT_EQ(std::memcmp(out, expected.const_data_ptr(), expected.nbytes()), 0);
  for (const auto* end = reinterpret_cast<const uint8_t*>(out + numel);
       end < space.const_data_ptr<uint8_t>() + space.numel(); ++end) {
    ASSERT_EQ(*end, 7);
  }
}

template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

TYPED_TEST(QuantizeLanesTest, TellsWhichNumbersArePositive) {
  for (const int64_t numel : kLengths) {
    for (const bool vectors : {true, false}) {
      SCOPED_TRACE(std::to_string(numel) + (vectors ? ", vectors" : ", number by number"));
      const at::Tensor all = numbers_of<TypeParam>(numel + 1);
      const at::Tensor x = vectors ? all.slice(0, 0, numel) : all.slice(0, 1, numel + 1);
      const c10::IValue packed = pack_positive(x);
      const at::Tensor& bits = packed.toTupleRef().elements()[1].toTensor();
      std::vector<uint8_t> own = guarded(bits.numel());
      pack_by_lanes(x.const_data_ptr<TypeParam>(), numel, vectors, IsPositive(), own.data());
      EXPECT_EQ(std::memcmp(own.data(), bits.const_data_ptr(), bits.nbytes()), 0);
      expect_guard_untouched(own, bits.numel());
      expect_unpacked<BitsOf<TypeParam>>(packed, numel, x, vectors);
    }
  }
}

TEST(BitLanesTest, PacksAndUnpacksBools) {
  for (const int64_t numel : kLengths) {
    for (const bool vectors : {true, false}) {
      SCOPED_TRACE(std::to_string(numel) + (vectors ? ", vectors" : ", byte by byte"));
      at::manual_seed(numel);
      at::Tensor all = at::randn({numel + 1}) > 0;
      const at::Tensor x = vectors ? all.slice(0, 0, numel) : all.slice(0, 1, numel + 1);
      x[0] = false;  // the loops take the first value for zero
      const c10::IValue packed = pack_two_valued(x);
      const at::Tensor& bits = packed.toTupleRef().elements()[1].toTensor();
      std::vector<uint8_t> own = guarded(bits.numel());
      pack_by_lanes(static_cast<const uint8_t*>(x.const_data_ptr()), numel, vectors, IsTrue(), own.data());
      EXPECT_EQ(std::memcmp(own.data(), bits.const_data_ptr(), bits.nbytes()), 0);
      expect_guard_untouched(own, bits.numel());
      expect_unpacked<uint8_t>(packed, numel, x, vectors);
    }
  }
}

}  // namespace
}  // namespace ac2::policies::internal
