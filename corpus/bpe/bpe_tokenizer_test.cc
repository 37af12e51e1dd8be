#include "corpus/bpe/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corpus/bpe/id_cache.h"

namespace cairn::corpus {
namespace {

using Ids = std::vector<uint32_t>;

// The words of a list, as IdCache::Encode takes them.
class ListedWords {
 public:
  explicit ListedWords(std::span<const std::string_view> words) : words_(words) {}

  bool Next(std::string_view& word) {
    if (words_.empty()) return false;
    word = words_.front();
    words_ = words_.subspan(1);
    return true;
  }

 private:
  std::span<const std::string_view> words_;
};

// What IdCache::Encode calls for words that it does not know. encode(word, ids) encodes one.
template <typename EncodeWord>
auto EachWord(EncodeWord encode) {
  return [encode](std::span<const std::string_view> words, EncodedWords& made) {
    for (const std::string_view word : words) {
      if (!encode(word, made.ids)) return false;
      made.ends.push_back(made.ids.size());
    }
    return true;
  };
}

// Random tokens and merges of characters with three bytes, and of parts of such characters.
struct RandomVocabulary {
  std::vector<std::string> tokens;                                                // by id; the first 256 are the bytes
  std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>> merges;  // to (rank, result)

  RandomVocabulary(std::mt19937_64& random, const std::string& letters, int count) {
    std::map<std::string, uint32_t> id_of;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
      id_of[tokens.back()] = static_cast<uint32_t>(byte);
    }
    std::vector<uint32_t> used;
    for (const char c : letters) used.push_back(static_cast<uint8_t>(c));
    for (uint32_t rank = 0; rank < static_cast<uint32_t>(count); ++rank) {
      const uint32_t left = used[random() % used.size()], right = used[random() % used.size()];
      const std::string bytes = tokens[left] + tokens[right];
      const bool occurs = (letters + letters).find(bytes) != std::string::npos || random() % 4 == 0;
      if (bytes.size() > 12 || merges.contains({left, right}) || !occurs) continue;
      const auto [it, fresh] = id_of.emplace(bytes, static_cast<uint32_t>(tokens.size()));
      if (fresh) {
        tokens.push_back(bytes);
        used.push_back(it->second);
      }
      merges[{left, right}] = {rank, it->second};
    }
  }

  BpeModel Model() const {
    BpeModel model;
    for (uint32_t id = 0; id < tokens.size(); ++id) model.AddToken(tokens[id], id);
    for (const auto& [pair, merge] : merges) model.AddMerge(pair.first, pair.second, merge.first, merge.second);
    return model;
  }

  // Encodes by the definition: it merges the leftmost pair of the lowest rank, again and again.
  Ids Encode(std::string_view word) const {
    Ids ids;
    for (const char c : word) ids.push_back(static_cast<uint8_t>(c));
    while (true) {
      size_t best = ids.size();
      uint32_t best_rank = BpeModel::kNone;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto it = merges.find({ids[i], ids[i + 1]});
        if (it != merges.end() && it->second.first < best_rank) best = i, best_rank = it->second.first;
      }
      if (best == ids.size()) return ids;
      ids[best] = merges.at({ids[best], ids[best + 1]}).second;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  }
};

TEST(BpeTokenizer, Encode_LongWordsCutIntoPieces_HaveTheIdsOfTheDefinition) {
  std::mt19937_64 random(1);
  const std::vector<std::string> characters = {"的", "是", "本", "あ", "한", "р", "x", "\U0001F600", "\x80", "\xE4"};
  const Pretokenizer whole = *Pretokenizer::Named("whitespace");
  size_t pieces = 0;
  for (int round = 0; round < 60; ++round) {
    std::string letters;
    for (int i = 0; i < 12; ++i) letters += characters[random() % characters.size()];
    const RandomVocabulary vocabulary(random, letters, 40 + static_cast<int>(random() % 400));
    const BpeTokenizer tokenizer({.model = vocabulary.Model(), .added = {}, .pretokenizer = whole});
    const auto encoder = tokenizer.NewEncoder();
    for (int i = 0; i < 40; ++i) {
      std::string word;
      for (size_t n = 1 + random() % 60; n > 0; --n) {
        word += random() % 3 == 0 ? letters : characters[random() % characters.size()];
      }
      word.resize(std::min<size_t>(word.size(), 1 + random() % 300));
      Ids ids;
      ASSERT_TRUE(encoder->Encode(word, ids).ok());
      ASSERT_EQ(ids, vocabulary.Encode(word)) << "round " << round << ", word " << i;
      for (size_t from = 0; from < word.size(); ++pieces) from = tokenizer.parts().model.PieceEnd(word, from);
    }
  }
  EXPECT_GT(pieces, 60u * 40 * 2) << "hardly any word was cut";
}

TEST(BpeTokenizer, Encode_WholeWordsAndUnknownBytes_AreNotCut) {
  const std::string word = "的的的的的的的的的的";
  for (const bool ignore_merges : {false, true}) {
    for (const int bytes : {255, 256}) {
      BpeModel model;
      for (int byte = 0; byte < bytes; ++byte) {
        model.AddToken(std::string(1, static_cast<char>(byte)), static_cast<uint32_t>(byte));
      }
      model.set_ignore_merges(ignore_merges);
      model.Finish();
      const bool can_cut = !ignore_merges && bytes == 256;
      EXPECT_EQ(model.PieceEnd(word, 0), can_cut ? 3 : word.size());
    }
  }
}

// A merge names ids, so it may join either token to what stands beside the other one.
TEST(BpeTokenizer, Encode_TokensThatShareAnId_AreNotCut) {
  for (const uint32_t second : {257u, 256u}) {
    BpeModel model;
    for (uint32_t byte = 0; byte < 256; ++byte) model.AddToken(std::string(1, static_cast<char>(byte)), byte);
    model.AddToken("的", 256);
    model.AddToken("是", second);
    model.Finish();
    EXPECT_EQ(model.PieceEnd("的是的是的是", 0), second == 256 ? 18 : 3);
  }
}

TEST(IdCache, Encode_RandomWords_MakesEachOnceAndKnowsItsIds) {
  std::mt19937_64 random(2);
  const WholeWords none;
  IdCache cache(none);
  std::map<std::string, Ids> made;
  for (int round = 0; round < 5'000; ++round) {
    std::string text;
    std::vector<size_t> ends;
    for (size_t count = random() % 70; count > 0; --count) {
      // The words differ in few places. Their lengths are around the longest ones that fit the keys.
      std::string word(1 + random() % 40, 'a');
      for (int changes = 0; changes < 2; ++changes)
        word[random() % word.size()] = static_cast<char>('a' + random() % 3);
      if (random() % 500 == 0) word.resize(200 + random() % 100, 'b');
      ends.push_back((text += word).size());
    }
    std::vector<std::string_view> words;
    for (size_t begin = 0; const size_t end : ends) {
      words.push_back(std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
    Ids ids = {7}, expected = {7};
    const auto encode = EachWord([&](std::string_view word, Ids& word_ids) {
      const auto [it, is_new] = made.try_emplace(std::string(word));
      EXPECT_TRUE(is_new || word.size() > IdCache::kMaxWordBytes) << word;
      if (is_new) {
        it->second.resize(random() % std::min<size_t>(word.size() + 1, 12));
        for (uint32_t& id : it->second) id = static_cast<uint32_t>(random());
      }
      word_ids.insert(word_ids.end(), it->second.begin(), it->second.end());
      return true;
    });
    ASSERT_TRUE(cache.Encode(ListedWords(words), text.data() + text.size(), ids, encode));
    for (const std::string_view word : words) {
      const Ids& known = made[std::string(word)];
      expected.insert(expected.end(), known.begin(), known.end());
    }
    ASSERT_EQ(ids, expected);
  }
}

TEST(IdCache, Encode_AWordFails_LeavesTheRestOut) {
  const WholeWords none;
  IdCache cache(none);
  Ids ids;
  const std::vector<std::string_view> words = {"a", "b", "c"};
  const auto encode = EachWord([&](std::string_view word, Ids& word_ids) {
    word_ids.push_back(static_cast<uint32_t>(word[0]));
    return word != "b";
  });
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(cache.Encode(ListedWords(words), nullptr, ids, encode));
    EXPECT_EQ(ids, (Ids{'a'}));
    ids.clear();
  }
}

TEST(IdCache, Encode_ManyWords_ForgetsAndStaysRight) {
  const WholeWords none;
  IdCache cache(none);
  uint32_t made = 0;
  const auto number = [](std::string_view word) { return static_cast<uint32_t>(std::stoul(std::string(word))); };
  // There are more words than the cache keeps, and each comes again after some time.
  for (uint32_t round = 0; round < 900'000; round += 50) {
    std::string text;
    std::vector<std::string_view> words;
    Ids expected;
    for (uint32_t i = 0; i < 50; ++i) expected.push_back(round + i);
    for (uint32_t i = 0; i < 50; ++i) expected.push_back(round / 2 + i);
    for (const uint32_t n : expected) text += std::to_string(1'000'000 + n);
    for (size_t i = 0; i < expected.size(); ++i) words.push_back(std::string_view(text).substr(7 * i, 7));
    Ids ids;
    const auto encode = EachWord([&](std::string_view word, Ids& word_ids) {
      ++made;
      word_ids.push_back(number(word) - 1'000'000);
      return true;
    });
    ASSERT_TRUE(cache.Encode(ListedWords(words), text.data() + text.size(), ids, encode));
    ASSERT_EQ(ids, expected);
  }
  EXPECT_GT(made, 900'000u);
  EXPECT_LT(made, 1'800'000u);
}

TEST(WholeWords, Find_TokensThatAreWords_AreThereAndNoOthers) {
  WholeWords whole;
  std::map<std::string, uint32_t> added;
  std::mt19937_64 random(3);
  for (uint32_t id = 0; id < 20'000; ++id) {
    std::string word(1 + random() % 35, 'a');
    for (char& c : word) c = static_cast<char>('a' + random() % 2);
    if (added.try_emplace(word, id).second) whole.Add(word, id);
  }
  IdCache cache(whole);
  for (const auto& [word, id] : added) {
    for (const std::string& text : {word, word + "c"}) {
      Ids ids;
      const std::vector<std::string_view> words = {text};
      const auto encode = EachWord([](std::string_view, Ids& word_ids) {
        word_ids.push_back(~uint32_t{0});
        return true;
      });
      cache.Encode(ListedWords(words), text.data() + text.size(), ids, encode);
      EXPECT_EQ(ids, (Ids{text == word && word.size() <= 31 ? id : ~uint32_t{0}})) << text;
    }
  }
}

}  // namespace
}  // namespace cairn::corpus
