#include "common/resources/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace cairn {
namespace {

// Storage has some hundred threads at most, and few of them have a file open at a time.
constexpr uint64_t kMostFiles = 256;
// The maximum number of peers that prove themselves at a time.
constexpr uint64_t kMostStrangers = 2048;
// Descriptors that a process always has: its log, its listeners, those of gRPC.
constexpr uint64_t kOwn = 100;

}  // namespace

OpenFileShares SharesOfOpenFiles(uint64_t limit) {
  return {.files = std::min(limit / 4, kMostFiles), .strangers = std::min(limit / 8, kMostStrangers)};
}

uint64_t PeersWithin(uint64_t limit) {
  const OpenFileShares shares = SharesOfOpenFiles(limit);
  const uint64_t taken = shares.files + shares.strangers + kOwn;
  return limit > taken ? limit - taken : 0;
}

uint64_t LimitForPeers(uint64_t peers) {
  const uint64_t wanted = peers + kOwn;
  // SharesOfOpenFiles keeps three eighths of a small limit for other uses than peers.
  return std::min((wanted * 8 + 4) / 5, wanted + kMostFiles + kMostStrangers);
}

uint64_t RaiseOpenFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

}  // namespace cairn
