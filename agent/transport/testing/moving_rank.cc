#include "agent/transport/testing/moving_rank.h"

#include <cstring>
#include <future>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/testing/far_gate.h"
#include "agent/transport/testing/need.h"

namespace cairn::testing {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);

StoredItem ItemOf(uint64_t bytes) {
  StoredItem item;
  item.dtype = DType::kUint8;
  item.global_shape = item.box.shape = {static_cast<int64_t>(bytes)};
  item.box.offset = {0};
  return item;
}

}  // namespace

// Plays the host transport: it knows what every rank holds.
class MovingRank::Host final : public ShardSource {
 public:
  explicit Host(MovingRank& rank) : rank_(rank) {}
  absl::Status Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) override {
    std::memcpy(to, rank_.Expected(index).data() + offset, bytes);
    MutexLock lock(rank_.mutex_);
    ++rank_.host_fetches_;
    return absl::OkStatus();
  }
  void Stop() override {}
  std::vector<uint32_t> waiting_for() override { return {}; }
  std::string transport() override { return rank_.host_fetches() > 0 ? "grpc" : ""; }

 private:
  MovingRank& rank_;
};

MovingRank::MovingRank(uint32_t rank, std::shared_ptr<GroupWorker> group, const std::vector<Moving>& moves,
                       std::shared_ptr<RoundGate> gate, MovedExchangeOptions options)
    : rank_(rank), group_(std::move(group)) {
  auto layout = std::make_shared<RankLayout>();
  auto image = std::make_shared<SaveImage>();
  image->rank = rank;
  std::vector<uint32_t> shards(group_->ranks.size());  // of each rank, counted
  uint64_t end = 100 * (rank + 1);
  for (const Moving& move : moves) {
    const uint32_t shard = shards[move.from]++;
    if (move.from == rank) {
      layout->items.push_back(ItemOf(move.bytes));
      image->slab_offset.push_back(end);
      image->moved_out.push_back({shard, move.to});
      end += move.bytes;
    }
    if (move.to == rank) image->moved_in.push_back({move.from, shard, ItemOf(move.bytes)});
  }
  for (const MovedIn& moved : image->moved_in) {
    place_.push_back(end);
    end += moved.item.bytes();
  }
  image->layout = layout;
  image_ = image;
  slab_ = Need(pool_.Make("slab", end));
  std::memset(slab_->data(), 0, slab_->bytes());
  for (const MovedOut& moved : image->moved_out) {
    const std::string bytes = Expected(rank, moved.shard, layout->items[moved.shard].bytes());
    std::memcpy(slab_->data() + image->slab_offset[moved.shard], bytes.data(), bytes.size());
  }
  options.rank = rank;
  std::set<uint32_t> sources;
  for (const Moving& move : moves) {
    if (move.from == rank) options.peers.insert(move.to);
    if (move.to == rank) options.peers.insert(move.from);
    if (move.to == rank) sources.insert(move.from);
  }
  const auto on_break = [this](const absl::Status& why) {
    {
      MutexLock lock(mutex_);
      broken_ = why;
    }
    worker().Cancel();
  };
  options.on_break = on_break;
  ExchangedShardsOptions shards_options;
  shards_options.exchanged.assign(image->moved_in.size(), true);
  shards_options.sources.assign(sources.begin(), sources.end());
  shards_options.give_up = [on_break](uint64_t, const absl::Status& why) { on_break(why); };
  shards_options.make = [this, gate, options](uint64_t) {
    MovedExchange::Places places;
    for (const uint64_t place : place_) places.at.push_back(slab_->data() + place);
    return std::make_shared<MovedExchange>(group_, image_, image_, slab_, std::move(places),
                                           std::make_unique<RoundPace>(rank_, std::make_unique<FarGate>(rank_, gate)),
                                           pool_, options);
  };
  shards_ = std::make_unique<ExchangedShards>(std::make_unique<Host>(*this), std::move(shards_options));
}

MovingRank::~MovingRank() {
  shards_->Stop();
  shards_->AwaitEnd();
}

std::string MovingRank::Expected(uint32_t from, uint32_t shard, uint64_t bytes) {
  std::string expected(bytes, '\0');
  std::mt19937 random(1000 * from + shard);
  for (char& byte : expected) byte = static_cast<char>(random());
  return expected;
}

std::string MovingRank::Expected(size_t index) const {
  const MovedIn& moved = image_->moved_in[index];
  return Expected(moved.from_rank, moved.from_shard, moved.item.bytes());
}

absl::Status MovingRank::Fetch(size_t index, std::string* elsewhere) {
  if (elsewhere != nullptr) elsewhere->assign(bytes(index), '\0');
  return shards_->Fetch(index, 0, bytes(index),
                        elsewhere != nullptr ? elsewhere->data() : slab_->data() + place_[index]);
}

std::string MovingRank::Standing(size_t index) const { return {slab_->data() + place_[index], bytes(index)}; }

absl::Status MovingRank::broken() {
  MutexLock lock(mutex_);
  return broken_;
}

int MovingRank::host_fetches() {
  MutexLock lock(mutex_);
  return host_fetches_;
}

std::vector<std::shared_ptr<GroupWorker>> JoinWorkers(uint32_t count, const WorkerProcessOptions& options) {
  std::vector<std::shared_ptr<GroupWorker>> groups;
  for (uint32_t rank = 0; rank < count; ++rank) {
    groups.push_back(std::make_shared<GroupWorker>());
    groups.back()->number = 7;
    for (uint32_t each = 0; each < count; ++each) groups.back()->ranks.push_back(each);
    groups.back()->worker = Need(WorkerProcess::Start(options));
  }
  const std::string id = Need(groups.front()->worker->MakeUniqueId(kLimit));
  std::vector<std::future<uint64_t>> joining;
  joining.reserve(count);
  for (uint32_t rank = 0; rank < count; ++rank) {
    joining.push_back(std::async(std::launch::async, [&, rank] {
      worker::Join join;
      join.set_rank(rank);
      join.set_ranks(count);
      join.set_unique_id(id);
      return Need(groups[rank]->worker->Join(join, kLimit));
    }));
  }
  for (auto& joined : joining) joined.get();
  return groups;
}

}  // namespace cairn::testing
