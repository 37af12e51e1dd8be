#include "corpus/bpe/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <span>

#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/id_cache.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

constexpr size_t kEnds = 512;
constexpr size_t kBatch = 32;

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
  // Matches a group of added tokens, and passes the text between them to `piece`.
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
      // As in Hugging Face, the search goes on behind the token itself: the next token may begin in the white space
      // that rstrip took, and what follows that token is then text again.
      done = end;
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

  // Encodes words. Long ones are cut into pieces that merges cannot join.
  void EncodeWords(std::string_view piece, size_t begin, std::span<const uint32_t> ends, std::vector<uint32_t>& ids) {
    words_.clear();
    for (const uint32_t end : ends) {
      std::string_view word = piece.substr(begin, end - begin);
      begin = end;
      if (word.size() > WordKey::kInlineBytes) {
        for (size_t from = 0; from < word.size();) {
          const size_t until = tokenizer_.parts_.model.PieceEnd(word, from);
          words_.push_back(word.substr(from, until - from));
          from = until;
        }
      } else {
        words_.push_back(word);
      }
    }
    LookUp(words_, piece.data() + piece.size(), ids);
  }

  // Looks words up in batches, so that the waits for memory overlap. Memory up to `limit` may be read.
  void LookUp(std::span<const std::string_view> words, const char* limit, std::vector<uint32_t>& ids) {
    WordKey keys[kBatch];
    uint64_t hashes[kBatch];
    uint32_t entries[kBatch];
    for (; !words.empty(); words = words.subspan(std::min(kBatch, words.size()))) {
      const size_t count = std::min(kBatch, words.size());
      for (size_t i = 0; i < count; ++i) {
        keys[i] = MakeWordKey(words[i].data(), words[i].size(), limit);
        hashes[i] = HashKey(keys[i]);
        cache_.AskForSlot(hashes[i]);
      }
      for (size_t i = 0; i < count; ++i) entries[i] = cache_.AskForEntry(hashes[i]);
      for (size_t i = 0; i < count; ++i) {
        if (cache_.Find(keys[i], hashes[i], words[i], entries[i], ids)) continue;
        const size_t old = ids.size();
        tokenizer_.parts_.model.Encode(words[i], scratch_, ids);
        cache_.Add(keys[i], hashes[i], words[i], ids.data() + old, ids.size() - old);
      }
    }
  }

  const BpeTokenizer& tokenizer_;
  Splitter splitter_;
  IdCache cache_;
  BpeModel::Scratch scratch_;
  std::array<uint32_t, kEnds> ends_;
  std::vector<std::string_view> words_;
  std::string prefixed_;
};

BpeTokenizer::BpeTokenizer(Parts parts) : parts_(std::move(parts)) {
  parts_.model.Finish();
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
