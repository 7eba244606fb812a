// The modules that a thread is in, for policies that decide by module.
//
//   const size_t depth = ModuleStack::here().enter(module);  // before the module's forward
//   ModuleStack::here().place();                             // for an op in it
//   ModuleStack::here().leave(depth);                        // after it, failed or not
//
// A place is a module that was called, and the modules around it. Equal places are one object, so that answers are kept
// by a place's address. Places live for ever: a program has as many as it has modules, or as many calls of a module by
// different ones.
//
// Threads: a stack belongs to its thread. Everything else may be used by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace ac2::internal {

// A module as patterns know it.
struct KnownModule {
  std::string path;
  std::string class_name;  // without namespaces; empty if it is not known
};
using KnownModules = std::vector<KnownModule>;

// The dotted name of a module in one model.
struct ModuleName {
  // The model is the outermost module that was called.
  static constexpr int64_t kOutermost = 0;

  int64_t model = kOutermost;
  std::string path;
};

// A module that may be called. Immutable.
class CalledModule {
 public:
  // `names` has at most one name for each model. `all` is the model that the first name is in, or null.
  CalledModule(std::string class_name, std::vector<ModuleName> names, std::shared_ptr<const KnownModules> all);

  const std::string& class_name() const { return class_name_; }
  const std::vector<ModuleName>& names() const { return names_; }
  const std::shared_ptr<const KnownModules>& all() const { return all_; }
  // Equal for modules that no pattern can tell apart.
  const std::string& label() const { return label_; }

 private:
  std::string class_name_;
  std::vector<ModuleName> names_;
  std::shared_ptr<const KnownModules> all_;
  std::string label_;
};

class ModulePlace {
 public:
  // Null for the place outside of all modules, which has neither a class nor names.
  const ModulePlace* around() const { return around_; }
  const std::string& class_name() const { return class_name_; }
  // Null if the module is none of this model's.
  const std::string* path_in(int64_t model) const;

  static const ModulePlace& outside();
  // The place of `module`, called at this one.
  const ModulePlace& inside(const CalledModule& module) const;

 private:
  struct Children;

  ModulePlace(const ModulePlace* around, std::string class_name, std::vector<ModuleName> names);

  const ModulePlace* around_;
  std::string class_name_;
  std::vector<ModuleName> names_;
  Children* children_;  // never null; never freed, as the place itself
};

class ModuleStack {
 public:
  static ModuleStack& here();

  // Returns what leave() takes: how many modules there were.
  size_t enter(std::shared_ptr<const CalledModule> module);
  // Leaves the module that was entered then, and all that were entered since and never left.
  void leave(size_t depth);

  const ModulePlace& place() const { return calls_.empty() ? ModulePlace::outside() : *calls_.back().place; }
  // From the outermost to the innermost.
  std::vector<std::shared_ptr<const CalledModule>> modules() const;

 private:
  struct Call {
    std::shared_ptr<const CalledModule> module;
    const ModulePlace* place;
  };

  std::vector<Call> calls_;
};

// Whether some policy wants to know modules. From the first one on it stays true.
bool are_modules_wanted();
void want_modules();

// The classes of modules that may be called although no model that is known has them.
void note_class(const std::string& class_name);
std::set<std::string> noted_classes();

// "BlockImpl" of "(anonymous namespace)::BlockImpl", as typeid() gives it.
std::string without_namespaces(const std::string& type);

}  // namespace ac2::internal
