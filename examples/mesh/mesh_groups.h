// The four groups that one process of a mesh is in.
//
//   MeshGroups planned(mesh, place);            // only counts; for meta tensors
//   MeshGroups real(mesh, job.rank, job.store());
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "examples/mesh/communicator.h"
#include "examples/mesh/device_mesh.h"

namespace gpt {

struct MeshGroups {
  MeshGroups(const DeviceMesh& mesh, MeshPlace place);
  // For process `rank` of as many as the mesh has devices. They find each other in `store`, which is for one object in
  // each process, and wait for each other.
  MeshGroups(const DeviceMesh& mesh, int64_t rank, const c10::intrusive_ptr<c10d::Store>& store);

  DeviceMesh mesh;
  MeshPlace place;
  Communicator tensor, context, pipeline;
  Communicator replicas;  // data and context together, which reduce the gradients of the same parameters
};

}  // namespace gpt
