// Answers what is asked of a rank's call of load in several places.
#ifndef CAIRN_COORDINATOR_LOAD_LOAD_STATE_H_
#define CAIRN_COORDINATOR_LOAD_LOAD_STATE_H_

#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

inline bool HasFailed(const v1::LoadState& state) {
  return state.phase() == v1::Phase::FAILED || state.phase() == v1::Phase::STOPPED;
}

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_LOAD_STATE_H_
