// The name of gloo/transport/device.h that LibTorch uses; see the README of this folder.
#pragma once

namespace gloo::transport {

class Device;

}  // namespace gloo::transport
