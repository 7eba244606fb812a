// A planned step as JSON, which plan_file.h describes.
//
//   const std::string text = plan_to_json(step).dump();
//   const nlohmann::json json = nlohmann::json::parse(text);
//   check_plan_version(json);
//   std::shared_ptr<const PlannedStep> again = plan_from_json(json, forms);
//
// Threads: any.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ac2/internal/following/planned_step.h"

namespace ac2::internal {

// Without a checksum.
nlohmann::ordered_json plan_to_json(const PlannedStep& plan);
// Throws c10::Error if it is no plan, or one of another version.
void check_plan_version(const nlohmann::json& json);
// `own`: forms of the program's, by their names. Throws c10::Error if an entry is not what it should be, or an operator
// or a form is not there; nlohmann-json's exceptions if an
// entry is missing or of another type.
std::shared_ptr<const PlannedStep> plan_from_json(const nlohmann::json& json, const Forms& own);

// In quotation marks, and valid UTF-8 whatever bytes it has: Python takes no other error texts.
std::string quoted(const std::string& text);

}  // namespace ac2::internal
