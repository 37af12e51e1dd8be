// Moments of Adam that are much too large, as of a scale that was not taken off again, or of other units.
#ifndef CAIRN_COORDINATOR_ALARMS_SCALED_MOMENTS_H_
#define CAIRN_COORDINATOR_ALARMS_SCALED_MOMENTS_H_

#include <string>
#include <vector>

#include "coordinator/alarms/state_pairs.h"

namespace cairn {

// Returns the names of the moments that no gradients can have made of what they were: a first one that is too large for
// the squared one beside it, and a squared one that is a multiple of what it was, while the first one is not of as
// much. Larger gradients make both larger. Pure.
std::vector<std::string> ScaledMoments(const StatePairs& states);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_SCALED_MOMENTS_H_
