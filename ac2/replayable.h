// A kernel is an op: a call of a function is one node of a region, whatever the function does.
//
//   const auto scan = ac2::replayable("selective_scan", [](const at::Tensor& x, const at::Tensor& decay, int64_t chunk)
//   {
//     at::Tensor out = at::empty_like(x);
//     launch_scan(x.data_ptr<float>(), decay.data_ptr<float>(), out.data_ptr<float>(), x.numel(), chunk);
//     return out;
//   });
//   at::Tensor y = scan(x, decay, 64);       // computed again by another call of the function
//
// Without it a region does not see what the function writes through pointers, and holds what it finds changed
// (ac2/expose.h). With it the function is an op as those of LibTorch are: its results are saved, recomputed, packed or
// dropped as policies and budgets say, which know it by the name "replayable::selective_scan". A replay calls it again
// with what the replay has in place of the tensors, in forward's environment, and on the numbers that forward drew from
// LibTorch's default generators and from those among its arguments.
//
// The function must
//   - compute its results from its arguments, and from nothing that changes between forward and backward;
//   - write to what it has made itself, and to none of its arguments;
//   - have no other effect: it is called once more for each replay.
// Verify mode (ScopeOptions::verify) finds a function that computes other results, or writes to its arguments.
//
// The function runs below autograd, inside and outside of regions: no op in it is recorded, and a result that is
// computed from a tensor which requires a gradient ends backward with an error. A derivative is what a
// torch::autograd::Function says, which calls the function in its forward.
//
// Lifetime: a call keeps its arguments other than tensors, and the function, for as long as the region may replay it.
// Threads: replays of different regions may call the function at once.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ac2 {

namespace internal {

// The arguments of a call for which a replay has others. All else is given to the replay as it was.
struct ReplayedParts {
  std::vector<at::Tensor> tensors;
  std::vector<at::Generator> generators;
};
using ReplayedFunction = std::function<std::vector<at::Tensor>(const ReplayedParts& parts)>;

// An operator "replayable::`name`" exists from now on. Throws c10::Error for what is no name.
void add_replayable(const std::string& name);
// Calls `fn` as an op of that name. `fn` returns as many tensors each time, all of them defined. Throws c10::Error for
// more than two generators.
std::vector<at::Tensor> call_replayable(const std::string& name, ReplayedFunction fn, const ReplayedParts& parts);

template <class T>
struct TensorsIn {
  // Calls `visit` with each tensor and each generator in `value`, in order.
  template <class Visit>
  static void each(T& /*value*/, Visit& /*visit*/) {}
};
template <class T, class Visit>
void each_tensor(T& value, Visit& visit) {
  TensorsIn<T>::each(value, visit);
}
template <>
struct TensorsIn<at::Tensor> {
  template <class Visit>
  static void each(at::Tensor& tensor, Visit& visit) {
    visit(tensor);
  }
};
template <>
struct TensorsIn<at::Generator> {
  template <class Visit>
  static void each(at::Generator& generator, Visit& visit) {
    visit(generator);
  }
};
template <class T>
struct TensorsIn<std::optional<T>> {
  template <class Visit>
  static void each(std::optional<T>& value, Visit& visit) {
    if (value) each_tensor(*value, visit);
  }
};
template <class T>
struct TensorsInList {
  template <class Visit>
  static void each(T& list, Visit& visit) {
    for (auto& value : list) each_tensor(value, visit);
  }
};
template <class T>
requires(!std::same_as<T, bool>) struct TensorsIn<std::vector<T>> : TensorsInList<std::vector<T>> {
};
template <class T, size_t kSize>
struct TensorsIn<std::array<T, kSize>> : TensorsInList<std::array<T, kSize>> {};
template <class T>
struct TensorsInTuple {
  template <class Visit>
  static void each(T& tuple, Visit& visit) {
    std::apply([&visit](auto&... values) { (each_tensor(values, visit), ...); }, tuple);
  }
};
template <class... T>
struct TensorsIn<std::tuple<T...>> : TensorsInTuple<std::tuple<T...>> {};
template <class A, class B>
struct TensorsIn<std::pair<A, B>> : TensorsInTuple<std::pair<A, B>> {};

// Points into memory of somebody else, which may be gone when a replay reads it.
template <class T>
concept IsAView = requires(T view) {
  view.data();
  view.size();
}
&&std::is_trivially_copyable_v<T> && !requires {
  std::tuple_size<T>::value;
};

// A value without its tensors and generators, which were taken out, and which of them were defined.
template <class T>
struct WithoutParts {
  T value;
  std::vector<bool> defined = {};
};

// Visitors of each_tensor().
struct TakeParts {
  void operator()(at::Tensor& tensor) { take(tensor, parts.tensors); }
  void operator()(at::Generator& generator) { take(generator, parts.generators); }
  template <class Part>
  void take(Part& part, std::vector<Part>& taken) {
    defined.push_back(part.defined());
    if (part.defined()) taken.push_back(std::exchange(part, Part()));
  }

  ReplayedParts& parts;
  std::vector<bool>& defined;
};
struct PutParts {
  void operator()(at::Tensor& tensor) { put(tensor, parts.tensors, next_tensor); }
  void operator()(at::Generator& generator) { put(generator, parts.generators, next_generator); }
  template <class Part>
  void put(Part& part, const std::vector<Part>& given, size_t& next) {
    if (defined[place++]) part = given.at(next++);
  }

  const ReplayedParts& parts;
  const std::vector<bool>& defined;
  size_t place = 0, next_tensor = 0, next_generator = 0;
};

template <class T>
WithoutParts<T> take_parts(T value, ReplayedParts& parts) {
  WithoutParts<T> rest{std::move(value)};
  TakeParts take{parts, rest.defined};
  each_tensor(rest.value, take);
  return rest;
}

template <class T>
T put_parts(const WithoutParts<T>& rest, const ReplayedParts& parts) {
  T value = rest.value;
  PutParts put{parts, rest.defined};
  each_tensor(value, put);
  return value;
}

}  // namespace internal

// A function whose calls are ops: see replayable(). Copies share the function.
template <class Fn>
class Replayable {
 public:
  Replayable(std::string name, Fn fn) : name_(std::move(name)), fn_(std::make_shared<Fn>(std::move(fn))) {
    internal::add_replayable(name_);
  }

  // A call returns what the function returns. Tensors may stand alone, in std::optional, std::vector, std::array,
  // std::tuple and std::pair, in any nesting, as arguments and as results; so may at::Generators as arguments, up to
  // two, of which a replay has others that draw the same numbers. All else is kept and given again to each replay,
  // tensors in other types too, and of results is forward's. Throws what the function throws.
  template <class... Args>
  auto operator()(Args&&... args) const {
    static_assert((!internal::IsAView<std::decay_t<Args>> && ...),
                  "a replay reads the arguments later: pass a std::vector or std::string in place of a view of one");
    using Arguments = std::tuple<std::decay_t<Args>...>;
    using Result = std::decay_t<std::invoke_result_t<Fn&, std::decay_t<Args>&...>>;
    static_assert(!std::is_void_v<Result>, "a replayable function returns the tensors that it has computed");
    static_assert(!internal::IsAView<Result>, "a replayable function returns values, and no views of a list");

    internal::ReplayedParts parts;
    auto arguments = std::make_shared<const internal::WithoutParts<Arguments>>(
        internal::take_parts(Arguments(std::forward<Args>(args)...), parts));
    // `forward` has all but the tensors of forward's result. Replays have no need of it.
    auto forward = std::make_shared<std::optional<internal::WithoutParts<Result>>>();
    const auto call = [fn = fn_, arguments = std::move(arguments),
                       of_forward = std::weak_ptr(forward)](const internal::ReplayedParts& given) {
      Arguments all = internal::put_parts(*arguments, given);
      internal::ReplayedParts results;
      auto rest = internal::take_parts<Result>(std::apply(*fn, all), results);
      if (const auto wanted = of_forward.lock()) *wanted = std::move(rest);
      return std::move(results.tensors);
    };
    return internal::put_parts(**forward, {internal::call_replayable(name_, call, parts), {}});
  }

 private:
  std::string name_;
  std::shared_ptr<Fn> fn_;
};

// `fn` as an op of regions, "replayable::`name`" to policies and reports. `fn` is a function object that is copied or
// moved; `name` has letters, digits and underscores. Several functions may have one name. Throws c10::Error for what is
// no name.
template <class Fn>
auto replayable(std::string name, Fn fn) {
  return Replayable<Fn>(std::move(name), std::move(fn));
}

}  // namespace ac2
