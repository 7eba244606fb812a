// Networks whose results are used in more than one place, and far away: for benchmarks of memory.
//
//   auto network = peers::make_branching_network("unet", peers::Size::kFull);
//
// "unet": down and up again, with a skip on each level. "inception": blocks of four branches, concatenated.
// "tree_lstm": a child-sum TreeLSTM (Tai, Socher and Manning, 2015) over a full binary tree, node by node. "gan": a
// generator and a discriminator, which learn in one step. Parameters are those of LibTorch's generator.
//
// Threads: as torch::nn::Module, one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/networks/networks.h"

namespace peers {

const std::vector<std::string>& branching_network_names();

// Throws c10::Error that lists the names if `name` is not one of them.
std::shared_ptr<Network> make_branching_network(const std::string& name, Size size);

}  // namespace peers
