// Reads from the ranks' layouts by which mapping, and from which source, a load is asked for.
#ifndef CAIRN_PLANNER_LOAD_LOAD_WISH_H_
#define CAIRN_PLANNER_LOAD_LOAD_WISH_H_

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "mapping/mapping.h"
#include "planner/layout/rank_input.h"

namespace cairn {

struct LoadWish {
  std::shared_ptr<const aoa::Config> mapping;  // null: no mapping
  std::string import_directory;                // empty: a checkpoint of the job
};

// Reads the wish from the ranks' layouts (Layout.mapping, Layout.import_directory). INVALID_ARGUMENT (BAD_REQUEST):
// ranks ask for different things, or a mapping is not JSON of the documented form.
absl::StatusOr<LoadWish> ReadLoadWish(std::span<const RankInput> targets);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_LOAD_WISH_H_
