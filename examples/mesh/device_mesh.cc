#include "examples/mesh/device_mesh.h"

#include <c10/util/Exception.h>

namespace gpt {

int64_t DeviceMesh::along(MeshAxis axis) const {
  switch (axis) {
    case MeshAxis::kTensor:
      return tensor;
    case MeshAxis::kContext:
      return context;
    case MeshAxis::kData:
      return data;
    case MeshAxis::kPipeline:
      return pipeline;
    case MeshAxis::kReplicas:
      return data * context;
  }
  TORCH_CHECK(false, "No axis of a mesh has the number ", static_cast<int>(axis), ".");
}

std::vector<int64_t> DeviceMesh::ranks_along(MeshAxis axis, MeshPlace place) const {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < along(axis); ++i) {
    switch (axis) {
      case MeshAxis::kTensor:
        place.tensor = i;
        break;
      case MeshAxis::kContext:
        place.context = i;
        break;
      case MeshAxis::kData:
        place.data = i;
        break;
      case MeshAxis::kPipeline:
        place.pipeline = i;
        break;
      case MeshAxis::kReplicas:
        place.data = i / context;
        place.context = i % context;
        break;
    }
    ranks.push_back(rank_of(*this, place));
  }
  return ranks;
}

void check_mesh(const DeviceMesh& mesh) {
  TORCH_CHECK(mesh.data > 0 && mesh.context > 0 && mesh.tensor > 0 && mesh.pipeline > 0, "The mesh is ", mesh.data,
              " (data) x ", mesh.context, " (context) x ", mesh.tensor, " (tensor) x ", mesh.pipeline,
              " (pipeline); expected 1 or more of each.");
}

MeshPlace place_of(const DeviceMesh& mesh, int64_t rank) {
  check_mesh(mesh);
  TORCH_CHECK(rank >= 0 && rank < mesh.ranks(), "Rank ", rank, " is not in a mesh of ", mesh.ranks(), " devices.");
  return {.data = rank / (mesh.tensor * mesh.context) % mesh.data,
          .context = rank / mesh.tensor % mesh.context,
          .tensor = rank % mesh.tensor,
          .pipeline = rank / (mesh.tensor * mesh.context * mesh.data)};
}

int64_t rank_of(const DeviceMesh& mesh, MeshPlace place) {
  return ((place.pipeline * mesh.data + place.data) * mesh.context + place.context) * mesh.tensor + place.tensor;
}

bool is_within_nodes(const DeviceMesh& mesh, MeshAxis axis, int64_t devices_per_node) {
  TORCH_CHECK(devices_per_node > 0, "A node has ", devices_per_node, " devices; expected 1 or more.");
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int64_t> line = mesh.ranks_along(axis, place_of(mesh, rank));
    if (line.front() / devices_per_node != line.back() / devices_per_node) return false;
  }
  return true;
}

LayerRange layers_of_stage(int64_t layers, int64_t stages, int64_t stage) {
  TORCH_CHECK(layers >= stages, layers, " layers cannot be split into ", stages,
              " stages: each has one layer or more. Use a mesh with a pipeline of ", layers, " or fewer.");
  const int64_t more = layers % stages;
  // The stages [begin, begin + more) have one more.
  const int64_t begin = (stages - more) / 2;
  const int64_t before = stage <= begin ? 0 : stage >= begin + more ? more : stage - begin;
  return {.first = stage * (layers / stages) + before,
          .count = layers / stages + (stage >= begin && stage < begin + more ? 1 : 0)};
}

}  // namespace gpt
