// The demands of replay on a device with streams, through c10's interface, on a device that only writes down what it
// was asked.
#include "ac2/internal/libtorch/stream_order.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ac2::internal {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

// Two devices with streams that are numbers.
struct Asked {
  std::vector<std::string> calls;
  c10::DeviceIndex device = 0;
  c10::StreamId streams[2] = {0, 0};
  int64_t events = 0;  // alive
};

Asked& asked() {
  static Asked all;
  return all;
}

std::string name_of(const c10::Stream& stream) {
  return std::to_string(stream.device_index()) + ":" + std::to_string(stream.id());
}

class LoggingGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, asked().device}; }
  void setDevice(c10::Device device) const override { asked().device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { asked().device = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = device.has_index() ? device.index() : asked().device;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), asked().streams[index]);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    asked().streams[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    static int token;
    *event = &token;
    ++asked().events;
    asked().calls.push_back("record " + name_of(stream));
  }
  void block(void*, const c10::Stream& stream) const override { asked().calls.push_back("block " + name_of(stream)); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { asked().events -= event != nullptr; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream& stream) const override {
    asked().calls.push_back("keep for " + name_of(stream));
  }
};

class StreamOrderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { static const c10::impl::DeviceGuardImplRegistrar registered(kType, new LoggingGuard); }
  void SetUp() override { asked() = Asked(); }
  void TearDown() override { EXPECT_EQ(asked().events, 0); }

  static c10::Storage storage_on(c10::Device device) {
    static char byte;
    return c10::Storage(c10::Storage::use_byte_size_t(), 1, c10::DataPtr(&byte, device), nullptr, false);
  }
  static std::vector<std::string> calls() { return asked().calls; }
};

using Calls = std::vector<std::string>;

TEST_F(StreamOrderTest, TheCpuAndTheMetaDeviceAreNotAsked) {
  for (const c10::Device device : {c10::Device(c10::kCPU), c10::Device(c10::kMeta)}) {
    EXPECT_FALSE(is_asynchronous(device));
    const c10::Storage storage = storage_on(device);
    EXPECT_EQ(current_stream(storage), kNoStream);
    EXPECT_EQ(order_use(storage, 0), 0);
    keep_until_read(storage);
    follow_current_device(device);
    EXPECT_EQ(with_index(device), device);
  }
  EXPECT_FALSE(is_asynchronous(c10::Device(c10::DeviceType::XLA, 0)));  // nobody has said how to ask it
  EXPECT_EQ(calls(), Calls());
}

TEST_F(StreamOrderTest, UsedWhereItWasMadeNothingWaits) {
  asked().streams[1] = 7;
  const c10::Storage storage = storage_on({kType, 1});
  EXPECT_EQ(current_stream(storage), 7);
  EXPECT_EQ(order_use(storage, 7), 7);
  EXPECT_EQ(order_use(storage, kNoStream), kNoStream);
  EXPECT_EQ(calls(), Calls());
}

TEST_F(StreamOrderTest, UsedOnAnotherStreamThatOneWaitsAndTheMemoryIsKept) {
  asked().streams[1] = 7;
  const c10::Storage storage = storage_on({kType, 1});
  EXPECT_EQ(order_use(storage, 3), 7);
  EXPECT_EQ(calls(), (Calls{"record 1:3", "block 1:7", "keep for 1:7"}));
}

TEST_F(StreamOrderTest, WhatIsReadIsKeptForTheCurrentStream) {
  asked().streams[0] = 5;
  keep_until_read(storage_on({kType, 0}));
  EXPECT_EQ(calls(), Calls{"keep for 0:5"});
}

TEST_F(StreamOrderTest, AnotherDevicesStreamFollowsThatOfTheCurrentDevice) {
  asked().device = 1;
  asked().streams[0] = 4;
  asked().streams[1] = 6;
  follow_current_device({kType, 1});
  EXPECT_EQ(calls(), Calls());
  follow_current_device({kType, 0});
  EXPECT_EQ(calls(), (Calls{"record 1:6", "block 0:4"}));
}

TEST_F(StreamOrderTest, ADeviceWithoutAnIndexIsTheCurrentOne) {
  asked().device = 1;
  EXPECT_EQ(with_index(c10::Device(kType)), c10::Device(kType, 1));
  EXPECT_EQ(with_index(c10::Device(kType, 0)), c10::Device(kType, 0));
}

}  // namespace
}  // namespace ac2::internal
