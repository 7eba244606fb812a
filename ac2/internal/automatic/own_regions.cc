#include "ac2/internal/automatic/own_regions.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "ac2/internal/automatic/last_words.h"
#include "ac2/internal/automatic/process_record.h"
#include "ac2/internal/automatic/settings.h"
#include "ac2/internal/automatic/variables.h"
#include "ac2/internal/forms/ready_made_forms.h"
#include "ac2/internal/libtorch/error_text.h"
#include "ac2/internal/region/engine.h"
#include "ac2/internal/region/resting.h"
#include "ac2/policy.h"
#include "ac2/scope.h"

namespace ac2::internal {

namespace {

void say(const std::string& words) {
  std::fputs(words.c_str(), stderr);
}

// Of this process. Null before start_own_regions().
std::atomic<ProcessRecord*> process{nullptr};

ProcessRecord& record() {
  return *process.load(std::memory_order_acquire);
}

// The same objects for all threads. Leaked, as the record is.
const Forms& process_forms() {
  static const auto& forms = *new Forms(forms_of_list(record().settings().forms, variables::kForms));
  return forms;
}

std::unique_ptr<PolicyScope> open_scope() {
  const AutomaticSettings& settings = record().settings();
  ScopeOptions options{.memory_budget = record().budget(),
                       .verify = settings.verify,
                       .timeline = !settings.report.empty(),
                       .forms = process_forms()};
  auto scope = settings.policy.empty() ? std::make_unique<PolicyScope>(std::move(options))
                                       : std::make_unique<PolicyScope>(Policy(settings.policy), std::move(options));
  record().add(scope->trace());
  return scope;
}

// Of a thread. The flags have no destructor, so that they can be read at any time.
enum class OwnStage : uint8_t { kNone, kOpening, kOpen, kEnded };
constinit thread_local OwnStage own_stage = OwnStage::kNone;

struct OwnRegion {
  std::unique_ptr<PolicyScope> scope;

  OwnRegion() = default;
  OwnRegion(const OwnRegion&) = delete;
  OwnRegion& operator=(const OwnRegion&) = delete;
  ~OwnRegion() {
    own_stage = OwnStage::kEnded;
    try {
      scope.reset();
    } catch (const std::exception&) {
      // A scope of the program's is still open on this thread. A warning has said so.
    }
  }
};
thread_local OwnRegion own_region;

void open_own_region() {
  if (own_stage != OwnStage::kNone) {
    return;
  }
  own_stage = OwnStage::kOpening;
  try {
    own_region.scope = open_scope();
    let_region_rest();
    own_stage = OwnStage::kOpen;
  } catch (const std::exception& error) {
    open_regions_by(nullptr);
    own_stage = OwnStage::kNone;
    say("ac2: no region could be opened, and the program runs as it is: " + error_text(error) + "\n");
  }
}

// A thread without a region runs backwards too: of graphs of others.
void look_before_backward() {
  if (own_stage != OwnStage::kOpen) {
    return;
  }
  try {
    record().before_backward(*own_region.scope->trace());
  } catch (const std::exception&) {
    // Where there is no memory for names, there are none.
  }
}

void go_on_in_a_child() {
  record().forked(own_stage == OwnStage::kOpen ? own_region.scope->trace() : nullptr);
}

}  // namespace

void start_own_regions() noexcept {
  if (process.load(std::memory_order_acquire) != nullptr) {
    return;
  }
  try {
    AutomaticSettings settings = settings_of([](const char* name) { return std::getenv(name); });
    if (!settings.policy.empty()) {
      const Policy checked(settings.policy);
    }
    // Leaked: regions may be opened until the process is gone.
    process.store(new ProcessRecord(std::move(settings), ProcessRecord::Language::kCpp), std::memory_order_release);
    process_forms();  // so that a wrong list is told of here
    pthread_atfork(nullptr, nullptr, &go_on_in_a_child);
    speak_at_the_end(record());
    install_engine();
    before_backwards(&look_before_backward);
    open_regions_by(&open_own_region);
  } catch (const std::exception& error) {
    say("ac2: the program runs as it is: " + error_text(error) + "\n");
  }
}

}  // namespace ac2::internal
