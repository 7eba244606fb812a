// Three functions that the library looks for in policies/: ready_made_policies() has the table of the ready-made
// policies without parameters, by name; form_named() makes the forms that a plan's file names; watched_hooks() watches
// for functions that never pack.
//
// Policy("speed") must find what policies/ defines, although the library does not depend on policies/. So the library
// declares the functions, and policies/by_name.cc defines them. In Bazel a program may link the library alone; the
// declarations are weak there, and a function's address is null in such a program. CMake puts both into one archive and
// defines AC2_HAS_POLICIES: each reference is an ordinary one then, which makes the linker take by_name.cc out of the
// archive.
//
// Rejected: objects that register their names when the program starts. A linker drops them from an archive, and a
// policy that is itself made at that time could come too early.
//
// Threads: any, also before main().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ac2 {

class Form;
class Policy;

namespace internal {

struct NamedPolicy {
  std::string_view name;
  Policy (*make)();
};

#ifndef AC2_HAS_POLICIES
__attribute__((weak))
#endif
// The policies in the order in which an error or a help text should list them.
const std::vector<NamedPolicy>&
ready_made_policies();

#ifndef AC2_HAS_POLICIES
__attribute__((weak))
#endif
// The form of this name (Form::name()), such as "quantized 8 bits, seed 0"; null if none of ac2::forms has it.
std::shared_ptr<const Form>
form_named(const std::string& name);

#ifndef AC2_HAS_POLICIES
__attribute__((weak))
#endif
// `policy`. If it decides for a SaveWithHooks whose pack is not called until the end of the first backward, a warning
// that begins with `caller` says so once.
Policy
watched_hooks(const Policy& policy, const std::string& caller);

}  // namespace internal
}  // namespace ac2
