// What a plan for a mesh is made for: the model, the devices, and how fast they compute and exchange.
#pragma once

#include <algorithm>
#include <cstdint>

#include "examples/mesh/device_mesh.h"
#include "examples/mesh/large_model.h"

namespace gpt {

struct MeshPlanOptions {
  LargeModel model = gpt3_175b();
  DeviceMesh mesh = {};
  int64_t micro_batches = 1;
  int64_t batch = 1;  // sequences in a micro-batch
  bool sequence = false;
  bool sharded_optimizer = true;
  int64_t device_bytes = int64_t{80} << 30;
  // What a device computes in a second, and what it sends within its node and to other nodes. As given: an H100 that
  // reaches 40 % in bfloat16, NVLink one way, and an adapter of 400 Gb/s for each device.
  double flops = 400e12;
  double link_bytes = 450e9;
  double network_bytes = 50e9;
  int64_t devices_per_node = 8;
  // A node's host memory for what its devices copy there between forward and backward, of which each device has the
  // same share; 0: nothing is copied. And what a device copies in a second, each way at the same time. As given:
  // PCIe 5.
  int64_t host_bytes = 0;
  double host_link_bytes = 50e9;
  // The share of a step's time that smaller plans may add to it (plan_mesh.h).
  double spare = 0;
};

// A device's share of its node's host memory.
inline int64_t host_bytes_of_device(const MeshPlanOptions& options) {
  return options.host_bytes / std::min(options.devices_per_node, options.mesh.ranks());
}

}  // namespace gpt
