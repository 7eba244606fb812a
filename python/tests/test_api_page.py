"""docs/api.md has every public name of C++ and of Python, as headers and package have them."""

import importlib.util
import pathlib

import ac2

_ROOT = pathlib.Path(__file__).parents[2]


def _tool():
    spec = importlib.util.spec_from_file_location("api_page", _ROOT / "tools" / "api_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_headers_and_package_say():
    written = (_ROOT / "docs" / "api.md").read_text()
    assert _tool().page(_ROOT, ac2) == written, "docs/api.md is not up to date: CONTRIBUTING.md says how to write it anew"


def test_declarations_are_read_without_what_users_do_not_call():
    header = """
#pragma once
#include <vector>
namespace ac2 {
namespace internal {
class Hidden { int a; };
}  // namespace internal
// A comment.
class Shown {
 public:
  // What it takes.
  explicit Shown(int bytes, bool fast = false)
      : bytes_(bytes) {}
  Shown(const Shown&) = delete;
  int bytes() const { return bytes_; }
  template <class T>
  T as() const {
    return T(bytes_);
  }

 private:
  struct Nested {
    int part = 0;
  };
  int bytes_ = 0;
};
inline int free_function(int a) {
  return a;
}
}  // namespace ac2
"""
    assert _tool().declarations(header).split("\n") == [
        "class Shown {",
        "  explicit Shown(int bytes, bool fast = false);",
        "  int bytes() const;",
        "  template <class T>",
        "  T as() const;",
        "};",
        "inline int free_function(int a);",
    ]
