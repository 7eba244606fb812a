// ac2-run: starts a program that knows nothing of ac2, in regions that last as long as its threads (docs/ac2_run.md).
//
// The program takes this one's place in the process: its exit code, signals and standard streams are its own.
#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/automatic/settings.h"
#include "ac2/internal/automatic/variables.h"

// Where the libraries are installed, seen from this program's folder.
#ifndef AC2_RUN_LIBRARIES
#define AC2_RUN_LIBRARIES "."
#endif

namespace {

namespace variables = ac2::internal::variables;

constexpr int kWrongUsage = 2;  // as of other commands
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

constexpr char kUsage[] = R"(usage: ac2-run [options] [--] PROGRAM [ARGUMENTS...]

Runs a program that uses LibTorch in regions of ac2, one for each of its threads that trains. Nothing is computed again
while there is memory. Where memory runs out, values are dropped and computed again in backward, and the results are the
same to the last bit.

  --memory-budget BUDGET  auto (the default): what the machine has room for
                          8GiB: the most that may be held for backward; an error where that is not enough
                          soft:8GiB: the same without the error; peak:20GiB: bounds all tensors of a device together
  --policy NAME           what is saved: save_compute_intensive, recompute_all, ...; without a budget the policy decides
                          alone
  --forms LIST            ways in which the budget may hold values besides computing them again: one_bit, file:FOLDER,
                          quantized:8, narrow:bfloat16, host_memory, with commas between them
  --report FILE           writes a page about what was held and computed again, at the end
  --verify                compares everything that is computed again with what it was; slow
  --quiet                 says nothing at the end
  --help                  shows this

The same by environment: AC2_MEMORY_BUDGET, AC2_POLICY, AC2_FORMS, AC2_REPORT, AC2_VERIFY=1, AC2_QUIET=1.
)";

class WrongUsage : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

void set(const char* variable, const std::string& value) {
  setenv(variable, value.c_str(), 1);
}

// The program may change its folder.
std::string absolute(const std::string& path) {
  std::array<char, PATH_MAX> folder{};
  return path.empty() || path[0] == '/' || getcwd(folder.data(), folder.size()) == nullptr
             ? path
             : std::string(folder.data()) + "/" + path;
}

struct Option {
  const char* name;
  const char* variable;
  bool has_value;
};
constexpr std::array<Option, 6> kOptions{{{"--memory-budget", variables::kBudget, true},
                                          {"--policy", variables::kPolicy, true},
                                          {"--forms", variables::kForms, true},
                                          {"--report", variables::kReport, true},
                                          {"--verify", variables::kVerify, false},
                                          {"--quiet", variables::kQuiet, false}}};

// Puts the options into the environment. Returns the program and its arguments, none after --help.
std::vector<char*> read_options(char** arguments) {
  char** next = arguments + 1;
  for (; *next != nullptr && **next == '-'; ++next) {
    const std::string given = *next;
    if (given == "--") {
      ++next;
      break;
    }
    if (given == "--help") {
      std::cout << kUsage;
      return {};
    }
    const size_t equals = given.find('=');
    const std::string name = given.substr(0, equals);
    const Option* known = nullptr;
    for (const Option& option : kOptions) {
      known = name == option.name ? &option : known;
    }
    if (known == nullptr) {
      throw WrongUsage("unknown option " + name);
    }
    std::optional<std::string> value;
    if (equals != std::string::npos) {
      value = given.substr(equals + 1);
    } else if (known->has_value && next[1] != nullptr) {
      value = *++next;
    }
    if (known->has_value != value.has_value()) {
      throw WrongUsage(name + (known->has_value ? " needs a value" : " takes no value"));
    }
    if (name == "--memory-budget") {
      ac2::internal::parse_budget(*value, name);  // throws if it is none
    }
    set(known->variable, !value ? "1" : name == "--report" ? absolute(*value) : *value);
  }
  std::vector<char*> program;
  for (; *next != nullptr; ++next) {
    program.push_back(*next);
  }
  if (program.empty()) {
    throw WrongUsage("no program is given");
  }
  program.push_back(nullptr);
  return program;
}

// The file that execvp() would start. Empty if there is none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/bin:/usr/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    struct stat status {};
    if (access(file.c_str(), X_OK) == 0 && stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      return file;
    }
  }
  return "";
}

// A file, as the kernel and the loader take it.
struct Program {
  bool is_script = false;
  std::string obstacle;  // why no library can be put before the program's own; empty if it can
};

bool has_privileges(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) {
    return false;
  }
  const bool as_another_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != getuid();
  const bool as_another_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != getgid();
  return as_another_user || as_another_group || getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
}

// The name of the loader that the file asks for. Empty if it asks for none.
std::string loader_of(std::istream& file, const Elf64_Ehdr& header) {
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + static_cast<Elf64_Off>(i) * header.e_phentsize));
    if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) {
      return "";
    }
    if (part.p_type == PT_INTERP && part.p_filesz < PATH_MAX) {
      std::string name(part.p_filesz, '\0');
      file.seekg(static_cast<std::streamoff>(part.p_offset));
      file.read(name.data(), static_cast<std::streamsize>(name.size()));
      return name;
    }
  }
  return "";
}

Elf64_Ehdr header_of(std::istream& file) {
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  file.clear();
  return header;
}

Program look_at(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  const Elf64_Ehdr header = header_of(file);
  Program program;
  program.is_script = std::memcmp(header.e_ident, "#!", 2) == 0;
  if (has_privileges(name)) {
    program.obstacle =
        "has privileges of its own (setuid, setgid or capabilities), and the loader lets nobody add to it";
  } else if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    const Elf64_Ehdr own = header_of(self);
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_machine != own.e_machine) {
      program.obstacle = "is for another machine than ac2-run";
    } else if (const std::string loader = loader_of(file, header); loader.empty()) {
      program.obstacle = "is linked statically, and no library can be loaded into it";
    } else if (loader.find("musl") != std::string::npos) {
      program.obstacle = "uses musl, and ac2 needs glibc";
    }
  }
  return program;
}

// libac2_preload.so: beside this program where it was built, or where it is installed.
std::string find_preloaded() {
  std::array<char, PATH_MAX> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) {
    return "";
  }
  const std::string path = self.data();
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const char* libraries : {".", AC2_RUN_LIBRARIES}) {
    const std::string file = folder + "/" + libraries + "/libac2_preload.so";
    std::array<char, PATH_MAX> resolved{};
    if (realpath(file.c_str(), resolved.data()) != nullptr) {
      return resolved.data();
    }
  }
  return "";
}

// After those that are preloaded already: a sanitizer's library wants to be the first.
void preload(const std::string& library) {
  const char* const others = std::getenv("LD_PRELOAD");
  set("LD_PRELOAD", others == nullptr || *others == '\0' ? library : std::string(others) + ":" + library);
}

void complain(const std::string& what) {
  std::cerr << "ac2-run: " << what << '\n';
}

void prepare(const std::string& name) {
  const std::string file = find_program(name);
  const Program program = look_at(file);
  const std::string library = find_preloaded();
  std::string obstacle = program.obstacle.empty() ? "" : name + " " + program.obstacle;
  if (obstacle.empty() && library.empty()) {
    obstacle = "libac2_preload.so is neither beside ac2-run nor where it was installed";
  } else if (obstacle.empty() && library.find_first_of(" :") != std::string::npos) {
    obstacle = library + " has a space or a colon in its path, which the loader takes for the end of a name";
  }
  if (!obstacle.empty()) {
    complain(obstacle + ": the program runs as it is.");
    return;
  }
  preload(library);
  // Whether there is LibTorch concerns the programs that a script starts, not the one that reads it.
  if (program.is_script) {
    unsetenv(variables::kRunProcess);
  } else {
    set(variables::kRunProcess, std::to_string(getpid()));
  }
}

}  // namespace

int main(int, char** arguments) {
  try {
    std::vector<char*> program = read_options(arguments);
    if (program.empty()) {
      return 0;
    }
    ac2::internal::settings_of([](const char* name) { return std::getenv(name); });  // throws if they are wrong
    prepare(program[0]);
    execvp(program[0], program.data());
    const int error = errno;
    complain(std::string(program[0]) + ": " + std::strerror(error));
    return error == ENOENT ? kNotFound : kCannotRun;
  } catch (const WrongUsage& error) {
    complain(std::string(error.what()) + ". See ac2-run --help.");
  } catch (const std::invalid_argument& error) {
    complain(error.what());
  }
  return kWrongUsage;
}
