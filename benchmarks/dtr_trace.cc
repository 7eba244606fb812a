#include "benchmarks/dtr_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ac2::benchmarks {

namespace {

using internal::kNoId;
using internal::RecordedStep;
using Json = nlohmann::json;

// An error in the line at hand; read_dtr_trace() turns it into a status that names the line.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void malformed(const std::string& what) {
  throw Malformed(what);
}

const Json& field(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) {
    malformed(absl::StrCat("has no \"", key, "\""));
  }
  return *it;
}

std::string text(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_string()) {
    malformed(absl::StrCat("\"", key, "\" is ", value.dump(), "; expected a string"));
  }
  return value.get<std::string>();
}

// Numbers are written as strings in these files; plain ones do as well.
int64_t number(const Json& value, const char* key, int64_t least) {
  int64_t result = 0;
  const bool valid = value.is_number_integer()
                         ? (result = value.get<int64_t>(), true)
                         : value.is_string() && absl::SimpleAtoi(value.get<std::string>(), &result);
  if (!valid || result < least) {
    malformed(absl::StrCat("\"", key, "\" is ", value.dump(), "; expected a whole number from ", least, " up"));
  }
  return result;
}

int64_t number(const Json& object, const char* key) {
  return number(field(object, key), key, 0);
}

const Json& list(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_array()) {
    malformed(absl::StrCat("\"", key, "\" is ", value.dump(), "; expected a list"));
  }
  return value;
}

class Reader {
 public:
  explicit Reader(std::istream& lines) : lines_(lines) {}

  int64_t line() const { return line_; }

  RecordedStep read() {
    bool started = false;
    while (const std::optional<Json> object = next()) {
      const std::string kind = text(*object, "INSTRUCTION");
      if (!started) {
        started = kind == "ANNOTATE" && text(*object, "ANNOTATION") == "START";
      } else {
        read_instruction(*object, kind);
      }
    }
    if (!started) {
      malformed(
          "is the last, and none was {\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}: expected a trace of the "
          "DTR prototype");
    }
    if (step_.ops.empty()) {
      malformed("is the last, and none after START was a CALL or MUTATE: the step is empty");
    }
    std::vector<uint32_t> alive;
    for (const auto& [name, tensor] : names_) {
      alive.push_back(tensor);
    }
    std::sort(alive.begin(), alive.end());
    alive.erase(std::unique(alive.begin(), alive.end()), alive.end());
    step_.alive_at_end = std::move(alive);
    return std::move(step_);
  }

 private:
  // Nothing at the end of the file.
  std::optional<Json> next() {
    std::string line;
    while (std::getline(lines_, line)) {
      ++line_;
      if (line.find_first_not_of(" \t\r") == std::string::npos) {
        continue;
      }
      Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!object.is_object()) {
        malformed(absl::StrCat("is not a JSON object: ", line.substr(0, 80)));
      }
      return object;
    }
    return std::nullopt;
  }

  // The line that must follow about tensor `name`.
  Json next_about(const std::string& name, const char* kind) {
    std::optional<Json> object = next();
    if (!object) {
      malformed(absl::StrCat("is the last; expected ", kind, " of ", name));
    }
    if (text(*object, "INSTRUCTION") != kind || text(*object, "NAME") != name) {
      malformed(absl::StrCat("is ", object->dump(), "; expected ", kind, " of ", name));
    }
    return *std::move(object);
  }

  int64_t next_bytes(const std::string& name) { return number(next_about(name, "MEMORY"), "MEMORY"); }

  void read_instruction(const Json& object, const std::string& kind) {
    if (kind == "CONSTANT") {
      const std::string name = text(object, "NAME");
      const uint32_t tensor = add_tensor(add_value(next_bytes(name), /*outside=*/true), kNoId, kNoId);
      give_name(name, tensor);
      add_event(RecordedStep::Event::kAppears, tensor);
    } else if (kind == "CALL") {
      read_call(object);
    } else if (kind == "MUTATE") {
      read_mutate(object);
    } else if (kind == "COPY") {
      const uint32_t tensor = named(text(object, "SRC"));
      give_name(text(object, "DST"), tensor);
      add_event(RecordedStep::Event::kNamed, tensor);
    } else if (kind == "COPY_FROM") {
      const uint32_t tensor = named(text(object, "SRC"));
      const uint32_t old = named(text(object, "DST"));
      names_[text(object, "DST")] = tensor;
      add_event(RecordedStep::Event::kNamed, tensor);
      add_event(RecordedStep::Event::kReleased, old);
    } else if (kind == "RELEASE") {
      const std::string name = text(object, "NAME");
      const auto it = names_.find(name);
      // Names from before START.
      if (it != names_.end()) {
        add_event(RecordedStep::Event::kReleased, it->second);
        names_.erase(it);
      }
    } else if (kind != "ANNOTATE") {
      malformed(absl::StrCat("\"INSTRUCTION\" is \"", kind,
                             "\"; expected CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE or ANNOTATE"));
    }
  }

  RecordedStep::Op begin_op(const Json& object) {
    RecordedStep::Op op;
    op.name = text(object, "NAME");
    op.cost = static_cast<double>(number(object, "TIME"));
    for (const Json& name : list(object, "ARGS")) {
      if (!name.is_string()) {
        malformed("\"ARGS\" has an element that is not a name");
      }
      op.arguments.push_back(named(name.get<std::string>()));
    }
    return op;
  }

  void read_call(const Json& object) {
    RecordedStep::Op op = begin_op(object);
    const uint32_t index = static_cast<uint32_t>(step_.ops.size());
    std::vector<std::string> names;
    for (const Json& name : list(object, "RESULT")) {
      if (!name.is_string()) {
        malformed("\"RESULT\" has an element that is not a name");
      }
      names.push_back(name.get<std::string>());
      const int64_t bytes = next_bytes(names.back());
      const Json alias = next_about(names.back(), "ALIAS");
      const int64_t viewed = number(field(alias, "ALIAS"), "ALIAS", -1);
      if (viewed >= static_cast<int64_t>(op.arguments.size())) {
        malformed(absl::StrCat("\"ALIAS\" is ", viewed, ", but ", op.name, " has ", op.arguments.size(), " arguments"));
      }
      if (viewed < 0) {
        op.results.push_back(add_tensor(add_value(bytes, /*outside=*/false), index, kNoId));
      } else {
        const uint32_t argument = op.arguments[viewed];
        op.results.push_back(add_tensor(step_.tensors[argument].value, index, argument));
      }
    }
    for (size_t i = 0; i < names.size(); ++i) {
      give_name(names[i], op.results[i]);
    }
    add_op(std::move(op));
  }

  void read_mutate(const Json& object) {
    RecordedStep::Op op = begin_op(object);
    const uint32_t index = static_cast<uint32_t>(step_.ops.size());
    std::vector<uint32_t> old;
    for (const Json& element : list(object, "MUTATE")) {
      const int64_t argument = number(element, "MUTATE", 0);
      if (argument >= static_cast<int64_t>(op.arguments.size())) {
        malformed(
            absl::StrCat("\"MUTATE\" names argument ", argument, ", but ", op.name, " has ", op.arguments.size()));
      }
      old.push_back(op.arguments[argument]);
      const int64_t bytes = step_.values[step_.tensors[old.back()].value].bytes;
      op.results.push_back(add_tensor(add_value(bytes, /*outside=*/false), index, kNoId));
      names_[object["ARGS"][argument].get<std::string>()] = op.results.back();
    }
    add_op(std::move(op));
    for (const uint32_t tensor : old) {
      add_event(RecordedStep::Event::kReleased, tensor);
    }
  }

  uint32_t add_value(int64_t bytes, bool outside) {
    step_.values.push_back({bytes, outside});
    return static_cast<uint32_t>(step_.values.size() - 1);
  }

  uint32_t add_tensor(uint32_t value, uint32_t op, uint32_t viewed) {
    step_.tensors.push_back({value, op, viewed});
    return static_cast<uint32_t>(step_.tensors.size() - 1);
  }

  void add_op(RecordedStep::Op op) {
    step_.ops.push_back(std::move(op));
    add_event(RecordedStep::Event::kRuns, static_cast<uint32_t>(step_.ops.size() - 1));
  }

  void add_event(RecordedStep::Event::Kind kind, uint32_t index) { step_.events.push_back({kind, index}); }

  uint32_t named(const std::string& name) const {
    const auto it = names_.find(name);
    if (it == names_.end()) {
      malformed(absl::StrCat("uses ", name, ", which does not exist there"));
    }
    return it->second;
  }

  void give_name(const std::string& name, uint32_t tensor) {
    if (!names_.emplace(name, tensor).second) {
      malformed(absl::StrCat("makes ", name, ", which exists already"));
    }
  }

  std::istream& lines_;
  int64_t line_ = 0;
  RecordedStep step_;
  absl::flat_hash_map<std::string, uint32_t> names_;
};

}  // namespace

absl::StatusOr<RecordedStep> read_dtr_trace(std::istream& lines, const std::string& name) {
  Reader reader(lines);
  try {
    return reader.read();
  } catch (const Malformed& error) {
    return absl::InvalidArgumentError(absl::StrCat(name, ", line ", reader.line(), ": ", error.what()));
  }
}

absl::StatusOr<RecordedStep> read_dtr_trace(const std::string& path) {
  std::ifstream file(path);
  // A directory opens, and fails at the first read.
  if (!file || (file.peek(), file.bad())) {
    return absl::NotFoundError(absl::StrCat("cannot read the trace ", path, ": ", std::strerror(errno)));
  }
  file.clear();
  return read_dtr_trace(file, path);
}

}  // namespace ac2::benchmarks
