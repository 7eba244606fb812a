#include "ac2/internal/modules/module_stack.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/libtorch/per_thread.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

std::atomic<bool> modules_wanted{false};

// Of the places, and of the classes that were noted. Leaked, as places are.
Mutex& names_mutex() {
  static auto& mutex = ForkLocks::make_last();
  return mutex;
}

std::set<std::string>& classes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(names_mutex()) {
  static auto& names = *new std::set<std::string>;
  return names;
}

}  // namespace

CalledModule::CalledModule(std::string class_name, std::vector<ModuleName> names,
                           std::shared_ptr<const KnownModules> all)
    : class_name_(std::move(class_name)), names_(std::move(names)), all_(std::move(all)), label_(class_name_) {
  // No name has a line break in it.
  for (const ModuleName& name : names_) {
    absl::StrAppend(&label_, "\n", name.model, "\n", name.path);
  }
}

struct ModulePlace::Children {
  absl::flat_hash_map<std::string, const ModulePlace*> by_label ABSL_GUARDED_BY(names_mutex());
};

ModulePlace::ModulePlace(const ModulePlace* around, std::string class_name, std::vector<ModuleName> names)
    : around_(around), class_name_(std::move(class_name)), names_(std::move(names)), children_(new Children) {}

const std::string* ModulePlace::path_in(int64_t model) const {
  const auto found =
      std::find_if(names_.begin(), names_.end(), [model](const ModuleName& name) { return name.model == model; });
  return found == names_.end() ? nullptr : &found->path;
}

const ModulePlace& ModulePlace::outside() {
  static const auto& place = *new ModulePlace(nullptr, "", {});
  return place;
}

const ModulePlace& ModulePlace::inside(const CalledModule& module) const {
  const MutexLock lock(names_mutex());
  const ModulePlace*& place = children_->by_label[module.label()];
  if (place == nullptr) {
    place = new ModulePlace(this, module.class_name(), module.names());
  }
  return *place;
}

ModuleStack& ModuleStack::here() {
  return PerThread<ModuleStack>::here();
}

size_t ModuleStack::enter(std::shared_ptr<const CalledModule> module) {
  const size_t depth = calls_.size();
  const ModulePlace& inside = place().inside(*module);
  calls_.push_back({std::move(module), &inside});
  return depth;
}

void ModuleStack::leave(size_t depth) {
  while (calls_.size() > depth) {
    calls_.pop_back();
  }
}

std::vector<std::shared_ptr<const CalledModule>> ModuleStack::modules() const {
  std::vector<std::shared_ptr<const CalledModule>> all;
  for (const Call& call : calls_) {
    all.push_back(call.module);
  }
  return all;
}

bool are_modules_wanted() {
  return modules_wanted.load(std::memory_order_relaxed);
}

void want_modules() {
  modules_wanted.store(true, std::memory_order_relaxed);
}

void note_class(const std::string& class_name) {
  const MutexLock lock(names_mutex());
  classes().insert(class_name);
}

std::set<std::string> noted_classes() {
  const MutexLock lock(names_mutex());
  return classes();
}

std::string without_namespaces(const std::string& type) {
  // Arguments of a template may have namespaces of their own.
  const std::string name = type.substr(0, type.find('<'));
  const size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

}  // namespace ac2::internal
