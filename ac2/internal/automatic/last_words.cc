#include "ac2/internal/automatic/last_words.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <string>

#include "ac2/internal/libtorch/error_text.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/locks/condition.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

// How long the process waits for the thread that speaks. The page is written meanwhile.
constexpr std::chrono::seconds kPatience{10};
// Of the thread that speaks. The default of 8 MiB may be more than there is where memory has run out.
constexpr size_t kStackBytes = size_t{512} << 10;
// Address space that is given back before: for the stack, and for the words and the error's own text.
constexpr size_t kReservedBytes = size_t{4} << 20;

std::atomic<ProcessRecord*> speaker{nullptr};
void* reserved = MAP_FAILED;
std::atomic<bool> has_spoken{false};
std::terminate_handler next_handler = nullptr;

void print(const std::string& words) {
  std::fputs(words.c_str(), stderr);
}

void speak_at_exit() {
  if (!has_spoken.exchange(true)) {
    print(speaker.load()->end());
  }
}

// The error that nobody has caught. The handler's thread writes it, and the thread that speaks reads it.
struct Uncaught {
  std::string text;
  bool is_about_memory = false;
};

// Nothing where std::terminate() was called for another reason.
Uncaught uncaught_error() {
  const std::exception_ptr error = std::current_exception();
  if (error == nullptr) {
    return {};
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return {error_text(known), is_out_of_memory(known)};
  } catch (...) {
    return {};  // its type says nothing about memory
  }
}

struct Speech {
  Uncaught error;
  Mutex mutex;
  Condition condition;
  bool is_over ABSL_GUARDED_BY(mutex) = false;
};

void* speak(void* argument) {
  auto& speech = *static_cast<Speech*>(argument);
  try {
    ProcessRecord& record = *speaker.load();
    record.note_error(speech.error.text, speech.error.is_about_memory, "");
    print(record.end());
  } catch (const std::exception&) {
    std::fputs("ac2: there is no memory to say what was done.\n", stderr);
  }
  const MutexLock lock(speech.mutex);
  speech.is_over = true;
  speech.condition.notify_all();
  return nullptr;
}

bool start_thread(Speech& speech) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) {
    return false;
  }
  pthread_t thread;
  const bool has_started = pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
                           pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                           pthread_create(&thread, &attributes, &speak, &speech) == 0;
  pthread_attr_destroy(&attributes);
  return has_started;
}

void speak_of_uncaught_error() noexcept {
  if (has_spoken.exchange(true)) {
    return;
  }
  if (reserved != MAP_FAILED) {
    munmap(reserved, kReservedBytes);
  }
  // Leaked: the thread may use it when nobody waits any more.
  auto* const speech = new (std::nothrow) Speech;
  if (speech == nullptr) {
    return;
  }
  try {
    speech->error = uncaught_error();
  } catch (const std::bad_alloc&) {
    speech->error.is_about_memory = true;  // without its text
  }
  if (!start_thread(*speech)) {
    std::fputs("ac2: there is no memory to say what was done.\n", stderr);
    return;
  }
  const auto latest = std::chrono::steady_clock::now() + kPatience;
  const MutexLock lock(speech->mutex);
  while (!speech->is_over && speech->condition.wait_until(speech->mutex, latest)) {
  }
  if (!speech->is_over) {
    std::fputs("ac2: what was done cannot be said: the thread with the error holds a lock.\n", stderr);
  }
}

[[noreturn]] void speak_and_terminate() {
  speak_of_uncaught_error();
  next_handler();
  std::abort();
}

}  // namespace

void speak_at_the_end(ProcessRecord& record) {
  speaker.store(&record);
  std::atexit(&speak_at_exit);
  reserved = mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  next_handler = std::get_terminate();
  std::set_terminate(&speak_and_terminate);
}

}  // namespace ac2::internal
