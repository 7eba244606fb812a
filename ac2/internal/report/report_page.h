// The HTML page of write_report(): a skeleton, its style, and a script for each of its sections. All of it is inline,
// so that the page is one file that can be sent around.
#pragma once

#include <string>

namespace ac2::internal {

extern const char* const kReportStyle;
extern const char* const kReportCommon;  // the data, and what all sections use
extern const char* const kReportBudget;  // functions that kReportMemory calls
extern const char* const kReportMemory;
extern const char* const kReportTable;
extern const char* const kReportModules;
extern const char* const kReportLongReplays;
extern const char* const kReportGraph;

// `data` is what report_data() returns.
std::string report_page(const std::string& data);

}  // namespace ac2::internal
