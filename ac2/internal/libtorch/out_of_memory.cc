#include "ac2/internal/libtorch/out_of_memory.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "absl/strings/str_split.h"
#include "ac2/internal/libtorch/host_language.h"
#include "ac2/internal/libtorch/told_shortage.h"

namespace ac2::internal {

namespace {

constexpr const char* kBegin = "What ac2 holds:";

// An error of oneDNN's, which asks no allocator of LibTorch's for what it keeps of a primitive. Rejected: to look at
// the status that the error has, because LibTorch before 2.11 comes without the header that declares the type.
bool is_of_onednn(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string_view(typeid(error).name()) == "N4dnnl5errorE" &&
         (text.starts_with("could not create") || text.starts_with("could not execute"));
}

std::atomic<OutOfMemoryNote> installed{nullptr};

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) {
    // An accelerator's error has a type of its own.
    return is_about_hosts_memory(c10_error->what_without_backtrace());
  }
  if (is_of_onednn(error)) {
    return true;
  }
  const HostLanguage* host = host_language();
  return host != nullptr && host->is_memory_error(error);
}

void set_out_of_memory_note(OutOfMemoryNote note) {
  // Pairs with the acquire of add_out_of_memory_note(), for what the note finds set up.
  installed.store(note, std::memory_order_release);
}

void add_out_of_memory_note(c10::Error& error, const FailedCall* call) noexcept {
  const OutOfMemoryNote note = installed.load(std::memory_order_acquire);
  if (note == nullptr || !is_out_of_memory(error)) {
    return;
  }
  const auto& lines = error.context();
  if (std::find(lines.begin(), lines.end(), kBegin) != lines.end()) {
    return;
  }
  try {
    const std::string text = note(error, call);
    if (text.empty()) {
      return;
    }
    error.add_context(kBegin);
    const std::vector<std::string> added = absl::StrSplit(text, '\n');
    for (const std::string& line : added) {
      error.add_context(line);
    }
  } catch (...) {
    // Where there is no memory for the note, the error goes on without it.
  }
}

}  // namespace ac2::internal
