// libac2_preload.so, which ac2-run has the loader put before all other libraries of a program (LD_PRELOAD).
//
// The library waits until the program has LibTorch, looks at its version, and then loads libac2_auto.so, which is ac2
// itself. Two moments count: main() begins, when the libraries that the program is linked to have run their
// constructors; and the outermost dlopen() of a thread returns. So the library stands in front of two functions of
// libc: of the one that calls main(), and of dlopen().
//
// The library needs nothing but libc. Were it linked to LibTorch, the loader would look for one without the program's
// RUNPATH, and give the program that one or none. libac2_auto.so is linked to LibTorch, and gets by its name the one
// that is in the process.
//
// What a child process is started with is the program's business: it has the same environment.
//
// Rejected: to stand in front of dlsym(), by which no dlopen() could be missed. A constructor of LibTorch may call
// that, when half of LibTorch is there. Rejected too: LD_AUDIT, which tells of each library, and makes every call
// between libraries dearer.
//
// Threads: dlopen() may be called by any.
#include <dlfcn.h>
#include <link.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ac2/internal/automatic/variables.h"

namespace {

namespace variables = ac2::internal::variables;

using Main = int (*)(int, char**, char**);
using StartMain = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
using Dlopen = void* (*)(const char*, int);

constexpr char kLibTorch[] = "libtorch_cpu.so";
constexpr char kAuto[] = "libac2_auto.so";
constexpr char kAsItIs[] = "and the program runs as it is.";

Main program_main = nullptr;
std::atomic<bool> main_has_begun{false};
std::atomic<bool> has_found{false};
// Of this thread, and not returned yet.
__attribute__((tls_model("initial-exec"))) thread_local int open_calls = 0;

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

Dlopen libc_dlopen() {
  static std::atomic<Dlopen> known{nullptr};
  Dlopen function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = next<Dlopen>("dlopen");
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

// One line on stderr, by one write.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...) {
  char line[2048];
  std::va_list values;
  va_start(values, format);
  int length = std::vsnprintf(line, sizeof line - 1, format, values);
  va_end(values);
  if (length < 0) {
    return;
  }
  length = length < static_cast<int>(sizeof line) - 1 ? length : static_cast<int>(sizeof line) - 2;
  line[length] = '\n';
  const ssize_t written = write(STDERR_FILENO, line, length + 1);
  static_cast<void>(written);
}

bool is_this_process(const char* variable) {
  const char* const process = std::getenv(variable);
  return process != nullptr && std::atol(process) == static_cast<long>(getpid());
}

// A std::string of libstdc++, as its new ABI has it. The destructor, which a function that returns one must know of,
// does nothing: there is one such string in a process.
struct String {
  const char* data;
  size_t size;
  char short_text[16];
  ~String() {}
};

// "2.15.0" of "…, TORCH_VERSION=2.15.0, …". Empty if LibTorch does not say.
void read_version(void* libtorch, char* version, size_t size) {
  version[0] = '\0';
  using ShowConfig = String (*)();
  const auto show_config = reinterpret_cast<ShowConfig>(dlsym(libtorch, "_ZN2at11show_configB5cxx11Ev"));
  if (show_config == nullptr) {
    return;
  }
  const String config = show_config();
  constexpr char kKey[] = "TORCH_VERSION=";
  const char* const found = std::strstr(config.data, kKey);
  if (found == nullptr) {
    return;
  }
  const char* const text = found + sizeof kKey - 1;
  const size_t length = std::strcspn(text, ", \n");
  if (length < size) {
    std::memcpy(version, text, length);
    version[length] = '\0';
  }
}

bool is_built_for(const char* version) {
  int major = 0;
  int minor = 0;
  return std::sscanf(version, "%d.%d", &major, &minor) == 2 && major == TORCH_VERSION_MAJOR &&
         minor == TORCH_VERSION_MINOR;
}

// The path of libac2_auto.so, which lies beside this library.
bool find_auto(char* path, size_t size) {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&find_auto), &self) == 0) {
    return false;
  }
  const char* const slash = std::strrchr(self.dli_fname, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - self.dli_fname) + 1;
  return std::snprintf(path, size, "%.*s%s", folder, self.dli_fname, kAuto) < static_cast<int>(size);
}

void load_ac2(void* libtorch) {
  if (is_this_process(variables::kLinkedInto)) {
    return;
  }
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) {
    say("ac2-run: this program has Python in it, %s Start a Python program by python -m ac2.", kAsItIs);
    return;
  }
  char version[64];
  read_version(libtorch, version, sizeof version);
  if (!is_built_for(version)) {
    say("ac2-run: the program has LibTorch %s, ac2 was built for %d.%d, %s Build ac2 with the program's LibTorch.",
        version[0] == '\0' ? "(of a version that it does not tell)" : version, TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR,
        kAsItIs);
    return;
  }
  char path[PATH_MAX];
  void* const ac2 = find_auto(path, sizeof path) ? libc_dlopen()(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  using Start = void (*)();
  const auto start = ac2 == nullptr ? nullptr : reinterpret_cast<Start>(dlsym(ac2, "ac2_start_own_regions"));
  if (start == nullptr) {
    const char* const error = dlerror();
    say("ac2-run: %s could not be loaded (%s), %s", kAuto, error == nullptr ? "no such file" : error, kAsItIs);
    return;
  }
  start();
}

// Leaves errno and dlerror() as after a success.
void look_for_libtorch() {
  if (!main_has_begun || has_found) {
    return;
  }
  const int error = errno;
  // While another thread loads LibTorch, this waits until its constructors have run.
  void* const libtorch = libc_dlopen()(kLibTorch, RTLD_LAZY | RTLD_NOLOAD);
  if (libtorch != nullptr && !has_found.exchange(true)) {
    load_ac2(libtorch);
  }
  dlerror();
  errno = error;
}

void say_that_there_was_none() {
  const char* const quiet = std::getenv(variables::kQuiet);
  if (!has_found && is_this_process(variables::kRunProcess) && (quiet == nullptr || std::strcmp(quiet, "1") != 0)) {
    say("ac2-run: the program loaded no %s, so it ran as it is. It has no LibTorch, or one that is linked into it "
        "statically.",
        kLibTorch);
  }
}

int run_main(int count, char** arguments, char** environment) {
  main_has_begun = true;
  std::atexit(&say_that_there_was_none);
  look_for_libtorch();
  return program_main(count, arguments, environment);
}

// In the folders that `caller`'s RPATH, RUNPATH and LD_LIBRARY_PATH name, as libc would look for it. Null if it is in
// none of them. To libc the caller is this library.
void* open_by_paths_of(const void* caller, const char* name, int mode) {
  Dl_info info{};
  link_map* object = nullptr;
  Dl_serinfo size{};
  if (dladdr1(caller, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || object == nullptr ||
      dlinfo(object, RTLD_DI_SERINFOSIZE, &size) != 0) {
    return nullptr;
  }
  auto* const paths = static_cast<Dl_serinfo*>(std::malloc(size.dls_size));
  if (paths == nullptr) {
    return nullptr;
  }
  void* handle = nullptr;
  if (dlinfo(object, RTLD_DI_SERINFOSIZE, paths) == 0 && dlinfo(object, RTLD_DI_SERINFO, paths) == 0) {
    for (unsigned i = 0; handle == nullptr && i < paths->dls_cnt; ++i) {
      char path[PATH_MAX];
      // libc looks into its own folders by itself, after its cache.
      const bool is_default = (paths->dls_serpath[i].dls_flags & LA_SER_DEFAULT) != 0;
      const int length = std::snprintf(path, sizeof path, "%s/%s", paths->dls_serpath[i].dls_name, name);
      if (!is_default && length < static_cast<int>(sizeof path) && access(path, R_OK) == 0) {
        handle = libc_dlopen()(path, mode);
      }
    }
  }
  std::free(paths);
  return handle;
}

void* open_for(const void* caller, const char* name, int mode) {
  if (std::strchr(name, '/') == nullptr) {
    if (void* const loaded = libc_dlopen()(name, mode | RTLD_NOLOAD)) {
      return loaded;
    }
    if (void* const found = open_by_paths_of(caller, name, mode)) {
      return found;
    }
  }
  return libc_dlopen()(name, mode);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int count, char** arguments,
                                                                        void (*init)(), void (*end)(),
                                                                        void (*end_of_loader)(), void* stack) {
  program_main = main;
  return next<StartMain>("__libc_start_main")(&run_main, count, arguments, init, end, end_of_loader, stack);
}

extern "C" __attribute__((visibility("default"))) void* dlopen(const char* name, int mode) noexcept {
  // Nothing can be new, or $ORIGIN has to be the caller's: then libc is to see the caller, which a jump leaves it.
  if (name == nullptr || *name == '\0' || (mode & RTLD_NOLOAD) != 0 || std::strchr(name, '$') != nullptr) {
    return libc_dlopen()(name, mode);
  }
  ++open_calls;
  void* const handle = open_for(__builtin_return_address(0), name, mode);
  --open_calls;
  if (handle != nullptr && open_calls == 0) {
    dlerror();
    look_for_libtorch();
  }
  return handle;
}
