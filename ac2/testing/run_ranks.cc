#include "ac2/testing/run_ranks.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ac2::testing {

namespace {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

// There while the job runs.
class StoreDirectory {
 public:
  StoreDirectory() : path_((std::filesystem::temp_directory_path() / "ac2_ranks_XXXXXX").string()) {
    TORCH_CHECK(::mkdtemp(path_.data()) != nullptr, "run_ranks cannot make a directory like \"", path_,
                "\": ", error_text(errno), ". Set TMPDIR to a directory that may be written to.");
  }
  StoreDirectory(const StoreDirectory&) = delete;
  StoreDirectory& operator=(const StoreDirectory&) = delete;
  ~StoreDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file() const { return path_ + "/store"; }

 private:
  std::string path_;
};

// The environment of one rank, as exec takes it.
class Environment {
 public:
  Environment(int rank, int ranks, const std::string& store) {
    const std::vector<std::pair<std::string, std::string>> set = {
        {"RANK", absl::StrCat(rank)},
        {"WORLD_SIZE", absl::StrCat(ranks)},
        {"LOCAL_RANK", absl::StrCat(rank)},
        {"LOCAL_WORLD_SIZE", absl::StrCat(ranks)},
        {kStoreVariable, store},
    };
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const std::string_view name = text.substr(0, text.find('='));
      bool replaced = false;
      for (const auto& [other, value] : set) replaced = replaced || name == other;
      if (!replaced) {
        entries_.emplace_back(text);
      }
    }
    for (const auto& [name, value] : set) entries_.push_back(absl::StrCat(name, "=", value));
    for (std::string& entry : entries_) pointers_.push_back(entry.data());
    pointers_.push_back(nullptr);
  }
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> entries_;
  std::vector<char*> pointers_;
};

// The processes of one job, all in one process group. Those that still run are killed with it.
class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() { end_all(); }

  void start(const std::vector<std::string>& command, const Environment& environment) {
    std::vector<std::string> words = command;
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    // The child tells by it why the program could not be started; a program that starts closes it.
    int report[2];
    TORCH_CHECK(::pipe2(report, O_CLOEXEC) == 0, "run_ranks cannot make a pipe: ", error_text(errno), ".");
    const pid_t parent = ::getpid();
    const pid_t group = pids_.empty() ? 0 : pids_.front();
    const pid_t pid = ::fork();
    if (pid == 0) {
      // Only what POSIX allows between fork and exec in a program with threads.
      ::setpgid(0, group);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) {
        ::execvpe(arguments[0], arguments.data(), environment.get());
      }
      const int error = errno;
      [[maybe_unused]] const ssize_t written = ::write(report[1], &error, sizeof(error));
      ::_exit(127);
    }
    const int fork_error = errno;
    ::close(report[1]);
    int error = 0;
    const bool failed = pid > 0 && ::read(report[0], &error, sizeof(error)) == sizeof(error);
    ::close(report[0]);
    TORCH_CHECK(pid > 0, "run_ranks cannot start rank ", pids_.size(), ": ", error_text(fork_error), ".");
    pids_.push_back(pid);
    running_.push_back(true);
    if (failed) {
      wait_for(pid);
      running_.back() = false;
      TORCH_CHECK(false, "run_ranks cannot start \"", command[0], "\": ", error_text(error), ".");
    }
  }

  // Returns when all have ended, or one has failed.
  void wait() {
    for (size_t left = pids_.size(); left > 0; --left) {
      int status = 0;
      const size_t rank = next_ended(status);
      TORCH_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "Rank ", rank, " of ", pids_.size(), " ",
                  WIFEXITED(status) ? absl::StrCat("ended with exit status ", WEXITSTATUS(status))
                                    : absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                                                   ::strsignal(WTERMSIG(status)), ")"),
                  ". The other ranks were ended too. What the rank wrote to its standard error says more.");
    }
  }

 private:
  static pid_t wait_for(pid_t pid) {
    pid_t ended = -1;
    do {
      ended = ::waitpid(pid, nullptr, 0);
    } while (ended < 0 && errno == EINTR);
    return ended;
  }

  // Looks at the processes of this job alone: the program may have other children.
  size_t next_ended(int& status) {
    siginfo_t info = {};
    int result = -1;
    do {
      result = ::waitid(P_PGID, static_cast<id_t>(pids_.front()), &info, WEXITED | WNOWAIT);
    } while (result != 0 && errno == EINTR);
    TORCH_CHECK(result == 0, "run_ranks cannot wait for its processes: ", error_text(errno), ".");
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (running_[rank] && ::waitpid(pids_[rank], &status, WNOHANG) == pids_[rank]) {
        running_[rank] = false;
        return rank;
      }
    }
    TORCH_CHECK(false, "run_ranks: process ", info.si_pid, " ended and is none of the ranks. A rank must not fork.");
  }

  void end_all() {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (running_[rank]) ::kill(pids_[rank], SIGKILL);
    }
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (running_[rank]) wait_for(pids_[rank]);
    }
  }

  std::vector<pid_t> pids_;    // by rank
  std::vector<bool> running_;  // by rank: not waited for yet
};

}  // namespace

void run_ranks(int ranks, const std::vector<std::string>& command) {
  TORCH_CHECK(ranks > 0, "A job has ", ranks, " ranks; expected 1 or more.");
  TORCH_CHECK(!command.empty(), "run_ranks was given no program to run.");
  const StoreDirectory store;
  Ranks running;
  for (int rank = 0; rank < ranks; ++rank) running.start(command, Environment(rank, ranks, store.file()));
  running.wait();
}

std::optional<Rank> rank_of_environment() {
  const char* const rank = std::getenv("RANK");
  const char* const ranks = std::getenv("WORLD_SIZE");
  Rank result;
  const bool is_rank = std::getenv(kStoreVariable) != nullptr && rank != nullptr && ranks != nullptr &&
                       absl::SimpleAtoi(rank, &result.rank) && absl::SimpleAtoi(ranks, &result.ranks);
  return is_rank ? std::optional(result) : std::nullopt;
}

}  // namespace ac2::testing
