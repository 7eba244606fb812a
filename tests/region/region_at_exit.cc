// A program whose regions end, or begin, where the program or a thread ends. end_of_program_test starts it:
//
//   region_at_exit static_in_main
//
// It prints "computed" for each region in which it has trained to the bits of plain autograd, and "different" for
// others.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"

namespace {

at::Tensor input() {
  return at::linspace(-1, 1, 64).requires_grad_();
}

at::Tensor gradient(const at::Tensor& x, const at::Tensor& y) {
  return torch::autograd::grad({y.sum()}, {x})[0];
}

at::Tensor forward(const at::Tensor& x) {
  return x.sin().exp().mul(x).tanh();
}

at::Tensor plain_gradient() {
  static const at::Tensor& gradient_of_plain = *new at::Tensor([] {
    const at::Tensor x = input();
    const ac2::DisableCheckpointing plain;
    return gradient(x, forward(x));
  }());
  return gradient_of_plain;
}

// In the regions that are open.
void train() {
  const at::Tensor x = input();
  std::puts(gradient(x, forward(x)).equal(plain_gradient()) ? "computed" : "different");
}

void train_in_a_region() {
  const ac2::PolicyScope scope("recompute_all");
  train();
}

// LibTorch's own backward ends the process once the destructors of static objects run.
void run_forward_in_a_region() {
  const ac2::PolicyScope scope("recompute_all");
  const at::Tensor y = forward(input());
  const ac2::DisableCheckpointing plain;
  std::puts(y.requires_grad() && y.equal(forward(input())) ? "computed" : "different");
}

template <void (*work)()>
struct WorksWhenItDies {
  WorksWhenItDies() { plain_gradient(); }
  ~WorksWhenItDies() { work(); }
};

thread_local std::optional<ac2::PolicyScope> scope_of_thread;

void open_for_the_thread() {
  scope_of_thread.emplace("recompute_all");
  train();
}

// The object is older than the thread's first region.
void train_when_the_thread_ends() {
  static thread_local const WorksWhenItDies<train_in_a_region> trains;
  train_in_a_region();
}

void on_a_thread(void (*work)()) {
  std::thread(work).join();
}

void open_static(ac2::ScopeOptions options) {
  static ac2::PolicyScope scope(std::move(options));
  train();
}

// A scope that a thread leaves open, and that is closed on a thread that may have its number.
void close_after_the_thread() {
  ac2::PolicyScope* scope = nullptr;
  std::thread([&] {
    scope = new ac2::PolicyScope;
    train();
  }).join();
  std::thread([&] {
    const ac2::PolicyScope other("recompute_all");
    try {
      delete scope;  // a std::unique_ptr would not let the error through
    } catch (const c10::Error& error) {
      std::puts(error.what_without_backtrace());
    }
    train();
  }).join();
}

const std::map<std::string, std::function<void()>>& endings() {
  static const auto& all = *new std::map<std::string, std::function<void()>>{
      {"static_in_main", [] { open_static({}); }},
      {"static_under_whatever_fits", [] { open_static({.memory_budget = ac2::whatever_fits()}); }},
      {"static_under_a_budget", [] { open_static({.memory_budget = 1100}); }},
      {"static_with_a_timeline", [] { open_static({.verify = true, .timeline = true}); }},
      {"static_inside_another",
       [] {
         open_static({});
         static ac2::PolicyScope inner("must_save_all");
         train();
       }},
      {"thread_local_of_main", open_for_the_thread},
      {"thread_local_of_a_thread", [] { on_a_thread(open_for_the_thread); }},
      {"region_in_atexit",
       [] {
         plain_gradient();
         std::atexit(run_forward_in_a_region);
         train_in_a_region();
       }},
      {"region_in_a_static_destructor",
       [] {
         static const WorksWhenItDies<run_forward_in_a_region> computes;
         train_in_a_region();
       }},
      {"region_in_a_thread_local_destructor_of_main", train_when_the_thread_ends},
      {"region_in_a_thread_local_destructor_of_a_thread", [] { on_a_thread(train_when_the_thread_ends); }},
      {"closed_after_its_thread", close_after_the_thread},
  };
  return all;
}

}  // namespace

int main(int, char** arguments) {
  at::globalContext().setDeterministicAlgorithms(false, false);
  endings().at(arguments[1])();
  return 0;
}
