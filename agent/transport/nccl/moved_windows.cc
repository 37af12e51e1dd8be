#include "agent/transport/nccl/moved_windows.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cairn {
namespace {

struct Shard {
  uint32_t number = 0;  // in the layout of the rank that holds it
  size_t index = 0;
  uint64_t bytes = 0;
};

void Cut(uint32_t peer, bool send, const std::vector<Shard>& shards, const WindowCut& cut,
         std::vector<MovedWindow>& windows) {
  MovedWindow window = {peer, send, 0, 0, {}};
  const auto close = [&] {
    if (window.pieces.empty()) return;
    const uint32_t next = window.window + 1;
    windows.push_back(std::exchange(window, MovedWindow{peer, send, next, 0, {}}));
  };
  for (const Shard& shard : shards) {
    for (uint64_t offset = 0; offset < shard.bytes;) {
      if (window.bytes == cut.window_bytes || window.pieces.size() == cut.pieces) close();
      const uint64_t bytes = std::min(shard.bytes - offset, cut.window_bytes - window.bytes);
      window.pieces.push_back({shard.index, offset, bytes});
      window.bytes += bytes;
      offset += bytes;
    }
  }
  close();
}

}  // namespace

std::vector<MovedWindow> CutMovedShards(const SaveImage& target, const std::set<uint32_t>& peers,
                                        const WindowCut& cut) {
  std::map<std::pair<uint32_t, bool>, std::vector<Shard>> shards;  // by peer and direction
  for (size_t i = 0; i < target.moved_out.size(); ++i) {
    const MovedOut& moved = target.moved_out[i];
    if (!peers.contains(moved.to_rank)) continue;
    shards[{moved.to_rank, true}].push_back({moved.shard, i, target.layout->items[moved.shard].bytes()});
  }
  for (size_t i = 0; i < target.moved_in.size(); ++i) {
    const MovedIn& moved = target.moved_in[i];
    if (!peers.contains(moved.from_rank)) continue;
    shards[{moved.from_rank, false}].push_back({moved.from_shard, i, moved.item.bytes()});
  }
  std::vector<MovedWindow> windows;
  for (auto& [way, several] : shards) {
    std::sort(several.begin(), several.end(), [](const Shard& a, const Shard& b) { return a.number < b.number; });
    Cut(way.first, way.second, several, cut, windows);
  }
  return windows;
}

}  // namespace cairn
