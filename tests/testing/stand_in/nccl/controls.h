// Tests control the stand-in for NCCL by settings. The library usually runs in another process than the test, so they
// stand in a file whose path is in STAND_IN_NCCL: lines of a name and a number. A change of the file is seen at the
// next use. A name with a rank behind it, such as "group_stalls.1", is for that rank of a communicator alone.
//   version            what ncclGetVersion says (22809)
//   init_result        what ncclCommInitRankConfig returns (0)
//   init_hangs         1: a communicator is never complete (0)
//   abort_hangs        1: ncclCommAbort does not return (0)
//   group_end_hangs    the nth ncclGroupEnd of this process does not return (0: none)
//   group_stalls       the nth ncclGroupEnd of this process enqueues work that never ends (0: none)
//   group_end_kills    the nth ncclGroupEnd of this process ends the process by SIGKILL (0: none)
//   group_end_stops    the nth ncclGroupEnd of this process stops the process by SIGSTOP (0: none)
//   deaths_unnoticed   1: a peer's death shows as no error, so that its neighbours hang (0)
//   shared_device      1: several ranks may have one device (0)
//   bytes_per_second   a rank receives no faster than over a network of this speed (0: as fast as memory is)
#ifndef CAIRN_TESTS_TESTING_STAND_IN_NCCL_CONTROLS_H_
#define CAIRN_TESTS_TESTING_STAND_IN_NCCL_CONTROLS_H_

#include <cstdint>

namespace cairn::stand_in {

int64_t NcclSetting(const char* name, int64_t otherwise);
// This process is that rank from now on.
void SetRank(int rank);

}  // namespace cairn::stand_in

extern "C" {

// Says that this library is the stand-in.
extern const int cairn_stand_in;

}  // extern "C"

#endif  // CAIRN_TESTS_TESTING_STAND_IN_NCCL_CONTROLS_H_
