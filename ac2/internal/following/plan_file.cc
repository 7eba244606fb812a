#include "ac2/internal/following/plan_file.h"

#include <c10/util/Exception.h>
#include <zlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "ac2/internal/following/part_file.h"
#include "ac2/internal/following/plan_json.h"

namespace ac2::internal {

namespace {

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

// The end of a file whose bytes before that are `body`. A file is whole if it ends so.
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
    cannot_write(path, absl::StrCat("it is ", kind_of(type), ". Give save() the path of a regular file, or of none."));
  }
  std::string text = plan_to_json(plan).dump();
  text.pop_back();  // the bracket, which the seal has
  text += seal(text);
  const std::filesystem::path target = behind_links(path);
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(target, unused))) {
    cannot_write(path, "its symbolic links lead in a circle. Give save() the path of a file.");
  }
  PartFile part(target);
  if (!part.write(text)) {
    cannot_write(path,
                 absl::StrCat(error_text(), ". Give save() a path in a directory that exists and may be written to."));
  }
  if (const std::error_code error = part.finish()) {
    cannot_write(path, absl::StrCat(error.message(), ". Give save() the path of a file."));
  }
}

std::shared_ptr<const PlannedStep> read_plan(const std::string& path, const Forms& own) {
  std::string problem;
  std::error_code unused;
  std::ifstream file;
  std::ostringstream text;
  const std::filesystem::file_status status = std::filesystem::status(path, unused);
  if (std::filesystem::is_directory(status)) {
    problem = "it is a directory. Give load() a file that a plan's save() wrote.";
  } else if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    problem =
        "it is a device, a pipe or a socket, which might never end. Give load() a file that a plan's save() wrote.";
  } else if (file.open(path); !file) {
    problem = absl::StrCat(error_text(), ". Give load() a file that a plan's save() wrote.");
  } else {
    text << file.rdbuf();
  }
  if (problem.empty()) {
    try {
      const std::string all = text.str();
      const nlohmann::json json = nlohmann::json::parse(all);
      check_plan_version(json);
      TORCH_CHECK(is_whole(all), "it is damaged: its bytes do not have the checksum that it ends with. Plan again.");
      return plan_from_json(json, own);
    } catch (const nlohmann::json::parse_error& error) {
      // Its text has bytes of the file, which need not be text.
      problem = absl::StrCat("it is damaged, or was not written by a plan's save() (it is no JSON at byte ", error.byte,
                             "). Plan again.");
    } catch (const nlohmann::json::exception& error) {
      problem = absl::StrCat("it is damaged, or was not written by a plan's save() (", error.what(), "). Plan again.");
    } catch (const c10::Error& error) {
      problem = error.what_without_backtrace();
    }
  }
  C10_THROW_ERROR(Error, c10::str("The plan ", quoted(path), " cannot be read: ", problem));
}

}  // namespace ac2::internal
