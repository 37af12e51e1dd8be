#include "corpus/bpe/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <span>

#include "common/base/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/id_cache.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

constexpr size_t kEnds = 512;
constexpr size_t kBatch = 16;

const uint8_t* Bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

Character CharacterAt(std::string_view text, size_t position) {
  return DecodeCharacter(Bytes(text) + position, Bytes(text) + text.size());
}

size_t CharacterBefore(std::string_view text, size_t position) {
  size_t start = position - 1;
  while (start > 0 && position - start < 4 && IsUtf8Continuation(Bytes(text)[start])) --start;
  return start;
}

bool IsWordCharacter(const Character& character) {
  return (character.char_class & (kLetter | kNumber | kMark)) || character.code_point == '_';
}

}  // namespace

class BpeEncoder final : public Encoder {
 public:
  explicit BpeEncoder(const BpeTokenizer& tokenizer)
      : tokenizer_(tokenizer), splitter_(tokenizer.parts_.pretokenizer) {}

  absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) override {
    const size_t before = ids.size();
    const absl::Status status = EncodeAround(tokenizer_.first_, text, ids, [&](std::string_view piece) {
      return EncodeAround(tokenizer_.second_, piece, ids,
                          [&](std::string_view words) { return EncodePiece(words, ids); });
    });
    if (!status.ok()) ids.resize(before);
    return status;
  }

 private:
  // Matches a group of added tokens, and hands what stands between them to `piece`.
  template <typename Piece>
  absl::Status EncodeAround(const BpeTokenizer::Group& group, std::string_view text, std::vector<uint32_t>& ids,
                            Piece&& piece) {
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      const SpecialMatcher::Match match = group.matcher.Find(text, from);
      if (!match.found()) break;
      from = match.end;
      const AddedToken& token = group.tokens[match.token];
      size_t begin = match.begin, end = match.end;
      if (token.single_word) {
        const bool free_before = begin == 0 || !IsWordCharacter(CharacterAt(text, CharacterBefore(text, begin)));
        const bool free_behind = end == text.size() || !IsWordCharacter(CharacterAt(text, end));
        if (!free_before || !free_behind) continue;
      }
      while (token.lstrip && begin > done) {
        const size_t start = CharacterBefore(text, begin);
        if (!(CharacterAt(text, start).char_class & kSpace)) break;
        begin = std::max(start, done);
      }
      while (token.rstrip && end < text.size() && (CharacterAt(text, end).char_class & kSpace)) {
        end += CharacterAt(text, end).length;
      }
      if (begin > done) CAIRN_RETURN_IF_ERROR(piece(text.substr(done, begin - done)));
      ids.push_back(token.id);
      done = end;
      from = std::max(from, end);
    }
    if (done < text.size()) return piece(text.substr(done));
    return absl::OkStatus();
  }

  absl::Status EncodePiece(std::string_view piece, std::vector<uint32_t>& ids) {
    if (tokenizer_.parts_.add_prefix_space && piece[0] != ' ') {
      prefixed_.assign(1, ' ');
      prefixed_.append(piece);
      piece = prefixed_;
    }
    for (size_t from = 0; from < piece.size();) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, splitter_.Split(piece, from, ends_));
      EncodeWords(piece, from, std::span(ends_).first(count), ids);
      from = ends_[count - 1];
    }
    return absl::OkStatus();
  }

  void EncodeWords(std::string_view piece, size_t begin, std::span<const uint32_t> ends, std::vector<uint32_t>& ids) {
    WordKey keys[kBatch];
    uint64_t hashes[kBatch];
    std::string_view words[kBatch];
    const char* const limit = piece.data() + piece.size();
    for (size_t at = 0; at < ends.size();) {
      const size_t count = std::min(kBatch, ends.size() - at);
      for (size_t i = 0; i < count; ++i) {
        words[i] = piece.substr(begin, ends[at + i] - begin);
        begin = ends[at + i];
        keys[i] = MakeWordKey(words[i].data(), words[i].size(), limit);
        hashes[i] = HashKey(keys[i]);
        cache_.Prefetch(hashes[i]);
      }
      for (size_t i = 0; i < count; ++i) {
        if (cache_.Find(keys[i], hashes[i], words[i], ids)) continue;
        const size_t old = ids.size();
        tokenizer_.parts_.model.Encode(words[i], scratch_, ids);
        cache_.Add(keys[i], hashes[i], words[i], ids.data() + old, ids.size() - old);
      }
      at += count;
    }
  }

  const BpeTokenizer& tokenizer_;
  Splitter splitter_;
  IdCache cache_;
  BpeModel::Scratch scratch_;
  std::array<uint32_t, kEnds> ends_;
  std::string prefixed_;
};

BpeTokenizer::BpeTokenizer(Parts parts) : parts_(std::move(parts)) {
  for (const AddedToken& token : parts_.added) (token.normalized ? second_ : first_).tokens.push_back(token);
  for (Group* group : {&first_, &second_}) {
    std::vector<std::string> contents;
    for (const AddedToken& token : group->tokens) contents.push_back(token.content);
    group->matcher = SpecialMatcher(contents);
  }
}

std::unique_ptr<Encoder> BpeTokenizer::NewEncoder() const { return std::make_unique<BpeEncoder>(*this); }

std::optional<uint32_t> BpeTokenizer::IdOf(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  const auto bytes = FromByteLevel(token);
  if (!bytes.has_value()) return std::nullopt;
  return parts_.model.Find(*bytes);
}

}  // namespace cairn::corpus
