// Makes the manifest that a save plan would have if its files were written. Dry runs and reshards of live memory need
// it.
#ifndef CAIRN_PLANNER_SAVE_VIRTUAL_MANIFEST_H_
#define CAIRN_PLANNER_SAVE_VIRTUAL_MANIFEST_H_

#include "common/format/manifest.h"
#include "planner/save/save_plan.h"

namespace cairn {

// All checksums are 0, and objects fill their slots.
Manifest VirtualManifest(const SavePlan& plan);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_VIRTUAL_MANIFEST_H_
