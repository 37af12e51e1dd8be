#include "planner/save/writers.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/crc64.h"

namespace cairn {
namespace {

constexpr uint64_t kLargeObjectBytes = uint64_t{1} << 20;
bool IsLarge(uint64_t slot_bytes) { return slot_bytes >= kLargeObjectBytes; }

constexpr uint64_t kAnyNumber = 0x9E3779B97F4A7C15;
// Makes each bit depend on each bit of `value` (the finalizer of SplitMix64: Steele, Lea and Flood, 2014).
uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

class Chooser {
 public:
  Chooser(const LayoutSet& set, const SaveOptions& options)
      : set_(set), options_(options), node_load_(set.nodes().size()) {
    writers_.load.resize(set.ranks().size());
    writers_.object_writer.assign(set.objects().size(), -1);
  }

  Writers Choose(const Writers* before) {
    if (before == nullptr) {
      FindShared();
    } else {
      writers_.shard_writer = before->shard_writer;
      writers_.sole_bytes = before->sole_bytes;
      writers_.shared = before->shared;
    }
    for (size_t rank = 0; rank < writers_.sole_bytes.size(); ++rank) {
      Give(static_cast<int>(rank), writers_.sole_bytes[rank]);
    }
    const std::vector<std::vector<uint32_t>> object_layouts = GiveOwnObjects();
    std::vector<uint32_t> objects;  // large ones that ranks share
    for (uint32_t object = 0; object < set_.objects().size(); ++object) {
      if (object_layouts[object].empty()) continue;
      if (IsLarge(set_.objects()[object].slot_bytes)) {
        objects.push_back(object);
      } else {
        writers_.object_writer[object] = Drawn(set_.objects()[object].name, object_layouts[object]);
        small_.emplace_back(writers_.object_writer[object], set_.objects()[object].slot_bytes);
      }
    }
    const auto slot_of = [&](uint32_t object) { return set_.objects()[object].slot_bytes; };
    std::stable_sort(objects.begin(), objects.end(), [&](uint32_t a, uint32_t b) { return slot_of(a) > slot_of(b); });
    // Items of equal size go shards first, and else in the order of their numbers.
    auto object = objects.begin();
    const auto give_objects = [&](uint64_t above) {
      for (; object != objects.end() && slot_of(*object) > above; ++object) {
        writers_.object_writer[*object] = Best(object_layouts[*object]);
        Give(writers_.object_writer[*object], slot_of(*object));
      }
    };
    for (const uint32_t shard : writers_.shared) {
      const uint64_t bytes = set_.BytesOf(shard);
      give_objects(bytes);
      writers_.shard_writer[shard] = Best(set_.HoldersOf(shard));
      Give(writers_.shard_writer[shard], bytes);
    }
    give_objects(0);
    if (options_.moves == MovePolicy::kAuto) MoveShards();
    for (const auto& [rank, bytes] : small_) Give(rank, bytes);
    return std::move(writers_);
  }

 private:
  void FindShared() {
    writers_.shard_writer.assign(set_.shard_count(), -1);
    writers_.sole_bytes.assign(set_.ranks().size(), 0);
    for (uint32_t shard = 0; shard < set_.shard_count(); ++shard) {
      const auto holders = set_.HoldersOf(shard);
      const std::vector<int>& ranks = set_.layouts()[holders[0]].rank_indices;
      if (holders.size() == 1 && ranks.size() == 1) {
        writers_.sole_bytes[static_cast<size_t>(ranks[0])] += set_.BytesOf(shard);
        writers_.shard_writer[shard] = ranks[0];
      } else {
        writers_.shared.push_back(shard);
      }
    }
    std::stable_sort(writers_.shared.begin(), writers_.shared.end(),
                     [&](uint32_t a, uint32_t b) { return set_.BytesOf(a) > set_.BytesOf(b); });
  }

  // Gives each rank the objects that are its own. Returns the layouts that declare each of the others.
  std::vector<std::vector<uint32_t>> GiveOwnObjects() {
    std::vector<std::vector<uint32_t>> object_layouts(set_.objects().size());
    for (uint32_t i = 0; i < set_.layouts().size(); ++i) {
      const LayoutSet::Layout& layout = set_.layouts()[i];
      for (const LayoutSet::ObjectItem& item : layout.objects) {
        if (set_.objects()[item.object].per_rank) {
          for (int rank : layout.rank_indices) {
            if (IsLarge(item.slot_bytes)) {
              Give(rank, item.slot_bytes);
            } else {
              small_.emplace_back(rank, item.slot_bytes);
            }
          }
        } else {
          object_layouts[item.object].push_back(i);
        }
      }
    }
    return object_layouts;
  }

  // Returns the rank that a draw by the name gives, which no other item has a part in (Thaler and Ravishankar, 1998).
  int Drawn(std::string_view name, std::span<const uint32_t> layouts) const {
    const uint64_t seed = ExtendRemainder64(kAnyNumber, name.data(), name.size());
    int drawn = -1;
    uint64_t highest = 0;
    for (uint32_t layout : layouts) {
      for (int rank : set_.layouts()[layout].rank_indices) {
        const uint64_t lot = Mixed(seed + kAnyNumber * static_cast<uint64_t>(set_.ranks()[static_cast<size_t>(rank)]));
        if (drawn >= 0 && std::pair(lot, rank) <= std::pair(highest, drawn)) continue;
        drawn = rank;
        highest = lot;
      }
    }
    return drawn;
  }

  void Give(int rank, uint64_t bytes) {
    writers_.load[static_cast<size_t>(rank)] += bytes;
    node_load_[set_.rank_nodes()[static_cast<size_t>(rank)]] += bytes;
  }

  int Best(std::span<const uint32_t> layouts) const {
    int best = -1;
    uint64_t best_load = 0, best_node = 0;
    for (uint32_t layout : layouts) {
      for (int rank : set_.layouts()[layout].rank_indices) {
        const auto r = static_cast<size_t>(rank);
        const uint64_t load = writers_.load[r];
        const uint64_t node = node_load_[set_.rank_nodes()[r]];
        if (best < 0 || std::tuple(load, node, rank) < std::tuple(best_load, best_node, best)) {
          best = rank;
          best_load = load;
          best_node = node;
        }
      }
    }
    return best;
  }

  void MoveShards() {
    std::vector<uint64_t>& load = writers_.load;
    const uint64_t total = std::accumulate(load.begin(), load.end(), uint64_t{0});
    const double mean = static_cast<double>(total) / static_cast<double>(load.size());
    const auto limit = std::max(static_cast<uint64_t>(mean * options_.move_threshold), set_.largest_shard_bytes());
    std::vector<int> heavy;
    for (size_t r = 0; r < load.size(); ++r) {
      if (load[r] > limit) heavy.push_back(static_cast<int>(r));
    }
    if (heavy.empty()) return;
    std::stable_sort(heavy.begin(), heavy.end(),
                     [&](int a, int b) { return load[static_cast<size_t>(a)] > load[static_cast<size_t>(b)]; });
    // The receivers are ordered by load: all of them, and those of each node.
    using Queue = std::set<std::pair<uint64_t, int>>;
    Queue all;
    std::vector<Queue> by_node(set_.nodes().size());
    for (size_t r = 0; r < load.size(); ++r) {
      if (load[r] >= limit) continue;
      all.emplace(load[r], static_cast<int>(r));
      by_node[set_.rank_nodes()[r]].emplace(load[r], static_cast<int>(r));
    }
    std::vector<int> heavy_index(load.size(), -1);
    for (size_t i = 0; i < heavy.size(); ++i) heavy_index[static_cast<size_t>(heavy[i])] = static_cast<int>(i);
    std::vector<std::vector<std::pair<uint64_t, uint32_t>>> shards_of(heavy.size());
    for (uint32_t shard = 0; shard < set_.shard_count(); ++shard) {
      const int h = heavy_index[static_cast<size_t>(writers_.shard_writer[shard])];
      if (h >= 0) shards_of[static_cast<size_t>(h)].emplace_back(set_.BytesOf(shard), shard);
    }
    for (size_t h = 0; h < heavy.size(); ++h) {
      const int from = heavy[h];
      auto& own = shards_of[h];
      std::sort(own.begin(), own.end());
      while (load[static_cast<size_t>(from)] > limit && !own.empty() && !all.empty()) {
        const uint64_t excess = load[static_cast<size_t>(from)] - limit;
        // Takes the smallest shard that brings the rank below the limit; if there is none, the largest shard.
        auto pick = std::lower_bound(own.begin(), own.end(), std::pair(excess, 0u));
        if (pick == own.end()) --pick;
        // The receiver must stay below the limit; the lightest receiver has the most room.
        const uint64_t room = limit - all.begin()->first;
        while (pick != own.begin() && pick->first > room) --pick;
        if (pick->first > room) break;
        const auto [bytes, shard] = *pick;
        Queue& near = by_node[set_.rank_nodes()[static_cast<size_t>(from)]];
        const bool local = !near.empty() && near.begin()->first + bytes <= limit;
        const int to = local ? near.begin()->second : all.begin()->second;
        const auto t = static_cast<size_t>(to);
        own.erase(pick);
        all.erase({load[t], to});
        by_node[set_.rank_nodes()[t]].erase({load[t], to});
        load[t] += bytes;
        load[static_cast<size_t>(from)] -= bytes;
        writers_.moves.push_back({shard, from, to});
        if (load[t] < limit) {
          all.emplace(load[t], to);
          by_node[set_.rank_nodes()[t]].emplace(load[t], to);
        }
      }
    }
    EvenOut(limit, heavy, shards_of);
    std::sort(writers_.moves.begin(), writers_.moves.end(), [](const Writers::Move& a, const Writers::Move& b) {
      return std::pair(a.from, a.shard) < std::pair(b.from, b.shard);
    });
  }

  // Reduces loads that are still above the limit because no other rank has room for one of their shards. The heaviest
  // rank gives the lightest rank the shard that is nearest to half of their difference, as long as the heavier of the
  // two becomes lighter by that.
  void EvenOut(uint64_t limit, const std::vector<int>& heavy,
               std::vector<std::vector<std::pair<uint64_t, uint32_t>>>& shards_of) {
    std::vector<uint64_t>& load = writers_.load;
    std::set<std::pair<uint64_t, int>> by_load;
    for (size_t r = 0; r < load.size(); ++r) by_load.emplace(load[r], static_cast<int>(r));
    std::set<std::pair<uint64_t, size_t>> giving;  // load, and index into heavy
    for (size_t h = 0; h < heavy.size(); ++h) giving.emplace(load[static_cast<size_t>(heavy[h])], h);
    while (!giving.empty() && !by_load.empty() && giving.rbegin()->first > limit) {
      const size_t h = giving.rbegin()->second;
      const int from = heavy[h], to = by_load.begin()->second;
      const auto f = static_cast<size_t>(from), t = static_cast<size_t>(to);
      giving.erase(std::prev(giving.end()));
      auto& own = shards_of[h];
      const uint64_t differ = load[f] > load[t] ? load[f] - load[t] : 0;
      auto pick = std::lower_bound(own.begin(), own.end(), std::pair(differ / 2, 0u));
      if (pick != own.begin() &&
          (pick == own.end() || pick->first - differ / 2 > differ / 2 - std::prev(pick)->first)) {
        --pick;
      }
      if (pick == own.end() || pick->first == 0 || pick->first >= differ) continue;  // this rank stays as it is
      const auto [bytes, shard] = *pick;
      own.erase(pick);
      by_load.erase({load[f], from});
      by_load.erase({load[t], to});
      load[f] -= bytes;
      load[t] += bytes;
      by_load.emplace(load[f], from);
      by_load.emplace(load[t], to);
      writers_.moves.push_back({shard, from, to});
      giving.emplace(load[f], h);
    }
  }

  const LayoutSet& set_;
  const SaveOptions& options_;
  std::vector<uint64_t> node_load_;
  Writers writers_;
  std::vector<std::pair<int, uint64_t>> small_;  // rank and bytes of small objects
};

}  // namespace

Writers ChooseWriters(const LayoutSet& set, const SaveOptions& options, const Writers* before) {
  return Chooser(set, options).Choose(before);
}

}  // namespace cairn
