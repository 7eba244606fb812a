// A libFuzzer target: plans' files of strangers. tools/fuzz_plan compiles it and runs it.
//
// Each input is read twice: as it is, and with the checksum that its bytes need, without which nothing behind the
// checksum would be reached. What must hold of each besides what the sanitizers watch:
//
//   - nothing but c10::Error comes out of read_plan(), and its text is valid UTF-8, because Python takes no other;
//   - a plan that is read is written as a file, and that is read as the same plan.
//
// With AC2_FUZZ_SEEDS=FOLDER it first writes files of plans there to begin with.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "ac2/internal/following/plan_file.h"
#include "ac2/internal/following/plan_json.h"

namespace ac2::internal {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_plan: %s\n", what.c_str());
  std::abort();
}

// In place of the ready-made forms, which are in //policies and are not linked.
class OwnForm final : public Form {
 public:
  OwnForm(std::string name, bool exact) : name_(std::move(name)), exact_(exact) {}
  std::string name() const override { return name_; }
  bool is_exact() const override { return exact_; }
  c10::IValue pack(const at::Tensor& tensor) const override { return tensor; }
  at::Tensor unpack(const c10::IValue& packed) const override { return packed.toTensor(); }

 private:
  const std::string name_;
  const bool exact_;
};

const Forms& own_forms() {
  static const auto& forms = *new Forms{std::make_shared<const OwnForm>("quantized 8 bits, seed 0", false),
                                        std::make_shared<const OwnForm>("one bit", true)};
  return forms;
}

// A file in memory.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(memfd_create("fuzz_plan", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    if (descriptor_ < 0) fail("no file in memory can be made");
  }
  const std::string& holding(std::string_view bytes) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      fail("the file in memory cannot be written");
    }
    return path_;
  }

 private:
  const int descriptor_;
  const std::string path_;
};

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
  return true;
}

std::shared_ptr<const PlannedStep> read(std::string_view bytes) {
  static const auto& file = *new MemoryFile;
  try {
    return read_plan(file.holding(bytes), own_forms());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (!is_utf8(text)) fail("an error has bytes that are no UTF-8");
  }
  return nullptr;
}

// Without its checksum, if it has one.
std::string_view body_of(std::string_view bytes) {
  const size_t end = bytes.rfind(",\"crc32\":\"");
  if (end != std::string_view::npos) return bytes.substr(0, end);
  return bytes.substr(0, bytes.find_last_of('}'));
}

std::string sealed(std::string_view body) {
  char seal[32];
  const auto sum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
  std::snprintf(seal, sizeof seal, ",\"crc32\":\"%08x\"}\n", sum);
  return std::string(body) + seal;
}

// In a folder of the process's own, which goes when it exits.
const std::string& scratch() {
  static const auto& folder = *new std::string([] {
    std::string name = (std::filesystem::temp_directory_path() / "fuzz_plan_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("no folder can be made");
    return name;
  }());
  static const int registered = std::atexit([] { std::filesystem::remove_all(folder); });
  (void)registered;
  return folder;
}

void check_round_trip(const PlannedStep& plan) {
  if (plan.decisions.size() != plan.calls.size() || plan.in_form.size() != plan.calls.size()) {
    fail("a plan was read with lists of different lengths");
  }
  const std::string path = scratch() + "/plan.json";
  write_plan(plan, path);
  const std::shared_ptr<const PlannedStep> again = read_plan(path, own_forms());
  if (plan_to_json(*again) != plan_to_json(plan)) fail("a plan that was written and read is another");
}

c10::OperatorHandle op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchema({name, overload}).value();
}

void write_seeds(const std::string& folder) {
  PlannedStep plain;
  plain.bytes = 41943040;
  plain.calls = {PlannedCall{op("aten::mm"), 4096}, std::nullopt, PlannedCall{op("aten::add", "Tensor"), 4096}};
  plain.decisions = {CheckpointPolicy::PREFER_SAVE, CheckpointPolicy::PREFER_SAVE, CheckpointPolicy::MUST_RECOMPUTE};
  plain.summary = {
      .forward_bytes = 4096, .peak_bytes = 8192, .replayed_ops = 1, .replay_cost = 2.5, .forward_cost = 30};
  write_plan(plain, folder + "/plain.json");

  PlannedStep in_forms;
  in_forms.bytes = 1 << 20;
  in_forms.costs = CostSource::kModelled;
  in_forms.calls = plain.calls;
  in_forms.decisions = {CheckpointPolicy::MUST_CPU_OFFLOAD, CheckpointPolicy::PREFER_SAVE, CheckpointPolicy::MUST_SAVE};
  in_forms.copies = OffloadOptions{.min_bytes = 1024, .read_ahead_bytes = 4096, .in_flight_bytes = 8192};
  in_forms.forms = own_forms();
  in_forms.in_form = {PlannedStep::kInNoForm, PlannedStep::kInNoForm, 1};
  in_forms.is_inexact = true;
  in_forms.summary = {
      .forward_bytes = 1, .uses = {{"one bit", 1, 4096, 0.125}}, .step_peak_bytes = 9, .step_start_bytes = 3};
  write_plan(in_forms, folder + "/in_forms.json");

  write_plan(PlannedStep{.bytes = 1}, folder + "/empty.json");
}

}  // namespace
}  // namespace ac2::internal

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  if (const char* const folder = std::getenv("AC2_FUZZ_SEEDS")) ac2::internal::write_seeds(folder);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ac2::internal;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto as_it_is = read(bytes);
  const auto with_checksum = read(sealed(body_of(bytes)));
  for (const auto& plan : {as_it_is, with_checksum}) {
    if (plan != nullptr) check_round_trip(*plan);
  }
  return 0;
}
