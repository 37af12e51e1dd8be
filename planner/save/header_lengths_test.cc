#include "planner/save/header_lengths.h"

#include <gtest/gtest.h>

#include "common/base/digest.h"
#include "common/format/safetensors_header.h"
#include "planner/testing/model.h"

namespace cairn::testing {
namespace {

TEST(HeaderLengthsTest, HeaderLengths_EveryShard_TakesWhatHeaderSizerSays) {
  size_t shards = 0;
  for (uint64_t seed = 1; seed < 200; ++seed) {
    Model model = MakeModel(seed, ~uint64_t{0});
    if (!model.tensors.empty()) model.tensors[0].name += "\"quoted\\name";
    std::vector<std::string> bytes, digests;
    for (const LayoutDescription& layout : MakeLayouts(model, seed)) {
      bytes.push_back(SerializeLayout(layout));
      digests.push_back(Digest(bytes.back()));
    }
    std::vector<RankInput> inputs;
    for (size_t r = 0; r < bytes.size(); ++r) inputs.push_back({static_cast<int>(r), "n", bytes[r], digests[r]});
    FaultList faults;
    const LayoutSet set(inputs, faults);
    ASSERT_TRUE(faults.empty());
    const HeaderLengths lengths(set);
    for (uint32_t shard = 0; shard < set.shard_count(); ++shard, ++shards) {
      HeaderSizer sizer;
      sizer.Add(set.ItemOf(shard));
      ASSERT_EQ(lengths.Of(shard), sizer.inner_bytes()) << set.Describe(shard);
    }
  }
  EXPECT_GT(shards, 2000u);
}

}  // namespace
}  // namespace cairn::testing
