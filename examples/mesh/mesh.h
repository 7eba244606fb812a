// A large model on a mesh of devices: for those who want to know, before they have the devices, what each of them would
// hold, compute again and exchange in a training step, and under which plan; and to see that step run in processes.
//
//   #include "examples/mesh/mesh.h"            // Bazel: //examples/mesh
//
//   gpt::print_mesh_plan(std::cout, gpt::plan_mesh({.model = gpt::llama3_405b(),
//                                                   .mesh = {.data = 8, .tensor = 8, .pipeline = 16},
//                                                   .micro_batches = 32, .sequence = true}));
//
// The same step in one of as many processes as the mesh has devices, on the CPU, by gloo:
//
//   gpt::MetaMemory::install();                // before any tensor, and the other counter too
//   ac2::testing::CountingAllocator::install();
//   gpt::MeshGroups groups(mesh, job.rank, job.store());
//   gpt::Stage stage(model, groups, {.device = at::kCPU});
//   gpt::MeshOptimizer optimizer(stage, {.sharded = true});
//   const gpt::StagePlan plan = gpt::plan_stage({.model = model, .mesh = mesh}, groups.place.pipeline);
//   gpt::run_step(stage, optimizer, {.regions = plan.steps.back().regions});
//
// This header has all that a program takes. One that does less takes what it needs:
//
//   plan_mesh.h            the plans of all stages, and the time of a step; stage_plan.h for one stage
//   mesh_plan_options.h    what is planned for; large_model.h and device_mesh.h are its parts
//   pipeline_step.h        a step of a stage, counted; stage.h, mesh_optimizer.h and regions.h are its parts
//   pipeline_schedule.h    the order of micro-batches, and the time of all stages' step; LibTorch's c10 is all it needs
//   mesh_groups.h          the groups of processes that a process is in
//   meta_memory.h          the bytes that meta tensors would take
//
// What else is in this folder serves these: communicator.h and what it counts with, tensor_parallel.h, rms_norm.h,
// backward_later.h and stage_times.h.
//
// It is code to read and to copy from, and no part of ac2: it uses ac2's public headers, and its model has parameters
// drawn at random and words drawn at random. docs/scale.md has what it computes for two models, and what was checked
// against processes.
#pragma once

#include "examples/mesh/device_mesh.h"        // IWYU pragma: export
#include "examples/mesh/large_model.h"        // IWYU pragma: export
#include "examples/mesh/mesh_groups.h"        // IWYU pragma: export
#include "examples/mesh/mesh_optimizer.h"     // IWYU pragma: export
#include "examples/mesh/mesh_plan_options.h"  // IWYU pragma: export
#include "examples/mesh/meta_memory.h"        // IWYU pragma: export
#include "examples/mesh/pipeline_schedule.h"  // IWYU pragma: export
#include "examples/mesh/pipeline_step.h"      // IWYU pragma: export
#include "examples/mesh/plan_mesh.h"          // IWYU pragma: export
#include "examples/mesh/regions.h"            // IWYU pragma: export
#include "examples/mesh/stage.h"              // IWYU pragma: export
#include "examples/mesh/stage_plan.h"         // IWYU pragma: export
