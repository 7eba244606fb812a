// A program that knows nothing of ac2. ac2_run_test starts it, plain and by ac2-run:
//
//   trains threads
//
// It prints what it has trained to the last bit, in an order that does not depend on threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/automatic/library/training.h"

namespace {

using training::train;

void print(const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
}

int train_on_main() {
  print(train());
  return 7;
}

// The backward of a graph that a thread has made, and that outlives it, runs on the main thread.
int train_on_threads() {
  std::vector<std::future<std::string>> losses;
  for (uint64_t seed = 2; seed < 5; ++seed) {
    losses.push_back(std::async(std::launch::async, [seed] { return train({.seed = seed}); }));
  }
  for (auto& loss : losses) {
    print(loss.get());
  }
  std::string from_thread;
  std::thread([&] { from_thread = train({.seed = 9}); }).join();
  print(from_thread);
  const at::Tensor x = at::linspace(-1, 1, 100000).requires_grad_();
  const at::Tensor y =
      std::async(std::launch::async, [&] { return x.sin().exp().mul(x).tanh().mul(x).sigmoid().exp().sum(); }).get();
  std::printf("%a\n", torch::autograd::grad({y}, {x})[0].sum().item<double>());
  return 0;
}

// On the main thread, and on one that could load data.
int evaluate() {
  const auto work = [] {
    const c10::NoGradGuard no_grad;
    const at::Tensor x = at::linspace(-1, 1, 64).requires_grad_();
    std::printf("%a\n", x.sin().exp().mul(x).sum().item<double>());
  };
  work();
  std::thread(work).join();
  return 0;
}

int train_in_a_child(const std::function<void()>& before) {
  at::set_num_threads(1);  // OpenMP's threads do not live on in a child
  before();
  const pid_t child = fork();
  if (child == 0) {
    print(train({.seed = 5}));
    std::exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child %d\n", WEXITSTATUS(status));
  print(train({.seed = 6}));
  return 0;
}

struct TrainsAtTheEnd {
  ~TrainsAtTheEnd() { print(train({.layers = 2, .steps = 1})); }
};

// In the destructor of an object that is younger than the thread's region, and of one that is older, where the region
// has seen the op in which it began and no other.
int train_when_a_thread_ends() {
  std::thread([] {
    static thread_local const TrainsAtTheEnd older;
    static_cast<void>(&older);
    print(std::to_string(at::ones({1}).requires_grad_().exp().item<double>()));
  }).join();
  std::thread([] {
    print(train({.seed = 8}));
    static thread_local const TrainsAtTheEnd younger;
    static_cast<void>(&younger);
  }).join();
  return 0;
}

// The thread waits for ever, its region open.
int leave_a_thread() {
  std::promise<std::string> trained;
  std::thread([&] {
    trained.set_value(train());
    std::promise<void>().get_future().wait();
  }).detach();
  print(trained.get_future().get());
  return 0;
}

// A guard that puts back all keys of the thread, around the ops with which the graph begins.
int begin_in_a_guard() {
  const at::Tensor weight = at::ones({1}).requires_grad_();
  {
    const at::ThreadLocalStateGuard guard{at::ThreadLocalState()};
    print(std::to_string(weight.exp().mul(2).item<double>()));
  }
  return train_on_main();
}

// Networks whose first op has ops inside of it, each as the first of its thread. Twice, the second time under a guard
// that has the thread's keys of before.
int begin_with_ops_of_several() {
  using Network = std::function<at::Tensor(const at::Tensor&)>;
  const at::Tensor weight = at::linspace(-1, 1, 64).view({8, 8}), bias = at::linspace(-2, 3, 8);
  const at::Tensor gates = at::linspace(-1, 1, 192).view({24, 8}), bias_of_gates = at::linspace(-1, 2, 24);
  const at::Tensor indices = at::arange(64).view({8, 8}).remainder(8);
  const std::vector<std::pair<std::string, Network>> networks = {
      {"mlp", [&](const at::Tensor& x) { return at::linear(at::gelu(at::linear(x, weight, bias)), weight, bias); }},
      {"addmm", [&](const at::Tensor& x) { return at::addmm(bias, x, weight).sigmoid(); }},
      {"gru", [&](const at::Tensor& x) { return at::gru_cell(x, x, gates, gates, bias_of_gates, bias_of_gates); }},
      {"scatter_add", [&](const at::Tensor& x) { return at::scatter_add(x, 1, indices, x * x).tanh(); }},
      {"index_copy", [&](const at::Tensor& x) { return at::index_copy(weight, 0, at::arange(8), x).exp().sin(); }},
      {"square", [](const at::Tensor& x) { return (x * x).exp().sin(); }}};
  const auto step = [&](const std::string& name, const Network& network) {
    const at::Tensor x = at::linspace(-1, 1, 64).view({8, 8}).requires_grad_();
    const at::Tensor gradient = torch::autograd::grad({network(x).sin().sum()}, {x})[0];
    std::printf("%s %a %a\n", name.c_str(), gradient.sum().item<double>(), (gradient * x).sum().item<double>());
  };
  for (const auto& [name, network] : networks) {
    std::thread([&, &name = name, &network = network] {
      const at::ThreadLocalState before;
      step(name, network);
      const at::ThreadLocalStateGuard guard(before);
      step(name + " again", network);
    }).join();
  }
  return 0;
}

int64_t address_space() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// The process may take so much more than it has.
void limit_address_space(int64_t more_bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(address_space() + more_bytes);
  setrlimit(RLIMIT_AS, &limit);
}

// The process may take 144 MiB more than it has when LibTorch and its threads are there. Training holds 160 MiB for
// backward.
int train_with_little_memory() {
  train();
  limit_address_space(int64_t{144} << 20);
  print(train({.rows = 8192, .steps = 2}));
  return 0;
}

int train_with_enough_memory() {
  train();
  print(train({.rows = 8192, .steps = 2}));
  return 0;
}

struct HandledError {};

// The program has set its own handler before main().
const std::terminate_handler handler_before = std::set_terminate([] {
  try {
    if (const std::exception_ptr error = std::current_exception()) {
      std::rethrow_exception(error);
    }
  } catch (const HandledError&) {
    std::fputs("the program's own handler\n", stderr);
    _exit(9);
  } catch (...) {
  }
  handler_before();
});

int handle_termination() {
  print(train());
  throw HandledError();
}

// More than there is, with values that could be dropped, and cannot help.
int run_out_of_memory() {
  print(train());
  const at::Tensor x = at::ones({1}).requires_grad_();
  const at::Tensor kept = x.exp();
  return static_cast<int>(kept.expand({int64_t{1} << 50}).exp().numel());
}

// A list keeps results of 1 MiB, until there is no room for another one. Less than that is left, and not nothing: where
// not a byte is left, code that does not check malloc() decides how a process ends, with and without ac2.
int run_out_of_address_space() {
  train();
  print("trained");
  limit_address_space(int64_t{64} << 20);
  const at::Tensor x = at::ones({1 << 18}).requires_grad_();
  std::vector<at::Tensor> held;
  while (held.size() < 1024) {
    held.push_back(x.exp());
  }
  return 0;
}

const std::map<std::string, std::function<int()>>& ways() {
  static const auto& all = *new std::map<std::string, std::function<int()>>{
      {"main", train_on_main},
      {"threads", train_on_threads},
      {"evaluate", evaluate},
      {"fork", [] { return train_in_a_child([] { print(train({.seed = 4})); }); }},
      {"fork_first", [] { return train_in_a_child([] {}); }},
      {"thread_end", train_when_a_thread_ends},
      {"leave_a_thread", leave_a_thread},
      {"guard", begin_in_a_guard},
      {"first_ops", begin_with_ops_of_several},
      {"little_memory", train_with_little_memory},
      {"enough_memory", train_with_enough_memory},
      {"exit",
       [] {
         print(train());
         std::exit(3);
         return 0;
       }},
      {"exit_on_a_thread",
       [] {
         print(train());
         std::thread([] { std::exit(4); }).join();
         return 0;
       }},
      {"quick_end",
       [] {
         print(train());
         _exit(5);
         return 0;
       }},
      {"abort",
       [] {
         print(train());
         std::abort();
         return 0;
       }},
      {"throw",
       []() -> int {
         print(train());
         throw std::runtime_error("an error of the program's");
       }},
      {"throw_on_a_thread",
       [] {
         print(train());
         std::thread([] { throw std::runtime_error("an error of the program's"); }).join();
         return 0;
       }},
      {"throw_no_exception",
       []() -> int {
         print(train());
         throw 7;
       }},
      {"terminate",
       [] {
         print(train());
         std::terminate();
         return 0;
       }},
      {"handle_termination", handle_termination},
      {"run_out_of_memory", run_out_of_memory},
      {"run_out_of_address_space", run_out_of_address_space},
      {"throw_an_error_of_libtorch",
       [] {
         print(train());
         return static_cast<int>(at::ones({2, 3}).requires_grad_().mm(at::ones({2, 3})).numel());
       }},
  };
  return all;
}

}  // namespace

int main(int, char** arguments) {
  return ways().at(arguments[1])();
}
