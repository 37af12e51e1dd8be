// Copies a state to the host while the trainer goes on.
#ifndef CAIRN_GPU_COPY_OVERLAP_RUN_H_
#define CAIRN_GPU_COPY_OVERLAP_RUN_H_

#include "gpu/copy/device_core.h"
#include "gpu/copy/overlap_state.h"

namespace cairn {

// Runs in the thread of a run until all is copied and checked. `state` learns when the trainer may go on; the caller
// gives it the outcome that is returned, as its end.
DeviceOutcome RunOverlap(DeviceCore& core, const OverlapRequest& request, OverlapState& state);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_OVERLAP_RUN_H_
