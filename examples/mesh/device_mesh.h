// The processes of a job as a grid: data x context x tensor x pipeline, and the place of each in it.
//
//   const DeviceMesh mesh{.data = 16, .tensor = 8, .pipeline = 8};     // 1,024 devices
//   const MeshPlace place = place_of(mesh, 77);
//   mesh.ranks_along(MeshAxis::kTensor, place);                        // those with which it splits its products
//
// Processes along the context axis have parts of the same sequences. Ranks count along the tensor axis first, so that
// those of a tensor group are on one machine, then along context, then along data, then along pipeline.
#pragma once

#include <cstdint>
#include <vector>

namespace gpt {

// The replicas are data and context together: all that have the same parameters.
enum class MeshAxis { kTensor, kContext, kData, kPipeline, kReplicas };

struct MeshPlace {
  int64_t data = 0, context = 0, tensor = 0, pipeline = 0;
};

struct DeviceMesh {
  int64_t data = 1, context = 1, tensor = 1, pipeline = 1;

  int64_t ranks() const { return data * context * tensor * pipeline; }
  int64_t along(MeshAxis axis) const;
  // The ranks of the line, or of the replicas, through `place`, in order.
  std::vector<int64_t> ranks_along(MeshAxis axis, MeshPlace place) const;
};

// Throw c10::Error for a mesh with an axis of no device, and for a rank that is not in it.
void check_mesh(const DeviceMesh& mesh);
MeshPlace place_of(const DeviceMesh& mesh, int64_t rank);
int64_t rank_of(const DeviceMesh& mesh, MeshPlace place);
// Whether all groups along the axis stay within one node each. A node has `devices_per_node` ranks that follow one
// another.
bool is_within_nodes(const DeviceMesh& mesh, MeshAxis axis, int64_t devices_per_node);

// A range of layers: [first, first + count).
struct LayerRange {
  int64_t first = 0, count = 0;
};
// As even as can be. Where it is not, the stages in the middle have a layer more, because the first one has the
// embedding too, and the last one the loss. Throws c10::Error for fewer layers than stages.
LayerRange layers_of_stage(int64_t layers, int64_t stages, int64_t stage);

}  // namespace gpt
