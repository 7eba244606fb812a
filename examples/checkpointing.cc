#include "examples/checkpointing.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_join.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "policies/policies.h"

namespace gpt {

namespace {

std::optional<int64_t> bytes_in(absl::string_view text) {
  double unit = 1;
  for (const auto& [suffix, bytes] : {std::pair("KiB", 0x1p10), std::pair("MiB", 0x1p20), std::pair("GiB", 0x1p30)}) {
    if (absl::ConsumeSuffix(&text, suffix)) {
      unit = bytes;
      break;
    }
  }
  double number = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text), &number) || !(number > 0) || number * unit > 0x1p62) {
    return std::nullopt;
  }
  return std::llround(number * unit);
}

// All of what backward needs, in another form.
const std::vector<std::string>& all_ops() {
  static const std::vector<std::string> ops = {"aten::*"};
  return ops;
}

std::optional<ac2::Policy> changing_gradients(const std::string& name) {
  if (name == "quantize8") return ac2::policies::quantize_ops(all_ops(), 8);
  if (name == "quantize4") return ac2::policies::quantize_ops(all_ops(), 4);
  if (name == "bfloat16") return ac2::policies::narrow_ops(all_ops(), at::kBFloat16);
  if (name == "float8") return ac2::policies::narrow_ops(all_ops(), at::kFloat8_e4m3fn);
  return std::nullopt;
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {"none", "recompute_all", "save_compute_intensive", "must_save_all"};
  return names;
}

Checkpointing checkpointing_by_name(const std::string& name, bool modelled_costs) {
  if (name == "none") return {};
  const std::vector<std::string>& known = ac2::policies::policy_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) return ac2::policies::policy_by_name(name);
  if (const auto policy = changing_gradients(name)) {
    Checkpointing checkpointing(*policy);
    checkpointing.exact = false;
    return checkpointing;
  }
  if (absl::string_view directory = name; absl::ConsumePrefix(&directory, "spill:")) {
    return ac2::policies::spill_to_file(std::string(directory), all_ops());
  }
  if (name == "offload" || name == "offload_inputs") {
    Checkpointing checkpointing(name == "offload" ? ac2::policies::offload_ops(all_ops())
                                                  : ac2::policies::recompute_all());
    checkpointing.offload = ac2::OffloadOptions{.inputs = true};
    return checkpointing;
  }
  if (name == kWhateverFits) return Checkpointing(ac2::whatever_fits(modelled_costs));
  if (const auto bytes = bytes_in(name)) return Checkpointing(ac2::MemoryBudget(*bytes, modelled_costs));
  TORCH_CHECK(false, "Unknown policy \"", name, "\". Choose one of: none, ", absl::StrJoin(known, ", "),
              ", quantize8, quantize4, bfloat16, float8, spill:DIRECTORY, offload, offload_inputs; or a memory budget "
              "such as 40MiB, or auto.");
}

RegionSpan span_by_name(const std::string& name) {
  if (name == "block") return RegionSpan::kBlock;
  if (name == "step") return RegionSpan::kStep;
  TORCH_CHECK(name == "loop", "region is \"", name, "\"; it must be block, step or loop: what one region lies around.");
  return RegionSpan::kLoop;
}

std::unique_ptr<ac2::PolicyScope> open_region(const Checkpointing& checkpointing) {
  if (checkpointing.none()) return nullptr;
  // Not in one initializer: GCC 12 then believes that the budget may be uninitialized (-Wmaybe-uninitialized).
  ac2::ScopeOptions options;
  options.memory_budget = checkpointing.budget;
  options.offload = checkpointing.offload;
  options.timeline = checkpointing.traces != nullptr;
  auto region = checkpointing.policy ? std::make_unique<ac2::PolicyScope>(*checkpointing.policy, options)
                                     : std::make_unique<ac2::PolicyScope>(options);
  if (Traces* traces = checkpointing.traces; traces != nullptr) {
    // A scope inside another has that one's.
    if (traces->empty() || traces->back() != region->trace()) traces->push_back(region->trace());
  }
  return region;
}

int64_t parse_bytes(const std::string& text) {
  const auto bytes = bytes_in(text);
  TORCH_CHECK(bytes, "\"", text,
              "\" is not a number of bytes. Write a positive number and a unit, such as 40MiB, 1.5GiB ", "or 65536.");
  return *bytes;
}

}  // namespace gpt
