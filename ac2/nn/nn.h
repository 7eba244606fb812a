// Checkpointing by module. Includes LibTorch's module headers, which ac2/scope.h does without.
//
// Every name of these headers is in ac2, as all others of the library are: ac2::apply_checkpointing. The headers
// declare them in ac2::nn, so programs that say ac2::nn::apply_checkpointing compile too; that spelling goes with the
// release after the next.
#pragma once

#include "ac2/nn/apply_checkpointing.h"    // IWYU pragma: export
#include "ac2/nn/checkpoint_sequential.h"  // IWYU pragma: export
#include "ac2/nn/checkpointed.h"           // IWYU pragma: export
#include "ac2/nn/checkpointing.h"          // IWYU pragma: export
#include "ac2/nn/module_selector.h"        // IWYU pragma: export
