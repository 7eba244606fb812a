#include "ac2/internal/automatic/held_places.h"

#include "ac2/internal/libtorch/storage_names.h"
#include "ac2/internal/observe/held_values.h"
#include "ac2/internal/report/held_text.h"

namespace ac2::internal {

std::vector<ClosingFigures::Place> places_that_hold_most() {
  std::vector<ClosingFigures::Place> places;
  for (const HeldPlace& place : largest_places(held_values(storage_names()), ClosingFigures::kNamedPlaces)) {
    places.push_back({place.where, place.bytes});
  }
  return places;
}

}  // namespace ac2::internal
