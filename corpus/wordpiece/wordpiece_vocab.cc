#include "corpus/wordpiece/wordpiece_vocab.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

// This is the Unicode property White_Space; Python's strip() also takes the four information separators.
bool IsLineBlank(char32_t c, bool python) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000 || (python && c >= 0x1C && c <= 0x1F);
}

std::string_view Trim(std::string_view line, bool both_ends) {
  size_t begin = 0, end = 0;
  bool started = false;
  for (size_t i = 0; i < line.size();) {
    const size_t at = i;
    if (IsLineBlank(NextScalar(line, i), both_ends)) continue;
    if (!started && both_ends) begin = at;
    started = true;
    end = i;
  }
  return line.substr(begin, end - begin);
}

// Takes the next line of `rest`, without its end. Rust ends lines at LF; Python's text mode does so at CR and CR LF
// too.
std::string_view TakeLine(std::string_view& rest, bool python) {
  const size_t end = rest.find_first_of(python ? "\r\n" : "\n");
  const std::string_view line = rest.substr(0, end);
  size_t next = end == std::string_view::npos ? rest.size() : end + 1;
  if (next < rest.size() && rest[next - 1] == '\r' && rest[next] == '\n') ++next;
  rest.remove_prefix(next);
  return line;
}

}  // namespace

std::optional<uint32_t> WordPieceVocab::IdOf(std::string_view token) const {
  for (const auto& [text, id] : specials) {
    if (text == token) return id;
  }
  const auto it = pieces.find(absl::string_view(token.data(), token.size()));
  if (it == pieces.end()) return std::nullopt;
  return it->second;
}

absl::StatusOr<WordPieceVocab> ParseWordPieceVocab(std::string_view text, std::string_view name, BertDialect dialect,
                                                   uint32_t extra_ids) {
  const auto refuse = [&](std::string_view why) {
    return MakeError(Reason::kBadTokenizer, absl::StrCat(std::string(name), ": ", std::string(why)),
                     {{"file", std::string(name)}});
  };
  const bool legacy = dialect == BertDialect::kLegacy;
  WordPieceVocab vocab;
  uint64_t lines = 0;
  for (std::string_view rest = text; !rest.empty(); ++lines) {
    const std::string_view line = TakeLine(rest, legacy);
    if (lines >= std::numeric_limits<int32_t>::max() - extra_ids - 5) return refuse("too many lines for 31-bit ids");
    if (!simdjson::validate_utf8(line.data(), line.size())) {
      return refuse(absl::StrCat("line ", lines + 1, " is not UTF-8"));
    }
    vocab.pieces[std::string(Trim(line, legacy))] = static_cast<uint32_t>(lines);
  }
  if (lines == 0) return refuse("is empty: one token per line was expected");
  const auto unk = vocab.pieces.find("[UNK]");
  if (unk == vocab.pieces.end()) {
    return refuse("has no line [UNK], which stands for words that the vocabulary cannot spell");
  }
  vocab.unk = unk->second;
  vocab.size = static_cast<uint32_t>(vocab.pieces.size());
  vocab.id_limit = static_cast<uint32_t>(lines);

  // The id of a new token is the number of tokens before it, as if no line were repeated.
  const auto add = [&](const std::string& token) {
    const auto it = vocab.pieces.find(token);
    const uint32_t id = it != vocab.pieces.end() ? it->second : vocab.size++;
    vocab.specials.emplace_back(token, id);
    vocab.id_limit = std::max(vocab.id_limit, id + 1);
  };
  if (legacy) {
    for (const char* token : {"[BOS]", "[EOS]"}) add(token);
  } else {
    for (const char* token : {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}) add(token);
    for (uint32_t i = 0; i < extra_ids; ++i) add(absl::StrCat("<extra_id_", i, ">"));
  }
  return vocab;
}

}  // namespace cairn::corpus
