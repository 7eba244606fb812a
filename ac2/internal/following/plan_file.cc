#include "ac2/internal/following/plan_file.h"

#include <c10/util/Exception.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace ac2::internal {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;
constexpr const char* kMark = "ac2_plan";
constexpr const char* kModelled = "modelled";
constexpr const char* kMeasured = "measured";

// In quotation marks, and valid UTF-8 whatever bytes it has: Python takes no other error texts.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A number or a text as it is; of arrays and objects, which have no bound, that they are one.
std::string shown(const Json& json) {
  return json.is_structured() ? absl::StrCat("an ", json.type_name())
                              : json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Each text once, in the order of its first use.
class Texts {
 public:
  size_t index_of(std::string text) {
    const auto [found, is_new] = indices_.try_emplace(text, texts_.size());
    if (is_new) {
      texts_.push_back(std::move(text));
    }
    return found->second;
  }
  std::vector<std::string> take() && { return std::move(texts_); }

 private:
  absl::flat_hash_map<std::string, size_t> indices_;
  std::vector<std::string> texts_;
};

Json to_json(const PlannedStep& plan) {
  Texts ops, decisions;
  Json calls = Json::array();
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    if (const std::optional<PlannedCall>& call = plan.calls[i]) {
      calls.push_back({ops.index_of(c10::toString(call->op.operator_name())), call->result_bytes,
                       decisions.index_of(to_string(plan.decisions[i]))});
    } else {
      calls.push_back(nullptr);
    }
  }
  Json json;
  json[kMark] = kVersion;
  json["bytes"] = plan.bytes;
  json["costs"] = plan.costs == CostSource::kModelled ? kModelled : kMeasured;
  json["ops"] = std::move(ops).take();
  json["decisions"] = std::move(decisions).take();
  json["calls"] = std::move(calls);
  return json;
}

CheckpointPolicy decision_named(const std::string& name) {
  for (const CheckpointPolicy policy :
       {CheckpointPolicy::MUST_SAVE, CheckpointPolicy::PREFER_SAVE, CheckpointPolicy::MUST_RECOMPUTE,
        CheckpointPolicy::PREFER_RECOMPUTE, CheckpointPolicy::MUST_CPU_OFFLOAD, CheckpointPolicy::PREFER_CPU_OFFLOAD}) {
    if (name == to_string(policy)) {
      return policy;
    }
  }
  C10_THROW_ERROR(Error, quoted(name) + " is no decision.");
}

c10::OperatorHandle operator_named(const std::string& name) {
  const size_t dot = name.find('.');
  const std::optional<c10::OperatorHandle> op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? std::string() : name.substr(dot + 1)});
  TORCH_CHECK(op, "it has the operator ", quoted(name),
              ", which this process does not have. Load the library that registers the operator before the plan, or "
              "plan again with this LibTorch.");
  return *op;
}

// JSON's numbers are checked by hand: nlohmann-json would read 1.5 as 1, and -1 as a huge size.
int64_t whole_number(const Json& json, const char* what, int64_t least, int64_t most) {
  TORCH_CHECK(json.is_number_integer(), what, " is ", shown(json), "; expected a whole number.");
  // A number that does not fit into an int64_t is a number_unsigned, and too large for each of the limits.
  const bool fits =
      !json.is_number_unsigned() || json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  TORCH_CHECK(fits && json.get<int64_t>() >= least && json.get<int64_t>() <= most, what, " is ", shown(json),
              "; expected ", least, " to ", most, ".");
  return json.get<int64_t>();
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

void check_version(const Json& json) {
  TORCH_CHECK(json.is_object() && json.contains(kMark), "it is no plan of ac2: it has no \"", kMark, "\".");
  const int64_t version = whole_number(json.at(kMark), "its version", 1, kMost);
  TORCH_CHECK(version == kVersion, "it is of version ", version, ", and this ac2 reads version ", kVersion,
              ". Plan again with this ac2.");
}

std::shared_ptr<const PlannedStep> from_json(const Json& json) {
  auto plan = std::make_shared<PlannedStep>();
  plan->bytes = whole_number(json.at("bytes"), "\"bytes\"", 1, kMost);
  const auto costs = json.at("costs").get<std::string>();
  TORCH_CHECK(costs == kModelled || costs == kMeasured, "\"costs\" is ", quoted(costs), "; expected \"", kModelled,
              "\" or \"", kMeasured, "\".");
  plan->costs = costs == kModelled ? CostSource::kModelled : CostSource::kMeasured;

  std::vector<c10::OperatorHandle> ops;
  for (const Json& name : json.at("ops")) {
    ops.push_back(operator_named(name.get<std::string>()));
  }
  std::vector<CheckpointPolicy> decisions;
  for (const Json& name : json.at("decisions")) {
    decisions.push_back(decision_named(name.get<std::string>()));
  }
  const Json& calls = json.at("calls");
  TORCH_CHECK(calls.is_array(), "\"calls\" is no array.");
  for (const Json& call : calls) {
    if (call.is_null()) {
      plan->calls.emplace_back();
      plan->decisions.push_back(CheckpointPolicy::PREFER_SAVE);
      continue;
    }
    TORCH_CHECK(call.is_array() && call.size() == 3, "a call is ", shown(call),
                "; expected an operator, a number of bytes, and a decision.");
    const int64_t op = whole_number(call[0], "the operator of a call", 0, static_cast<int64_t>(ops.size()) - 1);
    const int64_t bytes = whole_number(call[1], "the bytes of a call", 0, kMost);
    const int64_t decision =
        whole_number(call[2], "the decision of a call", 0, static_cast<int64_t>(decisions.size()) - 1);
    plan->calls.push_back(PlannedCall{ops[op], bytes});
    plan->decisions.push_back(decisions[decision]);
  }
  return plan;
}

std::string error_text() {
  return std::generic_category().message(errno);
}

const char* kind_of(std::filesystem::file_type type) {
  switch (type) {
    case std::filesystem::file_type::directory:
      return "a directory";
    case std::filesystem::file_type::fifo:
      return "a pipe";
    case std::filesystem::file_type::socket:
      return "a socket";
    case std::filesystem::file_type::block:
    case std::filesystem::file_type::character:
      return "a device";
    default:
      return "no regular file";
  }
}

[[noreturn]] void cannot_write(const std::string& path, const std::string& problem) {
  C10_THROW_ERROR(Error, c10::str("The plan cannot be written to ", quoted(path), ": ", problem));
}

// Where a file of this path lies once symbolic links are followed. A link to a file that does not exist names the file
// that is to be made. In a circle of links the answer is one of them.
std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(std::filesystem::symlink_status(path, error)); ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(path, error);
    if (error) {
      break;
    }
    path = path.parent_path() / to;
  }
  return path;
}

// A file under another name until it is whole.
class PartFile {
 public:
  // The file lies in the directory of `path`, so that the file system renames it in one step. No other PartFile has
  // its name, in this process or another.
  explicit PartFile(std::filesystem::path path) : path_(std::move(path)) {
    static std::atomic<int64_t> made{0};
    do {
      part_ = path_.parent_path() / absl::StrCat(".ac2_plan_part", getpid(), "_", ++made);
      file_ = std::fopen(part_.c_str(), "wx");  // "x": an error if the file exists
    } while (file_ == nullptr && errno == EEXIST);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (file_ != nullptr) {
      std::fclose(file_);
    }
    if (exists_ || file_ != nullptr) {
      std::remove(part_.c_str());
    }
  }

  // False, with the reason in errno, if the text cannot be written whole.
  bool write(const std::string& text) {
    if (file_ == nullptr) {
      return false;
    }
    exists_ = true;
    const bool written = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    const int reason = errno;
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!written) {
      errno = reason;
    }
    return written && closed;
  }
  std::error_code finish() {
    std::error_code error;
    std::filesystem::rename(part_, path_, error);
    exists_ = static_cast<bool>(error);
    return error;
  }

 private:
  std::filesystem::path path_, part_;
  std::FILE* file_ = nullptr;
  bool exists_ = false;
};

// What a file ends with whose bytes before that are `body`. A file is whole if it ends so.
std::string seal(std::string_view body) {
  const auto sum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
  return absl::StrCat(",\"crc32\":\"", absl::Hex(sum, absl::kZeroPad8), "\"}\n");
}

bool is_whole(std::string_view text) {
  const size_t size_of_seal = seal("").size();
  if (text.size() < size_of_seal) {
    return false;
  }
  const std::string_view body = text.substr(0, text.size() - size_of_seal);
  return text.substr(body.size()) == seal(body);
}

}  // namespace

void write_plan(const PlannedStep& plan, const std::string& path) {
  std::error_code unused;
  const std::filesystem::file_type type = std::filesystem::status(path, unused).type();
  const bool may_be_replaced = type == std::filesystem::file_type::regular ||
                               type == std::filesystem::file_type::not_found ||
                               type == std::filesystem::file_type::none;  // an error, which opening it will name
  if (!may_be_replaced) {
    cannot_write(path,
                 absl::StrCat("it is ", kind_of(type), ". Give save_plan the path of a regular file, or of none."));
  }
  std::string text = to_json(plan).dump();
  text.pop_back();  // the bracket, which the seal has
  text += seal(text);
  const std::filesystem::path target = behind_links(path);
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(target, unused))) {
    cannot_write(path, "its symbolic links lead in a circle. Give save_plan the path of a file.");
  }
  PartFile part(target);
  if (!part.write(text)) {
    cannot_write(
        path, absl::StrCat(error_text(), ". Give save_plan a path in a directory that exists and may be written to."));
  }
  if (const std::error_code error = part.finish()) {
    cannot_write(path, absl::StrCat(error.message(), ". Give save_plan the path of a file."));
  }
}

std::shared_ptr<const PlannedStep> read_plan(const std::string& path) {
  std::string problem;
  std::error_code unused;
  std::ifstream file;
  std::ostringstream text;
  if (std::filesystem::is_directory(path, unused)) {
    problem = "it is a directory. Give load_plan a file that save_plan wrote.";
  } else if (file.open(path); !file) {
    problem = absl::StrCat(error_text(), ". Give load_plan a file that save_plan wrote.");
  } else {
    text << file.rdbuf();
  }
  if (problem.empty()) {
    try {
      const std::string all = text.str();
      const Json json = Json::parse(all);
      check_version(json);
      TORCH_CHECK(is_whole(all), "it is damaged: its bytes do not have the checksum that it ends with. Plan again.");
      return from_json(json);
    } catch (const nlohmann::json::parse_error& error) {
      // Its text has bytes of the file, which need not be text.
      problem = absl::StrCat("it is damaged, or was not written by save_plan (it is no JSON at byte ", error.byte,
                             "). Plan again.");
    } catch (const nlohmann::json::exception& error) {
      problem = absl::StrCat("it is damaged, or was not written by save_plan (", error.what(), "). Plan again.");
    } catch (const c10::Error& error) {
      problem = error.what_without_backtrace();
    }
  }
  C10_THROW_ERROR(Error, c10::str("The plan ", quoted(path), " cannot be read: ", problem));
}

}  // namespace ac2::internal
