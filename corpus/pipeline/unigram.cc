#include "corpus/pipeline/unigram.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_format.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least score of all tokens
constexpr uint32_t kNone = ~uint32_t{0};

class Unigram final : public WordModel {
 public:
  explicit Unigram(const UnigramRules& rules) : unknown_(rules.unknown), sentencepiece_(rules.sentencepiece) {
    double least = std::numeric_limits<double>::infinity();
    for (const UnigramRules::Token& token : rules.vocab) {
      const auto id = static_cast<uint32_t>(scores_.size());
      scores_.push_back(token.score);
      vocab_[token.text] = id;
      if (!token.matched) continue;
      trie_.Add(token.text, id);
      least = std::min(least, token.score);
    }
    unknown_score_ = Rounded(least - kUnknownPenalty);
    for (size_t byte = 0; byte < bytes_.size(); ++byte) {
      const auto it = vocab_.find(absl::StrFormat("<0x%02X>", byte));
      bytes_[byte] = rules.byte_fallback && it != vocab_.end() ? it->second : kNone;
    }
  }

  absl::Status Encode(std::string_view word, WordScratch& scratch, std::vector<uint32_t>& ids) const override {
    if (!FindBestPaths(word, scratch.paths)) return UnknownWord(word);
    // The path is followed from its end.
    std::vector<uint32_t>& reversed = scratch.ids;
    reversed.clear();
    for (size_t end = word.size(); end > 0;) {
      const WordScratch::BestPath& last = scratch.paths[end];
      size_t begin = last.begin;
      if (unknown_ && last.id == *unknown_) {
        while (begin > 0 && scratch.paths[begin].id == *unknown_) begin = scratch.paths[begin].begin;
        AddUnknown(word.substr(begin, end - begin), reversed);
      } else {
        reversed.push_back(last.id);
      }
      end = begin;
    }
    ids.insert(ids.end(), reversed.rbegin(), reversed.rend());
    return absl::OkStatus();
  }

  std::optional<uint32_t> IdOf(std::string_view token) const override {
    const auto it = vocab_.find(absl::string_view(token.data(), token.size()));
    if (it == vocab_.end()) return std::nullopt;
    return it->second;
  }

 private:
  // Fills paths[i] with the best way to the byte i. Returns false if a character is unknown and nothing stands for it.
  bool FindBestPaths(std::string_view word, std::vector<WordScratch::BestPath>& paths) const {
    paths.assign(word.size() + 1, {0, 0, 0, false});
    const auto take = [&](size_t begin, size_t end, double score, uint32_t id) {
      const double sum = Rounded(score + paths[begin].score);
      if (!paths[end].reached || sum > paths[end].score) paths[end] = {sum, begin, id, true};
    };
    for (size_t at = 0, next = 0; at < word.size(); at = next) {
      NextScalar(word, next);
      bool has_character = false;
      trie_.ForEachPrefix(word.substr(at), [&](size_t length, uint32_t id) {
        take(at, at + length, scores_[id], id);
        has_character = has_character || at + length == next;
      });
      if (has_character) continue;
      // With no unknown token, only a way to this character that is better than none matters.
      if (!unknown_) {
        if (!paths[next].reached || unknown_score_ + paths[at].score > paths[next].score) return false;
        continue;
      }
      take(at, next, unknown_score_, *unknown_);
    }
    return true;
  }

  double Rounded(double sum) const { return sentencepiece_ ? static_cast<double>(static_cast<float>(sum)) : sum; }

  // Appends the ids of unknown text in reverse order.
  void AddUnknown(std::string_view text, std::vector<uint32_t>& reversed) const {
    if (!sentencepiece_) {
      if (const std::optional<uint32_t> id = IdOf(text)) {
        reversed.push_back(*id);
        return;
      }
    }
    const auto id_of = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) != kNone; })) {
      for (auto c = text.rbegin(); c != text.rend(); ++c) reversed.push_back(id_of(*c));
    } else {
      reversed.push_back(*unknown_);
    }
  }

  std::vector<double> scores_;  // by id
  TokenMap vocab_;
  PieceTrie trie_;
  const std::optional<uint32_t> unknown_;
  const bool sentencepiece_;
  double unknown_score_ = 0;
  std::array<uint32_t, 256> bytes_;  // the ids of <0x00> .. <0xFF>; kNone for one that is no token
};

}  // namespace

std::unique_ptr<WordModel> UnigramModel(const UnigramRules& rules) { return std::make_unique<Unigram>(rules); }

}  // namespace cairn::corpus
