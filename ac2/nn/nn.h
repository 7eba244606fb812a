// Checkpointing by module. Includes LibTorch's module headers, which ac2/scope.h does without.
#pragma once

#include "ac2/nn/apply_checkpointing.h"    // IWYU pragma: export
#include "ac2/nn/checkpoint_sequential.h"  // IWYU pragma: export
#include "ac2/nn/checkpointed.h"           // IWYU pragma: export
#include "ac2/nn/checkpointing.h"          // IWYU pragma: export
#include "ac2/nn/module_selector.h"        // IWYU pragma: export
