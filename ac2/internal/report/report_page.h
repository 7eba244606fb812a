// The HTML page of write_report(): a skeleton, its style, and a script for each of its sections. All of it is inline,
// so that the page is one file that can be sent around. The folder page/ has the files that it is made of.
//
// Threads: any.
#pragma once

#include <string>

namespace ac2::internal {

// `data` is what report_data() returns.
std::string report_page(const std::string& data);

}  // namespace ac2::internal
