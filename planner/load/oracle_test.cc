// Compares validation with an oracle that knows nothing of boxes: it counts, element by element, how many distinct
// shards hold each element of a tensor. One tensor may mix boxes and flat ranges; some sets tile it, some do not.
// CAIRN_ORACLE_CASES sets how many cases (default 4000), CAIRN_ORACLE_SEED the first seed.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "planner/save/save_plan.h"
#include "planner/testing/model.h"
#include "planner/testing/seeds.h"

namespace cairn::testing {
namespace {

// Calls each(element number in the tensor) for every element of a shard, by counting through its box.
template <typename Each>
void ForEachElement(const ShardDescription& shard, const Shape& global, Each each) {
  int64_t size = 1;
  for (int64_t extent : shard.box.shape) size *= extent;
  for (int64_t flat = 0; flat < size; ++flat) {
    if (shard.flat && (flat < shard.flat->begin || flat >= shard.flat->end)) continue;
    int64_t rest = flat, element = 0, scale = 1;
    for (size_t d = global.size(); d-- > 0;) {
      element += (shard.box.offset[d] + rest % shard.box.shape[d]) * scale;
      rest /= shard.box.shape[d];
      scale *= global[d];
    }
    each(static_cast<size_t>(element));
  }
}

struct Case {
  Shape shape;
  std::vector<std::vector<ShardDescription>> ranks;
};

void Shatter(Random& random, const Box& box, int depth, std::vector<Box>& out) {
  for (size_t tries = 0; depth > 0 && tries < 3 && box.ndim() > 0; ++tries) {
    const auto axis = static_cast<size_t>(Below(random, static_cast<int64_t>(box.ndim())));
    if (box.shape[axis] < 2) continue;
    const int64_t cut = 1 + Below(random, box.shape[axis] - 1);
    Box low = box, high = box;
    low.shape[axis] = cut;
    high.offset[axis] += cut;
    high.shape[axis] -= cut;
    Shatter(random, low, depth - 1, out);
    Shatter(random, high, depth - 1, out);
    return;
  }
  out.push_back(box);
}

Case MakeCase(uint64_t seed) {
  Random random(seed);
  Case made;
  const int64_t ndim = Below(random, 4);
  for (int64_t d = 0; d < ndim; ++d) made.shape.push_back(1 + Below(random, ndim == 1 ? 30 : ndim == 2 ? 9 : 5));
  std::vector<Box> boxes;
  Shatter(random, WholeBox(made.shape), static_cast<int>(Below(random, 4)), boxes);
  std::vector<ShardDescription> shards;
  for (const Box& box : boxes) {
    if (Below(random, 2) == 0) {
      shards.push_back({box, std::nullopt});
      continue;
    }
    // The box is cut into flat pieces, which are uneven and sometimes empty.
    int64_t begin = 0;
    while (begin < box.size()) {
      const int64_t end = std::min(box.size(), begin + Below(random, box.size() + 1));
      shards.push_back({box, FlatRange{begin, end}});
      begin = end;
    }
  }
  // Half of the cases are spoilt: a shard is lost, doubled under another cut, shifted, grown or shrunk.
  for (int64_t faults = Below(random, 2) * (1 + Below(random, 2)); faults > 0 && !shards.empty(); --faults) {
    const auto at = static_cast<size_t>(Below(random, static_cast<int64_t>(shards.size())));
    ShardDescription& shard = shards[at];
    switch (Below(random, 4)) {
      case 0:
        shards.erase(shards.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1: {
        Box part = shard.box;
        for (size_t d = 0; d < part.ndim(); ++d) {
          const int64_t cut = Below(random, part.shape[d]);
          part.offset[d] += cut;
          part.shape[d] -= cut;
        }
        shards.push_back({part, std::nullopt});
        break;
      }
      case 2:
        if (shard.flat && shard.flat->size() > 0) {
          (Below(random, 2) == 0 ? shard.flat->begin : shard.flat->end) += Below(random, 2) == 0 ? 1 : -1;
          shard.flat->begin = std::clamp<int64_t>(shard.flat->begin, 0, shard.box.size());
          shard.flat->end = std::clamp<int64_t>(shard.flat->end, shard.flat->begin, shard.box.size());
        }
        break;
      default:
        for (size_t d = 0; d < made.shape.size(); ++d) {
          const int64_t room = made.shape[d] - shard.box.shape[d];
          if (!shard.flat && room > 0) shard.box.offset[d] = Below(random, room + 1);
        }
    }
  }
  made.ranks.resize(static_cast<size_t>(1 + Below(random, 4)));
  for (const ShardDescription& shard : shards) {
    const int64_t holders = 1 + Below(random, 2);
    std::set<size_t> ranks;
    for (int64_t i = 0; i < holders; ++i) {
      ranks.insert(static_cast<size_t>(Below(random, static_cast<int64_t>(made.ranks.size()))));
    }
    for (size_t rank : ranks) made.ranks[rank].push_back(shard);
  }
  return made;
}

int HoldersOf(const Case& test, const ShardDescription& shard) {
  int holders = 0;
  for (const auto& shards : test.ranks) holders += std::find(shards.begin(), shards.end(), shard) != shards.end();
  return holders;
}

bool Tiles(const Case& test) {
  std::vector<ShardDescription> distinct;
  size_t elements = 1;
  for (int64_t extent : test.shape) elements *= static_cast<size_t>(extent);
  std::vector<int> count(elements, 0);
  for (const auto& shards : test.ranks) {
    for (const ShardDescription& shard : shards) {
      if (std::find(distinct.begin(), distinct.end(), shard) == distinct.end()) distinct.push_back(shard);
    }
  }
  for (const ShardDescription& shard : distinct) {
    ForEachElement(shard, test.shape, [&](size_t element) { ++count[element]; });
  }
  return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
}

// Returns a text that is empty if the planner says what the oracle counts. `planned` is given to the planner instead of
// `test`.
std::string Check(const Case& test, const Case* planned = nullptr) {
  size_t elements = 1;
  for (int64_t extent : test.shape) elements *= static_cast<size_t>(extent);
  // Replicas count as one shard: what matters is how many different shards hold an element.
  std::vector<ShardDescription> distinct;
  std::vector<LayoutDescription> layouts;
  std::vector<std::string> bytes, digests;
  for (const auto& shards : (planned == nullptr ? test : *planned).ranks) {
    LayoutDescription& layout = layouts.emplace_back();
    if (!shards.empty()) layout.tensors.push_back({"w", DType::kFloat32, test.shape, shards});
    layout.objects.push_back({"o", 4096, false});
    Canonicalize(layout);
    for (TensorDescription& tensor : layout.tensors) {
      tensor.shards.erase(std::unique(tensor.shards.begin(), tensor.shards.end()), tensor.shards.end());
    }
    bytes.push_back(SerializeLayout(layout));
    digests.push_back(Digest(bytes.back()));
  }
  for (const auto& shards : test.ranks) {
    for (const ShardDescription& shard : shards) {
      if (std::find(distinct.begin(), distinct.end(), shard) == distinct.end()) distinct.push_back(shard);
    }
  }
  if (distinct.empty()) return "";  // no rank declares the tensor
  std::vector<int> count(elements, 0);
  for (const ShardDescription& shard : distinct) {
    ForEachElement(shard, test.shape, [&](size_t element) { ++count[element]; });
  }
  std::vector<RankInput> inputs;
  for (size_t r = 0; r < bytes.size(); ++r) inputs.push_back({static_cast<int>(r), "", bytes[r], digests[r]});
  FaultList faults;
  const auto plan = MakeSavePlan(inputs, SaveOptions(), faults);
  const bool tiles = std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
  if (plan.ok() != tiles) {
    return absl::StrCat("the oracle says it ", tiles ? "tiles" : "does not tile",
                        ", the planner: ", plan.ok() ? "OK" : plan.status().ToString());
  }
  if (plan.ok()) return "";
  // Each fault's region is wrong everywhere, in the way that the fault says. Together the regions are all that is
  // wrong, unless faults were capped.
  std::vector<bool> told(elements, false);
  for (const Fault& fault : faults.faults()) {
    const bool gap = fault.reason == Reason::kShardGap;
    if (!gap && fault.reason != Reason::kShardOverlap) return absl::StrCat("another fault: ", fault.message);
    const ShardDescription region{
        {Shape(fault.offset.begin(), fault.offset.end()), Shape(fault.shape.begin(), fault.shape.end())}, std::nullopt};
    std::string wrong;
    ForEachElement(region, test.shape, [&](size_t element) {
      told[element] = true;
      if (gap ? count[element] != 0 : count[element] < 2) wrong = fault.message;
    });
    if (!wrong.empty()) return absl::StrCat("an element that is fine is told as: ", wrong);
  }
  for (size_t element = 0; element < elements && faults.total() < 16; ++element) {
    if (count[element] != 1 && !told[element]) {
      return absl::StrCat("element ", element, " is held ", count[element], " times and no fault says so");
    }
  }
  return "";
}

TEST(ValidationOracleTest, Validation_BoxesAndFlatRangesMixed_AsCountedElementByElement) {
  const uint64_t first = FromEnvironment("CAIRN_ORACLE_SEED", 1);
  const uint64_t cases = FromEnvironment("CAIRN_ORACLE_CASES", 4000);
  uint64_t mixed = 0;
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    const Case test = MakeCase(seed);
    ASSERT_EQ(Check(test), "") << "shape " << ShapeToString(test.shape) << "\nreplay: CAIRN_ORACLE_SEED=" << seed
                               << " CAIRN_ORACLE_CASES=1";
    bool box = false, flat = false;
    for (const auto& shards : test.ranks) {
      for (const ShardDescription& shard : shards) (shard.flat ? flat : box) = true;
    }
    mixed += box && flat ? 1 : 0;
  }
  EXPECT_TRUE(cases < 1000 || mixed > cases / 10) << mixed;
}

// This is the control: if a layout loses one element between the oracle and the planner, the test must notice.
TEST(ValidationOracleTest, Validation_PlantedFault_IsCaught) {
  int planted = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const Case test = MakeCase(seed);
    Case other = test;
    bool lost = false;
    for (auto& shards : other.ranks) {
      for (ShardDescription& shard : shards) {
        // A gap appears only if one rank alone holds the flat piece.
        if (lost || !shard.flat || shard.flat->size() == 0 || HoldersOf(test, shard) != 1) continue;
        ++shard.flat->begin;
        lost = true;
      }
    }
    if (!lost) continue;
    // Only a case that was whole must be noticed: one that did not tile may fail at the same elements either way.
    if (Check(test) != "" || !Tiles(test)) continue;
    ++planted;
    EXPECT_NE(Check(test, &other), "") << "seed " << seed;
  }
  EXPECT_GT(planted, 20);
}

}  // namespace
}  // namespace cairn::testing
