#include "examples/mesh/mesh_groups.h"

namespace gpt {

MeshGroups::MeshGroups(const DeviceMesh& m, MeshPlace p)
    : mesh(m),
      place(p),
      tensor("tensor", m.tensor, p.tensor),
      data("data", m.data, p.data),
      pipeline("pipeline", m.pipeline, p.pipeline) {}

MeshGroups::MeshGroups(const DeviceMesh& m, int64_t rank, const c10::intrusive_ptr<c10d::Store>& store)
    : mesh(m),
      place(place_of(m, rank)),
      tensor("tensor", store, m.ranks_along(MeshAxis::kTensor, place), rank),
      data("data", store, m.ranks_along(MeshAxis::kData, place), rank),
      pipeline("pipeline", store, m.ranks_along(MeshAxis::kPipeline, place), rank) {}

}  // namespace gpt
