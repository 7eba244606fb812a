// Operators that several policies list, by kind, as save_ops takes them. Some names only other LibTorch versions have.
#pragma once

#include <string>
#include <vector>

namespace ac2::policies::internal {

// Products in which no dimension is common to both factors and the result.
const std::vector<std::string>& products_without_batch();
const std::vector<std::string>& batched_products();
const std::vector<std::string>& convolutions();
const std::vector<std::string>& attention();
// Their backward, for a backward that runs inside a region.
const std::vector<std::string>& backward_of_compute_intensive();

}  // namespace ac2::policies::internal
