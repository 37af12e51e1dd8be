// A request from outside for a save that no rank has begun yet.
#ifndef CAIRN_COORDINATOR_JOB_SAVE_REQUEST_H_
#define CAIRN_COORDINATOR_JOB_SAVE_REQUEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cairn {

struct SaveRequest {
  enum class State {
    kWaiting,   // for another save to end, or for the ranks to agree, or to get to the step
    kAttached,  // a save answers it
    kEnded,     // before any rank began
  };

  std::string id;
  // The step that was asked for, or that the ranks have agreed on since.
  std::optional<int64_t> step;
  bool step_given = false;
  bool agreed = false;
  State state = State::kWaiting;
  absl::Status error;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time progress;
  absl::Time created;
  // Say when all agents were last there, and for how long another step's save was in its way.
  absl::Time complete;
  absl::Time last_checked;
  absl::Duration blocked = absl::ZeroDuration();
  std::optional<int64_t> blocking_step;  // the last one of them; nothing if that had been decided already
  absl::Time created_wall;
  uint64_t end_revision = 0;  // of what people see when the request ended
  // The highest sequence number of the job's commits when the request came.
  uint64_t sequence = 0;
  // The number of the job's saves that had begun when the request ended.
  uint64_t saves_begun = 0;
  // The trainers that were attached when the request came, by rank.
  std::map<int, uint64_t> trainer;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_SAVE_REQUEST_H_
