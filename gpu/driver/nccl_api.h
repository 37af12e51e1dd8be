// Declares the functions of NCCL that Cairn calls. Cairn does not include nccl.h, because the library is opened at run
// time and most machines that build Cairn do not have it. nccl_api_test.cc compares these declarations with nccl.h if
// there is one.
#ifndef CAIRN_GPU_DRIVER_NCCL_API_H_
#define CAIRN_GPU_DRIVER_NCCL_API_H_

#include <climits>
#include <cstddef>
#include <cstdint>

#include "gpu/driver/driver_api.h"

namespace cairn::nccl {

// ncclResult_t.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

using Comm = struct CommHandle*;

// ncclUniqueId: an address and a secret. Whoever has it can join the group.
struct UniqueId {
  char internal[128];
};

// ncclDataType_t.
inline constexpr int kUint8 = 1;

// The beginning of ncclConfig_t, as in NCCL 2.17. A newer library reads only `size` bytes and uses its defaults for the
// rest, so this declaration works with all later versions.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = INT_MIN;  // INT_MIN: the library's default
  int cluster_size = INT_MIN;
  int min_blocks = INT_MIN;
  int max_blocks = INT_MIN;
  const char* network = nullptr;
};

// Calls F(member of Functions, symbol of the library, type of the result, parameters) for each function.
#define CAIRN_NCCL_FUNCTIONS(F)                                                           \
  F(get_version, ncclGetVersion, Result, (int*))                                          \
  F(get_unique_id, ncclGetUniqueId, Result, (UniqueId*))                                  \
  F(comm_init, ncclCommInitRankConfig, Result, (Comm*, int, UniqueId, int, Config*))      \
  F(comm_get_async_error, ncclCommGetAsyncError, Result, (Comm, Result*))                 \
  F(comm_abort, ncclCommAbort, Result, (Comm))                                            \
  F(get_error_string, ncclGetErrorString, const char*, (Result))                          \
  F(get_last_error, ncclGetLastError, const char*, (Comm))                                \
  F(group_start, ncclGroupStart, Result, ())                                              \
  F(group_end, ncclGroupEnd, Result, ())                                                  \
  F(send, ncclSend, Result, (const void*, size_t, int, int, Comm, ::cairn::cuda::Stream)) \
  F(receive, ncclRecv, Result, (void*, size_t, int, int, Comm, ::cairn::cuda::Stream))    \
  F(broadcast, ncclBroadcast, Result, (const void*, void*, size_t, int, int, Comm, ::cairn::cuda::Stream))

struct Functions {
#define CAIRN_NCCL_MEMBER(member, symbol, result, parameters) result(*member) parameters = nullptr;
  CAIRN_NCCL_FUNCTIONS(CAIRN_NCCL_MEMBER)
#undef CAIRN_NCCL_MEMBER
};

}  // namespace cairn::nccl

#endif  // CAIRN_GPU_DRIVER_NCCL_API_H_
