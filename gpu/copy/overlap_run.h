// Copies a state to the host while the trainer continues.
#ifndef CAIRN_GPU_COPY_OVERLAP_RUN_H_
#define CAIRN_GPU_COPY_OVERLAP_RUN_H_

#include "gpu/copy/device_core.h"
#include "gpu/copy/overlap_state.h"

namespace cairn {

// Executes an overlapped save on the calling thread, until everything is copied and checked. Calls state.Begun when the
// trainer may continue. The caller passes the returned outcome to state.End.
DeviceOutcome RunOverlap(DeviceCore& core, const OverlapRequest& request, OverlapState& state);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_OVERLAP_RUN_H_
