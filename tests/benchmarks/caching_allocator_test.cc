// The simulation of CUDA's caching allocator: its rules one by one, on cases small enough to count by hand, and that
// blocks never overlap, on random ones.
#include "benchmarks/caching/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "benchmarks/caching/allocation_events.h"

namespace ac2::benchmarks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Address = CachingAllocator::Address;
using Piece = CachingAllocator::Piece;

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;

Piece used(int64_t bytes) {
  return {bytes, false};
}
Piece unused(int64_t bytes) {
  return {bytes, true};
}

class CachingAllocatorTest : public ::testing::Test {
 protected:
  Address allocate(int64_t bytes) { return allocator_.allocate(bytes).value(); }
  void free(Address address) { allocator_.free(address); }
  int64_t reserved() const { return allocator_.reserved().current; }

  CachingAllocator allocator_;
};

TEST_F(CachingAllocatorTest, SizesAreRoundedUpTo512Bytes) {
  allocate(1);
  EXPECT_EQ(allocator_.allocated().current, 512);
  allocate(512);
  EXPECT_EQ(allocator_.allocated().current, 1024);
  allocate(513);
  EXPECT_EQ(allocator_.allocated().current, 2048);
  EXPECT_EQ(allocator_.requested().current, 1 + 512 + 513);
  EXPECT_THAT(allocator_.segments(),
              ElementsAre(ElementsAre(used(512), used(512), used(1024), unused(2 * kMiB - 2048))));
}

TEST_F(CachingAllocatorTest, UpToOneMebibyteASegmentOfTwoIsShared) {
  allocate(kMiB);
  EXPECT_EQ(reserved(), 2 * kMiB);
  allocate(kMiB);
  EXPECT_EQ(reserved(), 2 * kMiB);
  allocate(1);
  EXPECT_EQ(reserved(), 4 * kMiB);
}

TEST_F(CachingAllocatorTest, BelowTenMebibytesASegmentOfTwentyIsShared) {
  allocate(kMiB + 1);
  EXPECT_EQ(reserved(), 20 * kMiB);
  allocate(10 * kMiB - 512);
  EXPECT_EQ(reserved(), 20 * kMiB);
  EXPECT_THAT(allocator_.segments(),
              ElementsAre(ElementsAre(used(kMiB + 512), used(10 * kMiB - 512), unused(9 * kMiB))));
}

TEST_F(CachingAllocatorTest, FromTenMebibytesOnASegmentIsTheSizeRoundedUpToTwo) {
  allocate(10 * kMiB);
  EXPECT_EQ(reserved(), 10 * kMiB);
  allocate(10 * kMiB + 1);
  EXPECT_EQ(reserved(), 22 * kMiB);
}

TEST_F(CachingAllocatorTest, ALargeBlockKeepsUpToOneMebibyteMoreThanItNeeds) {
  allocate(11 * kMiB);  // of 12, of which one remains
  EXPECT_THAT(allocator_.segments(), ElementsAre(ElementsAre(used(12 * kMiB))));
  EXPECT_EQ(allocator_.allocated().current, 12 * kMiB);
  EXPECT_EQ(allocator_.requested().current, 11 * kMiB);
  allocate(11 * kMiB - 512);
  EXPECT_THAT(allocator_.segments(),
              ElementsAre(ElementsAre(used(12 * kMiB)), ElementsAre(used(11 * kMiB - 512), unused(kMiB + 512))));
}

TEST_F(CachingAllocatorTest, ASmallBlockIsSplitDownTo512Bytes) {
  const Address x = allocate(1024);
  allocate(512);
  free(x);
  allocate(512);
  EXPECT_THAT(allocator_.segments(),
              ElementsAre(ElementsAre(used(512), unused(512), used(512), unused(2 * kMiB - 1536))));
}

TEST_F(CachingAllocatorTest, TheSmallestBlockThatFitsIsTaken) {
  const Address large = allocate(5 * kMiB);
  allocate(2 * kMiB);
  const Address fitting = allocate(3 * kMiB);
  allocate(2 * kMiB);
  free(large);
  free(fitting);
  EXPECT_EQ(allocate(3 * kMiB), fitting);
  EXPECT_EQ(allocate(4 * kMiB), large);
}

TEST_F(CachingAllocatorTest, OfBlocksOfOneSizeThatWithTheLowestAddressIsTaken) {
  const Address first = allocate(10 * kMiB), second = allocate(10 * kMiB);
  free(second);
  free(first);
  EXPECT_EQ(allocate(10 * kMiB), first);
  EXPECT_EQ(allocate(10 * kMiB), second);
}

TEST_F(CachingAllocatorTest, AFreedBlockIsMergedWithItsFreeNeighbours) {
  const Address a = allocate(4 * kMiB), b = allocate(4 * kMiB), c = allocate(4 * kMiB);
  free(a);
  free(c);
  EXPECT_THAT(allocator_.segments(), ElementsAre(ElementsAre(unused(4 * kMiB), used(4 * kMiB), unused(12 * kMiB))));
  free(b);
  EXPECT_THAT(allocator_.segments(), ElementsAre(ElementsAre(unused(20 * kMiB))));
  EXPECT_EQ(allocate(20 * kMiB), a);
  EXPECT_EQ(reserved(), 20 * kMiB);
}

TEST_F(CachingAllocatorTest, SegmentsAreNeverMerged) {
  const Address a = allocate(10 * kMiB), b = allocate(10 * kMiB);
  free(a);
  free(b);
  allocate(20 * kMiB);
  EXPECT_EQ(reserved(), 40 * kMiB);
}

TEST_F(CachingAllocatorTest, WhatIsFreeInPiecesDoesNotServeALargeBlock) {
  std::vector<Address> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(allocate(4 * kMiB));
  for (const int i : {0, 2, 4}) free(blocks[static_cast<size_t>(i)]);
  allocate(6 * kMiB);
  EXPECT_EQ(reserved(), 40 * kMiB);
  EXPECT_EQ(allocator_.requested().peak, 20 * kMiB);
}

TEST_F(CachingAllocatorTest, ThePoolsShareNothing) {
  const Address large = allocate(2 * kMiB);
  free(large);
  allocate(512);
  EXPECT_EQ(reserved(), 22 * kMiB);
}

TEST_F(CachingAllocatorTest, WhatIsFreedStaysReservedAndAPeakStays) {
  free(allocate(30 * kMiB));
  EXPECT_EQ(reserved(), 30 * kMiB);
  EXPECT_EQ(allocator_.requested().current, 0);
  EXPECT_EQ(allocator_.requested().peak, 30 * kMiB);
  EXPECT_EQ(allocator_.allocated().peak, 30 * kMiB);
}

TEST_F(CachingAllocatorTest, OnlyBlocksInUseAreFreed) {
  const Address x = allocate(512);
  EXPECT_THROW(free(x + 512), std::logic_error);
  free(x);
  EXPECT_THROW(free(x), std::logic_error);
  EXPECT_THROW(allocate(0), std::logic_error);
}

TEST(CachingAllocatorLimitTest, WithoutRoomFreeSegmentsAreGivenBackAndItIsTriedAgain) {
  CachingAllocator allocator({.device_bytes = 40 * kMiB});
  const Address a = allocator.allocate(12 * kMiB).value();
  const Address b = allocator.allocate(12 * kMiB).value();
  allocator.free(a);
  allocator.free(b);
  EXPECT_TRUE(allocator.allocate(30 * kMiB).has_value());
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.reserved().current, 30 * kMiB);
  EXPECT_EQ(allocator.reserved().peak, 30 * kMiB);
  EXPECT_THAT(allocator.segments(), ElementsAre(ElementsAre(used(30 * kMiB))));
}

TEST(CachingAllocatorLimitTest, ASegmentOfWhichABlockIsInUseIsNotGivenBack) {
  CachingAllocator allocator({.device_bytes = 40 * kMiB});
  const Address a = allocator.allocate(12 * kMiB).value();
  allocator.allocate(2 * kMiB).value();  // 20 are reserved for it
  allocator.free(a);
  EXPECT_FALSE(allocator.allocate(30 * kMiB).has_value());
  EXPECT_EQ(allocator.reserved().current, 20 * kMiB);
}

TEST(CachingAllocatorLimitTest, NothingIsChangedWhereThereIsNoRoomAndNothingToGiveBack) {
  CachingAllocator allocator({.device_bytes = 10 * kMiB});
  EXPECT_FALSE(allocator.allocate(2 * kMiB).has_value());  // of a segment of 20
  EXPECT_TRUE(allocator.allocate(10 * kMiB).has_value());
  EXPECT_FALSE(allocator.allocate(1).has_value());
  EXPECT_EQ(allocator.retries(), 0);
}

TEST(ExpandableSegmentsTest, APoolIsOneSegmentThatGrowsByPages) {
  CachingAllocator allocator({.expandable_segments = true});
  allocator.allocate(12 * kMiB);
  EXPECT_EQ(allocator.reserved().current, 20 * kMiB);
  allocator.allocate(12 * kMiB);
  EXPECT_EQ(allocator.reserved().current, 40 * kMiB);
  EXPECT_THAT(allocator.segments(), ElementsAre(ElementsAre(used(12 * kMiB), used(12 * kMiB), unused(16 * kMiB))));
  allocator.allocate(512);
  EXPECT_EQ(allocator.reserved().current, 42 * kMiB);
}

TEST(ExpandableSegmentsTest, AnInnerBlockThatFitsIsTakenBeforeTheEnd) {
  CachingAllocator allocator({.expandable_segments = true});
  const Address inner = allocator.allocate(10 * kMiB).value();
  allocator.allocate(5 * kMiB);  // 5 remain at the end
  allocator.free(inner);
  EXPECT_EQ(allocator.allocate(4 * kMiB), inner);
}

TEST(ExpandableSegmentsTest, NeighboursThatWereReservedApartAreMerged) {
  CachingAllocator allocator({.expandable_segments = true});
  const Address a = allocator.allocate(20 * kMiB).value();
  const Address b = allocator.allocate(20 * kMiB).value();
  allocator.free(a);
  allocator.free(b);
  EXPECT_EQ(allocator.allocate(40 * kMiB), a);
  EXPECT_EQ(allocator.reserved().current, 40 * kMiB);
}

// Blocks in use do not overlap, sums agree, and no two neighbours are both free.
TEST(CachingAllocatorRandomTest, BlocksAreConsistentWhateverIsAllocatedAndFreed) {
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator({.expandable_segments = expandable});
    std::minstd_rand random(7);
    std::map<Address, int64_t> living;
    int64_t requested = 0;
    for (int i = 0; i < 4000; ++i) {
      if (living.size() < 10 || random() % 2 == 0) {
        const int64_t bytes = 1 + static_cast<int64_t>(random() % (uint64_t{1} << (random() % 25)));
        const Address address = allocator.allocate(bytes).value();
        const auto [it, is_new] = living.emplace(address, bytes);
        ASSERT_TRUE(is_new);
        if (it != living.begin()) {
          ASSERT_LE(std::prev(it)->first + std::prev(it)->second, address);
        }
        if (std::next(it) != living.end()) {
          ASSERT_LE(address + bytes, std::next(it)->first);
        }
        requested += bytes;
      } else {
        const auto it = std::next(living.begin(), random() % living.size());
        allocator.free(it->first);
        requested -= it->second;
        living.erase(it);
      }
      ASSERT_EQ(allocator.requested().current, requested);
      if (i % 50 != 0) continue;
      int64_t reserved = 0, allocated = 0;
      for (const std::vector<Piece>& segment : allocator.segments()) {
        for (size_t k = 0; k < segment.size(); ++k) {
          reserved += segment[k].bytes;
          allocated += segment[k].is_free ? 0 : segment[k].bytes;
          EXPECT_FALSE(k > 0 && segment[k].is_free && segment[k - 1].is_free);
        }
      }
      EXPECT_EQ(reserved, allocator.reserved().current);
      EXPECT_EQ(allocated, allocator.allocated().current);
    }
    for (const auto& [address, bytes] : living) allocator.free(address);
    EXPECT_EQ(allocator.allocated().current, 0);
    for (const std::vector<Piece>& segment : allocator.segments()) EXPECT_EQ(segment.size(), 1U);
    EXPECT_LE(allocator.requested().peak, allocator.allocated().peak);
    EXPECT_LE(allocator.allocated().peak, allocator.reserved().peak);
  }
}

TEST(AllocationEventsTest, TheMostOfAllEventsIsReported) {
  const AllocationEvents events = {{1, 4 * kMiB}, {2, 6 * kKiB}, {1, 0}, {3, 12 * kMiB}, {2, 0}};
  const Reserved reserved = reserved_for(events, {});
  EXPECT_EQ(reserved.requested_bytes, 12 * kMiB + 6 * kKiB);
  EXPECT_EQ(reserved.allocated_bytes, 12 * kMiB + 6 * kKiB);
  EXPECT_EQ(reserved.reserved_bytes, 22 * kMiB);
  EXPECT_EQ(reserved.retries, 0);
}

TEST(AllocationEventsTest, AFreeOfAnUnknownBlockAndADeviceThatIsTooSmallAreErrors) {
  EXPECT_THROW(reserved_for({{1, 0}}, {}), std::logic_error);
  EXPECT_THROW(reserved_for({{1, 4 * kMiB}}, {.device_bytes = kMiB}), std::runtime_error);
  EXPECT_THAT(CachingAllocator().segments(), IsEmpty());
}

}  // namespace
}  // namespace ac2::benchmarks
