// The observers of one tape.
//
//   if (!observers.empty()) {
//     observers.tell([&](Observer& observer) { observer.overwritten(value); });
//   }
//
// Threads: add() and remove() need the tape's lock; all else may be called without it, from any thread. A list that is
// being walked is not changed: add() and remove() make a new one, and the old ones stay for as long as the tape.
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "ac2/internal/tape/observer.h"

namespace ac2::internal {

class Observers {
 public:
  bool empty() const { return list_.load(std::memory_order_acquire) == nullptr; }

  template <class Fn>
  void tell(Fn&& fn) const {
    if (const List* list = list_.load(std::memory_order_acquire)) {
      tell_all(*list, fn);
    }
  }

  template <class Predicate>
  bool any(Predicate&& predicate) const {
    bool found = false;
    tell([&](const Observer& observer) { found = found || predicate(observer); });
    return found;
  }

  // Calls `observe` with each observer, and returns the results without the nulls.
  template <class Observation, class Fn>
  std::vector<std::unique_ptr<Observation>> observe(Fn&& observe) const {
    std::vector<std::unique_ptr<Observation>> observations;
    tell([&](Observer& observer) {
      if (std::unique_ptr<Observation> observation = observe(observer)) {
        observations.push_back(std::move(observation));
      }
    });
    return observations;
  }

  void add(std::shared_ptr<Observer> observer) {
    List list = current();
    list.push_back(std::move(observer));
    set(std::move(list));
  }
  void remove(const Observer* observer) {
    List list = current();
    list.erase(std::remove_if(list.begin(), list.end(), [&](const auto& other) { return other.get() == observer; }),
               list.end());
    set(std::move(list));
  }

 private:
  using List = std::vector<std::shared_ptr<Observer>>;

  // Apart from tell(), which stands in what runs for every op, where nearly always nobody observes.
  template <class Fn>
  C10_NOINLINE static void tell_all(const List& list, Fn& fn) {
    for (const std::shared_ptr<Observer>& observer : list) {
      fn(*observer);
    }
  }

  List current() const {
    const List* list = list_.load(std::memory_order_acquire);
    return list == nullptr ? List() : *list;
  }
  void set(List list) {
    const bool empty = list.empty();
    lists_.push_back(std::make_unique<const List>(std::move(list)));
    list_.store(empty ? nullptr : lists_.back().get(), std::memory_order_release);
  }

  std::vector<std::unique_ptr<const List>> lists_;
  std::atomic<const List*> list_{nullptr};
};

}  // namespace ac2::internal
