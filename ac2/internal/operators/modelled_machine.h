// The imagined machine whose nanoseconds modelled costs are in.
#pragma once

namespace ac2::internal {

inline constexpr double kModelledFlopsPerNanosecond = 50;
inline constexpr double kModelledBytesPerNanosecond = 10;  // read or written
inline constexpr double kModelledCall = 1000;              // nanoseconds of each call, whatever it does

}  // namespace ac2::internal
