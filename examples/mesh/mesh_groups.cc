#include "examples/mesh/mesh_groups.h"

namespace gpt {

MeshGroups::MeshGroups(const DeviceMesh& m, MeshPlace p)
    : mesh(m),
      place(p),
      tensor("tensor", m.tensor, p.tensor),
      context("context", m.context, p.context),
      pipeline("pipeline", m.pipeline, p.pipeline),
      replicas("replicas", m.along(MeshAxis::kReplicas), p.data * m.context + p.context) {}

MeshGroups::MeshGroups(const DeviceMesh& m, int64_t rank, const c10::intrusive_ptr<c10d::Store>& store)
    : mesh(m),
      place(place_of(m, rank)),
      tensor("tensor", store, m.ranks_along(MeshAxis::kTensor, place), rank),
      context("context", store, m.ranks_along(MeshAxis::kContext, place), rank),
      pipeline("pipeline", store, m.ranks_along(MeshAxis::kPipeline, place), rank),
      replicas("replicas", store, m.ranks_along(MeshAxis::kReplicas, place), rank) {}

}  // namespace gpt
