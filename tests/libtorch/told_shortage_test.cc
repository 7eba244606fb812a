// The texts of errors about memory are understood: what was asked for, and where.
#include "ac2/internal/libtorch/told_shortage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace ac2::internal {
namespace {

TEST(ToldShortageTest, LibTorchsAllocatorOfTheCpuIsUnderstood) {
  const std::optional<ToldShortage> told =
      told_shortage("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12");
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->on_host);
  EXPECT_EQ(told->bytes, 4096);
}

TEST(ToldShortageTest, TheErrorOfThisLibraryIsUnderstood) {
  const std::optional<ToldShortage> told = told_shortage(
      "ac2: can't allocate memory: 12345 bytes were asked for, and the memory of the machine leaves 100. ");
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->on_host);
  EXPECT_EQ(told->bytes, 12345);
}

TEST(ToldShortageTest, AnAcceleratorsErrorSaysWhichDeviceItIs) {
  const std::optional<ToldShortage> told =
      told_shortage("CUDA out of memory. Tried to allocate 20.50 GiB. GPU 11 has a total capacity of 139.80 GiB");
  ASSERT_TRUE(told);
  EXPECT_FALSE(told->on_host);
  EXPECT_EQ(told->index, 11);
  EXPECT_EQ(told->bytes, (int64_t{41} << 30) / 2);
}

TEST(ToldShortageTest, WhatATextDoesNotSayIsNotKnown) {
  const std::optional<ToldShortage> without_device = told_shortage("Tried to allocate 20.00 MiB.");
  ASSERT_TRUE(without_device);
  EXPECT_EQ(without_device->index, std::nullopt);
  EXPECT_EQ(without_device->bytes, 20 << 20);
  const std::optional<ToldShortage> without_bytes = told_shortage("can't allocate memory");
  ASSERT_TRUE(without_bytes);
  EXPECT_TRUE(without_bytes->on_host);
  EXPECT_EQ(without_bytes->bytes, std::nullopt);
}

TEST(ToldShortageTest, OtherErrorsTellOfNone) {
  EXPECT_EQ(told_shortage("mat1 and mat2 shapes cannot be multiplied"), std::nullopt);
  EXPECT_EQ(told_shortage("std::bad_alloc"), std::nullopt);
  EXPECT_EQ(told_shortage(""), std::nullopt);
}

}  // namespace
}  // namespace ac2::internal
