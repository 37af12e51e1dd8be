#include "planner/load/object_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/digest.h"
#include "planner/layout/layout_description.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kWhole = 0, kInParts = 1, kIfThere = 2, kPlace = 3;

using Wishes = std::vector<ObjectDescription>;

Manifest Stored(const std::vector<std::string>& names) {
  Manifest manifest;
  for (const std::string& name : names) manifest.objects.emplace_back().name = name;
  return manifest;
}

// The layouts of ranks 0, 1, ..., which must be free of faults.
LayoutSet Target(const std::vector<Wishes>& ranks) {
  static std::vector<std::string>* const layouts = new std::vector<std::string>();
  layouts->clear();
  std::vector<std::string> digests;
  for (Wishes wishes : ranks) {
    for (ObjectDescription& wish : wishes) wish.slot_bytes = 4096;
    LayoutDescription layout;
    layout.objects = std::move(wishes);
    Canonicalize(layout);
    layouts->push_back(SerializeLayout(layout));
    digests.push_back(Digest(layouts->back()));
  }
  std::vector<RankInput> inputs;
  for (size_t i = 0; i < ranks.size(); ++i) {
    inputs.push_back({static_cast<int>(i), "node", (*layouts)[i], digests[i]});
  }
  FaultList faults;
  LayoutSet set(inputs, faults);
  EXPECT_TRUE(faults.ToStatus().ok()) << faults.ToStatus();
  return set;
}

TEST(MissingObjectsTest, Wishes_NothingIsStored_OnlyThoseThatNeedSomethingAreMissing) {
  const LayoutSet target = Target(
      {{{"a", 0, false, kWhole}, {"b", 0, false, kInParts}, {"c", 0, false, kIfThere}, {"d", 0, false, kPlace}}});
  EXPECT_THAT(MissingObjects(Stored({}), target), ElementsAre("a", "b"));
  EXPECT_THAT(MissingObjects(Stored({"a", "b"}), target), IsEmpty());
}

TEST(MissingObjectsTest, Wish_PartsAreStored_CountOnlyWhereTheWishTakesThem) {
  const LayoutSet target = Target({{{"a", 0, false, kWhole}, {"b", 0, false, kInParts}}});
  EXPECT_THAT(MissingObjects(Stored({"a.x", "b.x"}), target), ElementsAre("a"));
  // A tensor stands there, which is unexpected, and so the value is not missing as well.
  Manifest with_tensor = Stored({"a"});
  with_tensor.tensors.emplace_back().name = "b.x";
  EXPECT_THAT(MissingObjects(with_tensor, target), IsEmpty());
  // Another name that begins alike is no part.
  EXPECT_THAT(MissingObjects(Stored({"a", "b-x", "bb.x"}), target), ElementsAre("b"));
}

TEST(MissingObjectsTest, Wishes_RanksDiffer_TheStricterCounts) {
  const LayoutSet target = Target({{{"a", 0, false, kIfThere}}, {{"a", 0, false, kInParts}}});
  EXPECT_THAT(MissingObjects(Stored({}), target), ElementsAre("a"));
}

TEST(UnexpectedObjectsTest, Objects_InAPlace_AreUnexpectedUnlessAWishIsAboutThem) {
  const LayoutSet target = Target({{{"m", 0, false, kPlace},
                                    {"m.step", 0, false, kInParts},
                                    {"m.done", 0, false, kIfThere},
                                    {"m.deep.n", 0, false, kInParts}}});
  EXPECT_THAT(
      UnexpectedObjects(Stored({"m.step", "m.done.a.jsonl", "m.done", "m.deep", "m.more", "m2.x", "n"}), target),
      ElementsAre("m.more"));
}

TEST(UnexpectedObjectsTest, Objects_AnotherRankWantsThem_AreExpected) {
  const LayoutSet target =
      Target({{{"m", 0, false, kPlace}}, {{"m", 0, false, kPlace}, {"m.5.extra", 0, false, kInParts}}});
  EXPECT_THAT(UnexpectedObjects(Stored({"m.5.extra", "m.6.extra"}), target), ElementsAre("m.6.extra"));
}

TEST(UnexpectedObjectsTest, Objects_OfRanksThatAreGone_AreExpectedAndTheirNeighboursAreNot) {
  const LayoutSet target = Target({{{"m", 0, false, kPlace}, {"m.rank0", 0, false, kInParts}}});
  EXPECT_THAT(UnexpectedObjects(Stored({"m.rank0", "m.rank1", "m.dp_rank_1", "m.mean"}), target),
              ElementsAre("m.dp_rank_1", "m.mean"));
}

TEST(UnexpectedObjectsTest, Objects_TargetHasNoPlaces_AreNeverUnexpected) {
  const LayoutSet target = Target({{{"m.step", 0, false, kWhole}}});
  EXPECT_THAT(UnexpectedObjects(Stored({"m.step", "m.more", "n"}), target), IsEmpty());
}

}  // namespace
}  // namespace cairn
