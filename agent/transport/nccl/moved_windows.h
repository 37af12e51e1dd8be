// Cuts the shards that move between ranks in a save into windows, which go in the steps of an exchange over NCCL.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_MOVED_WINDOWS_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_MOVED_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "agent/session/save_image.h"

namespace cairn {

// Names bytes of one shard that go in one transfer.
struct MovedPiece {
  size_t shard = 0;     // index into SaveImage::moved_out if it is sent, else into moved_in
  uint64_t offset = 0;  // within the shard
  uint64_t bytes = 0;
};

// Names what goes from one rank to another in one step.
struct MovedWindow {
  uint32_t peer = 0;  // of the job
  bool send = false;
  uint32_t window = 0;
  uint64_t bytes = 0;
  std::vector<MovedPiece> pieces;
};

// Says how all pairs of ranks cut, so that they need not tell each other.
struct WindowCut {
  uint64_t window_bytes = 0;  // at most, > 0
  size_t pieces = 1;          // at most, > 0
};

// Returns the windows between this rank and each of `peers`. The shards of one pair of ranks follow one another by
// their number in the layout of the rank that holds them, so both ends cut alike. Windows of a pair are counted from 0.
std::vector<MovedWindow> CutMovedShards(const SaveImage& target, const std::set<uint32_t>& peers, const WindowCut& cut);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_MOVED_WINDOWS_H_
