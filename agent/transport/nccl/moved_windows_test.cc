#include "agent/transport/nccl/moved_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "gpu/nccl/exchange_schedule.h"

namespace cairn {
namespace {

StoredItem ItemOf(uint64_t bytes) {
  StoredItem item;
  item.name = "w";
  item.dtype = DType::kUint8;
  item.global_shape = item.box.shape = {static_cast<int64_t>(bytes)};
  item.box.offset = {0};
  return item;
}

// Makes the images of some ranks, as far as moved shards go.
class Images {
 public:
  explicit Images(uint32_t ranks) : images_(ranks), layouts_(ranks) {}

  void Move(uint32_t from, uint32_t to, uint64_t bytes) {
    std::vector<StoredItem>& items = layouts_[from].items;
    const auto shard = static_cast<uint32_t>(items.size());
    items.push_back(ItemOf(bytes));
    images_[from].moved_out.push_back({shard, to});
    images_[to].moved_in.push_back({from, shard, ItemOf(bytes)});
  }
  void Shuffle(std::mt19937& random) {
    for (SaveImage& image : images_) {
      std::shuffle(image.moved_in.begin(), image.moved_in.end(), random);
      std::shuffle(image.moved_out.begin(), image.moved_out.end(), random);
    }
  }
  SaveImage Of(uint32_t rank) const {
    SaveImage image = images_[rank];
    image.rank = rank;
    image.layout = std::make_shared<const RankLayout>(layouts_[rank]);
    return image;
  }
  uint32_t ranks() const { return static_cast<uint32_t>(images_.size()); }

 private:
  std::vector<SaveImage> images_;
  std::vector<RankLayout> layouts_;
};

// Describes what a window holds by what both ends know: the shard's number where it is held, offset and bytes.
using Contents = std::vector<std::tuple<uint32_t, uint64_t, uint64_t>>;

Contents ContentsOf(const SaveImage& image, const MovedWindow& window) {
  Contents contents;
  for (const MovedPiece& piece : window.pieces) {
    const uint32_t shard = window.send ? image.moved_out[piece.shard].shard : image.moved_in[piece.shard].from_shard;
    contents.emplace_back(shard, piece.offset, piece.bytes);
  }
  return contents;
}

TEST(MovedWindowsTest, CutMovedShards_LargeAndSmallShards_FillsWindowsInTheOrderOfTheHolder) {
  Images images(2);
  for (const uint64_t bytes : {250, 0, 30, 40}) images.Move(0, 1, bytes);
  const std::vector<MovedWindow> windows = CutMovedShards(images.Of(1), {0}, {100, 10});
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(ContentsOf(images.Of(1), windows[0]), (Contents{{0, 0, 100}}));
  EXPECT_EQ(ContentsOf(images.Of(1), windows[2]), (Contents{{0, 200, 50}, {2, 0, 30}, {3, 0, 20}}));
  EXPECT_EQ(ContentsOf(images.Of(1), windows[3]), (Contents{{3, 20, 20}}));
  EXPECT_EQ(windows[3].bytes, 20u);
  EXPECT_EQ(windows[3].window, 3u);
}

TEST(MovedWindowsTest, CutMovedShards_ManySmallShards_AreBoundedByTheirNumber) {
  Images images(2);
  for (int i = 0; i < 25; ++i) images.Move(0, 1, 1);
  const std::vector<MovedWindow> windows = CutMovedShards(images.Of(0), {1}, {1000, 10});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].pieces.size(), 10u);
  EXPECT_EQ(windows[2].pieces.size(), 5u);
}

TEST(MovedWindowsTest, CutMovedShards_RanksThatAreNoPeers_AreLeftOut) {
  Images images(3);
  images.Move(0, 1, 10);
  images.Move(0, 2, 10);
  const std::vector<MovedWindow> windows = CutMovedShards(images.Of(0), {2}, {100, 10});
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].peer, 2u);
  EXPECT_TRUE(windows[0].send);
  EXPECT_TRUE(CutMovedShards(images.Of(1), {2}, {100, 10}).empty());
}

std::vector<ExchangeStep> StepsOf(const std::vector<MovedWindow>& windows) {
  std::vector<ExchangeTransfer> transfers;
  for (size_t i = 0; i < windows.size(); ++i) {
    transfers.push_back({windows[i].peer, windows[i].send, 0, windows[i].window, windows[i].bytes, i});
  }
  return MakeSchedule(transfers);
}

// Makes random moves between random ranks, whose ends know their shards in any order. Both ends of a pair cut alike,
// all bytes go exactly once, and ranks that take their steps as NCCL takes group calls all come to their end.
TEST(MovedWindowsTest, CutMovedShards_RandomMoves_BothEndsAgreeAndNoCircleWaits) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t end) { return std::uniform_int_distribution<uint32_t>(0, end - 1)(random); };
    Images images(2 + below(5));
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> moved;
    for (uint32_t moves = below(60); moves > 0; --moves) {
      const uint32_t from = below(images.ranks());
      const uint32_t to = (from + 1 + below(images.ranks() - 1)) % images.ranks();
      const uint64_t bytes = below(4) == 0 ? below(5000) : below(40);
      images.Move(from, to, bytes);
      moved[{from, to}] += bytes;
    }
    images.Shuffle(random);
    const WindowCut cut = {1 + below(700), 1 + below(6)};
    std::vector<std::vector<MovedWindow>> windows;
    std::vector<std::vector<ExchangeStep>> steps;
    for (uint32_t rank = 0; rank < images.ranks(); ++rank) {
      std::set<uint32_t> peers;
      for (uint32_t peer = 0; peer < images.ranks(); ++peer) peers.insert(peer);
      windows.push_back(CutMovedShards(images.Of(rank), peers, cut));
      steps.push_back(StepsOf(windows.back()));
    }
    // Their key is (from, to, window).
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Contents> sent, received;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> bytes;
    for (uint32_t rank = 0; rank < images.ranks(); ++rank) {
      for (const MovedWindow& window : windows[rank]) {
        ASSERT_LE(window.bytes, cut.window_bytes);
        ASSERT_LE(window.pieces.size(), cut.pieces);
        auto& side = window.send ? sent : received;
        const auto key =
            window.send ? std::tuple(rank, window.peer, window.window) : std::tuple(window.peer, rank, window.window);
        ASSERT_TRUE(side.emplace(key, ContentsOf(images.Of(rank), window)).second);
        if (!window.send) bytes[{window.peer, rank}] += window.bytes;
      }
    }
    ASSERT_EQ(sent, received);
    std::erase_if(moved, [](const auto& pair) { return pair.second == 0; });
    ASSERT_EQ(bytes, moved);
    // A step ends when all its peers are in the step of the same window.
    std::vector<size_t> at(images.ranks());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (uint32_t rank = 0; rank < images.ranks(); ++rank) {
        if (at[rank] == steps[rank].size()) continue;
        const ExchangeStep& step = steps[rank][at[rank]];
        const bool all = std::all_of(step.transfers.begin(), step.transfers.end(), [&](const ExchangeTransfer& each) {
          const std::vector<ExchangeStep>& others = steps[each.peer];
          return at[each.peer] == others.size() || others[at[each.peer]].window >= step.window;
        });
        if (!all) continue;
        ++at[rank];
        goes_on = true;
      }
    }
    for (uint32_t rank = 0; rank < images.ranks(); ++rank) ASSERT_EQ(at[rank], steps[rank].size()) << rank;
  }
}

}  // namespace
}  // namespace cairn
