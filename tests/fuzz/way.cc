#include "tests/fuzz/way.h"

#include <sstream>

#include "tests/fuzz/dice.h"

namespace ac2::test {

Way Way::draw(uint32_t seed) {
  Dice dice(seed + 77);
  Way way;
  way.setting.must = dice.roll(3);
  const uint32_t policy = dice.roll(5);
  way.setting.policy = policy < 3 ? policy : 3 + dice.roll(1000);
  way.setting.verify = dice.roll(4) == 0;
  way.setting.budget = dice.roll(3) == 0 ? 0 : 32 << dice.roll(8);
  const int backward = dice.roll(4);
  way.backward = backward == 0 ? Backward::kThreeTimes : backward == 1 ? Backward::kTwoDerivatives : Backward::kOnce;
  way.setting.names = dice.roll(2) == 0;
  way.setting.drops = dice.roll(2) == 0;
  way.setting.keeps = way.setting.budget == 0 && dice.roll(2) == 0;
  way.setting.packs = way.setting.budget != 0 && dice.roll(3) == 0;
  way.setting.rests = dice.roll(4) == 0;
  way.setting.modules = dice.roll(4) == 0;
  return way;
}

Way Way::draw_offloading(uint32_t seed, c10::Device device) {
  Way way = draw(seed);
  Dice dice(seed + 7777);
  way.device = device;
  way.setting.packs = false;  // the form hides a tensor, so that nothing orders its streams
  way.setting.must = dice.roll(4) == 0 ? way.setting.must : 3;
  way.setting.prefers_offload = dice.roll(2) == 0;
  if (way.setting.policy == 0) way.setting.policy = 3 + dice.roll(1000);
  if (dice.roll(2) == 0) way.setting.budget = 0;
  const auto bytes = [&dice] { return dice.roll(3) == 0 ? int64_t{1} << 20 : int64_t{32} << dice.roll(5); };
  way.setting.offload = {.min_bytes = dice.roll(4) == 0 ? 64 : 0,
                         .inputs = dice.roll(2) == 0,
                         .read_ahead_bytes = dice.roll(4) == 0 ? 0 : bytes(),
                         .in_flight_bytes = dice.roll(4) == 0 ? 0 : bytes()};
  if (dice.roll(4) == 0) way.setting.offload.max_pinned_bytes = 512 * dice.roll(20);
  way.setting.copies = way.setting.budget != 0 && dice.roll(3) > 0;
  return way;
}

std::string Way::source() const {
  static constexpr const char* kNames[] = {"kOnce", "kThreeTimes", "kTwoDerivatives"};
  std::ostringstream text;
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  text << "{.setting = {.policy = " << setting.policy << ", .must = " << setting.must
       << ", .verify = " << truth(setting.verify) << ", .budget = " << setting.budget
       << ", .names = " << truth(setting.names);
  if (setting.one_region) text << ", .one_region = true";
  if (!setting.inner_policies) text << ", .inner_policies = false";
  if (!setting.tags) text << ", .tags = false";
  if (!device.is_cpu()) {
    const OffloadOptions& offload = setting.offload;
    text << ", .prefers_offload = " << truth(setting.prefers_offload)
         << ", .offload = {.min_bytes = " << offload.min_bytes << ", .inputs = " << truth(offload.inputs)
         << ", .read_ahead_bytes = " << offload.read_ahead_bytes << ", .in_flight_bytes = " << offload.in_flight_bytes
         << ", .max_pinned_bytes = " << offload.max_pinned_bytes << "}";
  }
  if (setting.packs) text << ", .packs = true";
  if (setting.copies) text << ", .copies = true";
  if (setting.timeline) text << ", .timeline = true";
  if (setting.keeps) text << ", .keeps = true";
  if (setting.drops) text << ", .drops = true";
  if (setting.modules) text << ", .modules = true";
  if (setting.rests) text << ", .rests = true";
  text << "}, .backward = Backward::" << kNames[static_cast<int>(backward)];
  if (!device.is_cpu()) text << ", .device = device";
  text << "}";
  return text.str();
}

}  // namespace ac2::test
