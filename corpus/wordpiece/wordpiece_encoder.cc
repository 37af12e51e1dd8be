#include "corpus/wordpiece/wordpiece_encoder.h"

#include <simdjson.h>

#include <bit>
#include <cstring>

#include "common/status/reason.h"
#include "corpus/unicode/utf8.h"
#include "corpus/wordpiece/delimiter_mask.h"

namespace cairn::corpus {
namespace {

constexpr std::string_view kCapitalSigma = "\xCE\xA3";

}  // namespace

WordPieceEncoder::WordPieceEncoder(const WordPieceTokenizer& tokenizer)
    : tokenizer_(tokenizer),
      chars_(BertChars::Get(tokenizer.options().dialect, tokenizer.options().lower_case)),
      splitter_(tokenizer.options().dialect, tokenizer.options().lower_case) {}

absl::Status WordPieceEncoder::Encode(std::string_view text, std::vector<uint32_t>& ids) {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    return MakeError(Reason::kInvalidUtf8, "the text is not UTF-8");
  }
  count_ = pending_count_ = 0;
  unread_ = text.size();
  if (out_.size() < text.size() + PieceCache::kMaxIds) out_.resize(text.size() + PieceCache::kMaxIds);
  const WordPieceOptions& options = tokenizer_.options();
  if (options.dialect == BertDialect::kLegacy && options.lower_case && text.find(kCapitalSigma) != text.npos) {
    // The form of a small sigma depends on what stands around it, also on punctuation.
    Slow(text);
    unread_ = 0;
    PutSlow();
  } else {
    Scan(text);
  }
  ids.insert(ids.end(), out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(count_));
  return absl::OkStatus();
}

void WordPieceEncoder::Scan(std::string_view text) {
  // The current chunk begins here: perhaps in an earlier block, or behind a special token in a later one.
  size_t begin = 0;
  char tail[kMaskBytes] = {};
  for (size_t base = 0; base < text.size(); base += kMaskBytes) {
    const char* block = text.data() + base;
    if (const size_t left = text.size() - base; left < kMaskBytes) {
      std::memcpy(tail, block, left);
      block = tail;
    }
    for (uint64_t mask = DelimiterMask(block); mask != 0; mask &= mask - 1) {
      const size_t at = base + static_cast<size_t>(std::countr_zero(mask));
      if (at < begin) continue;
      if (at > begin) Chunk(text, begin, at);
      begin = at + 1;
      const auto c = static_cast<unsigned char>(text[at]);
      if (IsAsciiBlank(c)) continue;
      if (tokenizer_.begins_special_[c]) {
        if (const PieceTrie::Match special = SpecialAt(text, at); special.length != 0) {
          Mark(text, special.id);
          begin = at + special.length;
          continue;
        }
      }
      Mark(text, tokenizer_.punct_ids_[c]);
    }
  }
  if (begin < text.size()) Chunk(text, begin, text.size());
  Flush(text);
}

// Every special token begins with a punctuation mark. So none begins inside a chunk, and none begins another one.
PieceTrie::Match WordPieceEncoder::SpecialAt(std::string_view text, size_t at) const {
  const std::string_view rest = text.substr(at);
  for (const auto& [token, id] : tokenizer_.vocab_.specials) {
    if (rest.starts_with(token)) return {token.size(), id};
  }
  return {};
}

void WordPieceEncoder::Chunk(std::string_view text, size_t begin, size_t end) {
  if (pending_count_ == kPending) Flush(text);
  Pending& one = pending_[pending_count_++];
  one.begin = begin;
  one.size = end - begin;
  if (one.size > PieceCache::kMaxKey) return;
  one.key = PieceCache::MakeKey(text.substr(begin, one.size), text.size() - begin);
  one.place = cache_.Prefetch(one.key);
}

void WordPieceEncoder::Mark(std::string_view text, uint32_t id) {
  if (pending_count_ == kPending) Flush(text);
  Pending& one = pending_[pending_count_++];
  one.size = 0;
  one.id = id;
}

void WordPieceEncoder::Flush(std::string_view text) {
  for (size_t i = 0; i < pending_count_; ++i) {
    const Pending& one = pending_[i];
    if (one.size == 0) {
      out_[count_++] = one.id;
      continue;
    }
    unread_ = text.size() - one.begin - one.size;
    if (one.size <= PieceCache::kMaxKey) {
      if (const PieceCache::Entry* entry = cache_.Find(one.key, one.place)) {
        // All of the entry is copied, which takes two instructions; the count says how much of it counts.
        std::memcpy(&out_[count_], entry->ids, sizeof(entry->ids));
        count_ += entry->count;
        continue;
      }
    }
    Parts(text.substr(one.begin, one.size));
  }
  pending_count_ = 0;
}

void WordPieceEncoder::Parts(std::string_view chunk) {
  size_t begin = 0;
  for (size_t i = 0; i < chunk.size();) {
    if (static_cast<unsigned char>(chunk[i]) < 0x80) {
      ++i;
      continue;
    }
    const size_t at = i;
    const char32_t scalar = NextScalar(chunk, i);
    const CharClass kind = chars_.ClassOf(scalar);
    if (kind == CharClass::kWord || kind == CharClass::kDrop) continue;
    if (at > begin) PartOrCached(chunk.substr(begin, at - begin));
    if (kind != CharClass::kSpace) PartOrCached(chunk.substr(at, i - at));
    begin = i;
  }
  if (begin < chunk.size()) PartOrCached(chunk.substr(begin));
}

void WordPieceEncoder::PartOrCached(std::string_view part) {
  if (part.size() > PieceCache::kMaxKey) {
    Slow(part);
    return PutSlow();
  }
  const PieceCache::Key key = PieceCache::MakeKey(part, part.size());
  if (const PieceCache::Entry* entry = cache_.Find(key)) {
    slow_ids_.assign(entry->ids, entry->ids + entry->count);
    return PutSlow();
  }
  Slow(part);
  // There must be no more ids than bytes, because the room in out_ is computed so.
  if (!slow_ids_.empty() && slow_ids_.size() <= std::min(PieceCache::kMaxIds, part.size())) {
    cache_.Insert(key, slow_ids_.data(), slow_ids_.size());
  }
  PutSlow();
}

void WordPieceEncoder::Slow(std::string_view part) {
  slow_ids_.clear();
  for (const WordSplitter::Word& word : splitter_.Split(part)) {
    tokenizer_.CutWord(splitter_.TextOf(word), word.scalars, slow_ids_);
  }
}

void WordPieceEncoder::PutSlow() {
  const size_t room = count_ + slow_ids_.size() + unread_ + PieceCache::kMaxIds;
  if (out_.size() < room) out_.resize(room * 2);
  std::copy(slow_ids_.begin(), slow_ids_.end(), out_.begin() + static_cast<std::ptrdiff_t>(count_));
  count_ += slow_ids_.size();
}

std::unique_ptr<Encoder> WordPieceTokenizer::NewEncoder() const { return std::make_unique<WordPieceEncoder>(*this); }

}  // namespace cairn::corpus
