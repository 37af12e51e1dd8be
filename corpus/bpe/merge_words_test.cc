#include "corpus/bpe/merge_words.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace cairn::corpus {
namespace {

using Ids = std::vector<uint32_t>;
using Pairs = std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>>;  // to (rank, result)

// Merges one pair after the other, each found by a look at all.
Ids Merged(const Pairs& pairs, Ids ids) {
  for (;;) {
    size_t best = ids.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = pairs.find({ids[i], ids[i + 1]});
      if (found == pairs.end()) continue;
      if (best == ids.size() || found->second.first < pairs.at({ids[best], ids[best + 1]}).first) best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = pairs.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

void Put(const MergeTable& table, const Ids& ids, ShortWord& word) {
  word.count = ids.size();
  std::copy(ids.begin(), ids.end(), word.ids + 1);
  for (size_t i = 1; i < word.count; ++i) word.merges[i] = table.Find(word.ids[i], word.ids[i + 1]);
  word.Start(table);
}

// Few ids, so that pairs merge again and again, and several merges have the same result and the same pair at hand.
TEST(MergeWords, AllThatThisProcessorHas_RandomWords_GiveWhatOneMergeAfterTheOtherGives) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const uint32_t most_id = 3 + static_cast<uint32_t>(random() % 60);
    const auto id = [&] { return static_cast<uint32_t>(random() % (most_id + 1)); };
    Pairs pairs;
    std::vector<MergeTable::Merge> merges;
    for (uint32_t rank = 0; rank < most_id * 3; ++rank) pairs[{id(), id()}] = {rank, id()};
    for (const auto& [pair, merge] : pairs) merges.push_back({pair.first, pair.second, merge.first, merge.second});
    const MergeTable table(merges, most_id);
    ASSERT_FALSE(table.empty());
    for (const size_t together : {1, 2, 7, 16}) {
      std::vector<Ids> texts(together);
      for (Ids& ids : texts) {
        ids.resize(random() % (round % 2 == 0 ? 12 : ShortWord::kMost + 1));
        for (uint32_t& at : ids) at = id();
      }
      for (const MergeWords merge_words : MergeWordsHere()) {
        std::vector<ShortWord> words(together);
        std::vector<ShortWord*> all;
        for (size_t i = 0; i < together; ++i) {
          Put(table, texts[i], words[i]);
          all.push_back(&words[i]);
        }
        merge_words(table, all);
        for (size_t i = 0; i < together; ++i) {
          Ids ids;
          words[i].Append(ids);
          ASSERT_EQ(ids, Merged(pairs, texts[i])) << "word " << i << " of " << together << ", round " << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cairn::corpus
