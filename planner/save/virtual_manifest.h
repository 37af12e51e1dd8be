// Makes the manifest of a save plan whose files are not written, for dry runs and for reshards of live memory.
#ifndef CAIRN_PLANNER_SAVE_VIRTUAL_MANIFEST_H_
#define CAIRN_PLANNER_SAVE_VIRTUAL_MANIFEST_H_

#include "common/format/manifest.h"
#include "planner/save/save_plan.h"

namespace cairn {

// All checksums are 0, and objects fill their slots.
Manifest VirtualManifest(const SavePlan& plan);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_VIRTUAL_MANIFEST_H_
