#include "corpus/bpe/whole_characters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "corpus/bpe/bpe_model.h"

namespace cairn::corpus {
namespace {

using Ids = std::vector<uint32_t>;

// A tokenizer of all bytes and merges, encoded as the definition of BPE says.
struct Bpe {
  std::vector<std::string> tokens;
  std::map<std::string, uint32_t> id_of;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> rank_of;

  Bpe() {
    for (int byte = 0; byte < 256; ++byte) IdOf(std::string(1, static_cast<char>(byte)));
  }
  uint32_t IdOf(const std::string& bytes) {
    const auto [it, is_new] = id_of.try_emplace(bytes, static_cast<uint32_t>(tokens.size()));
    if (is_new) tokens.push_back(bytes);
    return it->second;
  }
  void Merge(const std::string& left, const std::string& right, uint32_t rank) {
    rank_of.try_emplace({IdOf(left), IdOf(right)}, rank);
    IdOf(left + right);
  }
  Ids Encode(const std::string& word) const {
    Ids ids;
    for (const char c : word) ids.push_back(id_of.at(std::string(1, c)));
    for (;;) {
      size_t best = ids.size();
      uint32_t least = ~uint32_t{0};
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = rank_of.find({ids[i], ids[i + 1]});
        if (found == rank_of.end() || found->second >= least) continue;
        least = found->second;
        best = i;
      }
      if (best == ids.size()) return ids;
      ids[best] = id_of.at(tokens[ids[best]] + tokens[ids[best + 1]]);
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  }
  BpeModel Model() const {
    BpeModel model;
    for (uint32_t id = 0; id < tokens.size(); ++id) model.AddToken(tokens[id], id);
    for (const auto& [pair, rank] : rank_of) {
      model.AddMerge(pair.first, pair.second, rank, id_of.at(tokens[pair.first] + tokens[pair.second]));
    }
    model.Finish();
    return model;
  }
  WholeCharacters Characters() const {
    std::vector<absl::string_view> bytes_of(tokens.begin(), tokens.end());
    std::vector<MergeTable::Merge> merges;
    for (const auto& [pair, rank] : rank_of) {
      merges.push_back({pair.first, pair.second, rank, id_of.at(tokens[pair.first] + tokens[pair.second])});
    }
    uint32_t byte_ids[256];
    for (uint32_t byte = 0; byte < 256; ++byte) byte_ids[byte] = byte;
    const MergeTable table(merges, static_cast<uint32_t>(tokens.size()));
    return WholeCharacters(bytes_of, merges, table, byte_ids);
  }
};

Ids StartOf(const WholeCharacters& characters, const std::string& word) {
  Ids ids;
  characters.Start(word, ids);
  return ids;
}

TEST(WholeCharactersTest, MergesInsideOfACharacterOnly_TheWordBeginsWithIt) {
  Bpe bpe;
  bpe.Merge("\xE4", "\xB8", 0);
  bpe.Merge("\xE4\xB8", "\xAD", 1);
  const uint32_t whole = bpe.id_of.at("中");
  const WholeCharacters characters = bpe.Characters();
  EXPECT_EQ(StartOf(characters, "a中中"), (Ids{'a', whole, whole}));
  EXPECT_EQ(StartOf(characters, "中\xAD\xE4\xB8"), (Ids{0xE4, 0xB8, 0xAD, 0xAD, 0xE4, 0xB8})) << "no UTF-8";
}

TEST(WholeCharactersTest, AMergeAcrossItsBorderThatComesEarlier_OnlyBesideThatNeighbour) {
  Bpe bpe;
  bpe.Merge(" ", "\xE4", 0);
  bpe.Merge("\xAD", "!", 1);
  bpe.Merge("\xE4", "\xB8", 2);
  bpe.Merge("\xE4\xB8", "\xAD", 3);
  const uint32_t whole = bpe.id_of.at("中");
  const WholeCharacters characters = bpe.Characters();
  EXPECT_EQ(StartOf(characters, "中中"), (Ids{whole, whole}));
  EXPECT_EQ(StartOf(characters, " 中"), (Ids{' ', 0xE4, 0xB8, 0xAD}));
  EXPECT_EQ(StartOf(characters, "中!"), (Ids{0xE4, 0xB8, 0xAD, '!'}));
  EXPECT_EQ(StartOf(characters, "中?"), (Ids{whole, '?'}));
}

TEST(WholeCharactersTest, AMergeOfTheTokenThatComesEarlier_ItBeginsAsBytes) {
  Bpe bpe;
  bpe.Merge("中", "a", 0);
  bpe.Merge("\xE4", "\xB8", 1);
  bpe.Merge("\xE4\xB8", "\xAD", 2);
  EXPECT_TRUE(bpe.Characters().empty());
}

TEST(WholeCharactersTest, NoMergesOfTheCharacter_ItBeginsAsBytes) {
  Bpe bpe;
  bpe.Merge("\xE4", "\xB8", 0);
  bpe.IdOf("中");
  EXPECT_TRUE(bpe.Characters().empty());
}

// Characters that share bytes, so that merges across their borders are many. Of half of the tokenizers the merges come
// in any order, so that parts may be made later than what they are a part of.
TEST(WholeCharactersTest, RandomMergesAndWords_TheIdsAreThoseOfBytes) {
  std::mt19937_64 random(11);
  const std::vector<std::string> letters = {"a",  " ",  "é",  "è",  "ã",  "ü",  "中", "丰",   "串",   "丘",
                                            "ー", "ア", "ァ", "😀", "😁", "😤", "é",  "\xE4", "\xB8", "\xAD"};
  size_t whole = 0, bytes = 0;
  for (int round = 0; round < 400; ++round) {
    const auto text = [&](size_t most) {
      std::string made;
      for (size_t left = 1 + random() % most; left > 0; --left) made += letters[random() % letters.size()];
      return made;
    };
    Bpe bpe;
    const uint32_t count = 5 + static_cast<uint32_t>(random() % 120);
    std::vector<uint32_t> ranks(count);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t rank = round % 2 == 0 ? i : ranks[i];
      const std::string from = text(3);
      if (round % 3 == 0) {  // as a trainer does: of what stands in a text
        const Ids ids = bpe.Encode(from);
        if (ids.size() < 2) continue;
        const size_t at = random() % (ids.size() - 1);
        bpe.Merge(bpe.tokens[ids[at]], bpe.tokens[ids[at + 1]], rank);
      } else if (from.size() > 1) {
        const size_t cut = 1 + random() % (from.size() - 1);
        bpe.Merge(from.substr(0, cut), from.substr(cut), rank);
      }
    }
    if (round % 5 == 0) {  // as in files of tiktoken: all merges to a token have its rank
      for (auto& [pair, rank] : bpe.rank_of) rank = bpe.id_of.at(bpe.tokens[pair.first] + bpe.tokens[pair.second]);
    }
    const BpeModel model = bpe.Model();
    const WholeCharacters characters = bpe.Characters();
    BpeModel::Scratch scratch;
    for (int i = 0; i < 60; ++i) {
      const std::string word = text(i % 10 == 0 ? 60 : 8);
      Ids ids;
      model.Encode(word, scratch, ids);
      ASSERT_EQ(ids, bpe.Encode(word)) << "round " << round << ", word " << word;
      if (characters.empty()) continue;
      bytes += word.size();
      whole += word.size() - StartOf(characters, word).size();
    }
  }
  EXPECT_GT(whole, bytes / 20) << "few words began with characters, so little was tested";
}

}  // namespace
}  // namespace cairn::corpus
