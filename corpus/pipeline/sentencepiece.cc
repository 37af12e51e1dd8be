#include "corpus/pipeline/sentencepiece.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/bpe/special_matcher.h"
#include "corpus/pipeline/pipeline_tokenizer.h"
#include "corpus/pipeline/precompiled.h"
#include "corpus/pipeline/unigram.h"
#include "corpus/unicode/class_table.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr std::string_view kBlank = "\u2581";
constexpr std::string_view kReplacement = "\uFFFD";  // for each byte that is not UTF-8

absl::Status Bad(const std::string& name, const std::string& what) {
  return MakeError(Reason::kBadTokenizer, absl::StrCat(name, ": ", what), {{"file", name}});
}

absl::Status Unsupported(const std::string& name, const std::string& what) {
  return MakeError(Reason::kUnsupported, absl::StrCat(name, ": ", what, " is not supported"), {{"file", name}});
}

// Calls field(number, value, bytes) for each field of a protobuf message: `value` is that of a number, `bytes` that of
// a text or message. Returns false if the message is damaged.
template <typename Field>
bool ForEachField(std::string_view message, Field&& field) {
  size_t at = 0;
  const auto varint = [&](uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && at < message.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  while (at < message.size()) {
    uint64_t tag, value = 0;
    std::string_view bytes;
    if (!varint(tag)) return false;
    switch (tag & 7) {
      case 0:
        if (!varint(value)) return false;
        break;
      case 1:
      case 5: {
        const size_t size = (tag & 7) == 1 ? 8 : 4;
        if (message.size() - at < size) return false;
        std::memcpy(&value, message.data() + at, size);
        at += size;
        break;
      }
      case 2:
        if (!varint(value) || value > message.size() - at) return false;
        bytes = message.substr(at, value);
        at += value;
        break;
      default:
        return false;
    }
    if (!field(tag >> 3, value, bytes)) return false;
  }
  return true;
}

float FloatOf(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  float value;
  std::memcpy(&value, &low, sizeof(value));
  return value;
}

// The values are those of sentencepiece_model.proto.
enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
enum class ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct ModelFile {
  std::vector<Piece> pieces;  // by id
  ModelType type = ModelType::kUnigram;
  bool blank_as_suffix = false;
  bool byte_fallback = false;
  CharacterMap map;
  bool add_dummy_prefix = true;
  bool remove_extra_blanks = true;
  bool escape_blanks = true;
};

absl::StatusOr<ModelFile> Read(std::string_view content, const std::string& name) {
  ModelFile file;
  std::string_view charsmap;
  const auto read_piece = [&](std::string_view message) {
    Piece& piece = file.pieces.emplace_back();
    return ForEachField(message, [&](uint64_t number, uint64_t value, std::string_view bytes) {
      if (number == 1) piece.text = bytes;
      if (number == 2) piece.score = FloatOf(value);
      if (number == 3) piece.type = static_cast<PieceType>(value);
      return true;
    });
  };
  const auto read_trainer = [&](std::string_view message) {
    return ForEachField(message, [&](uint64_t number, uint64_t value, std::string_view) {
      if (number == 3) file.type = static_cast<ModelType>(value);
      if (number == 24) file.blank_as_suffix = value != 0;
      if (number == 35) file.byte_fallback = value != 0;
      return true;
    });
  };
  const auto read_normalizer = [&](std::string_view message) {
    return ForEachField(message, [&](uint64_t number, uint64_t value, std::string_view bytes) {
      if (number == 2) charsmap = bytes;
      if (number == 3) file.add_dummy_prefix = value != 0;
      if (number == 4) file.remove_extra_blanks = value != 0;
      if (number == 5) file.escape_blanks = value != 0;
      return true;
    });
  };
  const bool whole = ForEachField(content, [&](uint64_t number, uint64_t, std::string_view bytes) {
    if (number == 1) return file.pieces.size() <= kMaxTokenId && read_piece(bytes);
    if (number == 2) return read_trainer(bytes);
    if (number == 3) return read_normalizer(bytes);
    return true;
  });
  if (!whole || file.pieces.empty()) return Bad(name, "is not a SentencePiece model, or is cut off");
  absl::StatusOr<CharacterMap> map = CharacterMap::Parse(charsmap);
  if (!map.ok()) return Bad(name, std::string(map.status().message()));
  file.map = *std::move(map);
  return file;
}

// Finds the pieces of type USER_DEFINED, which are tokens wherever they stand.
struct UserDefined {
  SpecialMatcher matcher;
  TokenMap ids;
};

// Returns what SentencePiece's normalizer makes of a text, and where the next character begins.
class BlankNormalizer {
 public:
  BlankNormalizer(const ModelFile& file, std::shared_ptr<const UserDefined> user)
      : map_(file.map),
        user_(std::move(user)),
        suffix_(file.blank_as_suffix),
        dummy_(file.add_dummy_prefix),
        remove_extra_(file.remove_extra_blanks),
        blank_(file.escape_blanks ? kBlank : " ") {}

  std::string Normalize(std::string_view text) const {
    std::string result;
    while (remove_extra_ && !text.empty()) {
      const CharacterMap::Replacement next = Next(text);
      if (next.text != " ") break;
      text.remove_prefix(next.length);
    }
    if (text.empty()) return result;
    result.reserve(text.size() + text.size() / 4);
    if (dummy_ && !suffix_) result.append(blank_);
    bool after_blank = remove_extra_;
    while (!text.empty()) {
      CharacterMap::Replacement next = Next(text);
      text.remove_prefix(next.length);
      while (after_blank && !next.text.empty() && next.text[0] == ' ') next.text.remove_prefix(1);
      if (!next.text.empty()) {
        for (const char c : next.text) {
          if (c == ' ') {
            result.append(blank_);
          } else {
            result.push_back(c);
          }
        }
        after_blank = next.text.back() == ' ';
      }
      after_blank = after_blank && remove_extra_;
    }
    while (remove_extra_ && result.size() >= blank_.size() &&
           std::string_view(result).substr(result.size() - blank_.size()) == blank_) {
      result.resize(result.size() - blank_.size());
    }
    if (dummy_ && suffix_) result.append(blank_);
    return result;
  }

 private:
  CharacterMap::Replacement Next(std::string_view text) const {
    if (!user_->matcher.empty()) {
      const SpecialMatcher::Match match = user_->matcher.FindAt(text, 0);
      if (match.found()) return {match.end, text.substr(0, match.end)};
    }
    if (const auto replacement = map_.Longest(text)) return *replacement;
    const auto* const p = reinterpret_cast<const uint8_t*>(text.data());
    const Character character = DecodeCharacter(p, p + text.size());
    return {character.length,
            character.code_point == Character::kInvalid ? kReplacement : text.substr(0, character.length)};
  }

  const CharacterMap map_;
  const std::shared_ptr<const UserDefined> user_;
  const bool suffix_, dummy_, remove_extra_;
  const std::string_view blank_;
};

// Sets user-defined pieces apart.
Step UserDefinedStep(std::shared_ptr<const UserDefined> user) {
  return [user = std::move(user)](Pieces& pieces) {
    return SplitSpans(pieces, SplitBehavior::kIsolated, [&](std::string_view text, std::vector<Match>& matches) {
      size_t done = 0;
      for (SpecialMatcher::Match match; (match = user->matcher.Find(text, done)).found(); done = match.end) {
        if (match.begin > done) matches.push_back({done, match.begin, false});
        matches.push_back({match.begin, match.end, true});
      }
      if (done < text.size()) matches.push_back({done, text.size(), false});
      return absl::OkStatus();
    });
  };
}

// SentencePiece joins the two neighbours that make the piece with the greatest score. So each way to cut a piece in two
// is a merge, whose rank is that of the piece's score.
class PieceMerges final : public WordModel {
 public:
  PieceMerges(const ModelFile& file, std::shared_ptr<const UserDefined> user, uint32_t unknown)
      : user_(std::move(user)), size_(static_cast<uint32_t>(file.pieces.size())), unknown_(unknown) {
    TokenMap symbols;  // pieces, and characters that are none
    for (uint32_t id = 0; id < size_; ++id) {
      const Piece& piece = file.pieces[id];
      ids_[piece.text] = id;
      lengths_.push_back(piece.text.size());
      if (piece.type == PieceType::kNormal) symbols[piece.text] = id;
    }
    std::map<float, uint32_t, std::greater<>> ranks;
    for (const Piece& piece : file.pieces) ranks[piece.score] = 0;
    uint32_t rank = 0;
    for (auto& [score, value] : ranks) value = rank++;
    uint32_t next = size_;
    const auto symbol_of = [&](std::string_view text) {
      if (const auto it = symbols.find(absl::string_view(text.data(), text.size())); it != symbols.end())
        return it->second;
      size_t end = 0;
      NextScalar(text, end);
      if (end < text.size()) return BpeModel::kNone;
      return symbols[std::string(text)] = next++;
    };
    for (uint32_t id = 0; id < size_; ++id) {
      const Piece& piece = file.pieces[id];
      if (piece.type != PieceType::kNormal) continue;
      const std::string_view text = piece.text;
      for (size_t cut = 0; (NextScalar(text, cut), cut < text.size());) {
        const uint32_t left = symbol_of(text.substr(0, cut)), right = symbol_of(text.substr(cut));
        if (left == BpeModel::kNone || right == BpeModel::kNone) continue;
        model_.AddMerge(left, right, ranks[piece.score], id);
      }
    }
    for (const auto& [text, id] : symbols) model_.AddToken(text, id);
    // An id of its own stands for each character that no piece has.
    model_.set_characters("", "", /*byte_fallback=*/false);
    model_.set_unknown(next, /*fuse=*/false);
    model_.Finish();
    for (size_t byte = 0; file.byte_fallback && byte < 256; ++byte) {
      bytes_.push_back(ids_[absl::StrFormat("<0x%02X>", byte)]);
    }
  }

  absl::Status Encode(std::string_view word, WordScratch& scratch, std::vector<uint32_t>& ids) const override {
    if (const auto user = user_->ids.find(absl::string_view(word.data(), word.size())); user != user_->ids.end()) {
      ids.push_back(user->second);
      return absl::OkStatus();
    }
    scratch.ids.clear();
    model_.Encode(word, scratch.bpe, scratch.ids);
    size_t at = 0;
    for (const uint32_t id : scratch.ids) {
      if (id < size_) {
        ids.push_back(id);
        at += lengths_[id];
        continue;
      }
      size_t end = at;
      NextScalar(word, end);
      if (bytes_.empty()) {
        ids.push_back(unknown_);
      } else {
        for (const char c : word.substr(at, end - at)) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
      }
      at = end;
    }
    return absl::OkStatus();
  }
  std::optional<uint32_t> IdOf(std::string_view token) const override {
    const auto it = ids_.find(absl::string_view(token.data(), token.size()));
    if (it == ids_.end()) return std::nullopt;
    return it->second;
  }
  size_t PieceEnd(std::string_view word, size_t from) const override {
    if (from == 0 && user_->ids.contains(absl::string_view(word.data(), word.size()))) return word.size();
    return model_.PieceEnd(word, from);
  }

 private:
  const std::shared_ptr<const UserDefined> user_;
  const uint32_t size_;
  const uint32_t unknown_;
  TokenMap ids_;
  std::vector<size_t> lengths_;  // of each piece, in bytes
  BpeModel model_;
  std::vector<uint32_t> bytes_;  // the ids of <0x00> .. <0xFF>; empty without byte fallback
};

absl::Status Check(const ModelFile& file, const std::string& name, UserDefined& user, uint32_t& unknown) {
  if (file.type != ModelType::kUnigram && file.type != ModelType::kBpe) {
    return Unsupported(name, absl::StrCat("a SentencePiece model of type ", static_cast<int>(file.type)));
  }
  TokenMap known, reserved;
  std::vector<std::string> user_texts;
  std::vector<bool> bytes(256);
  unknown = BpeModel::kNone;
  for (uint32_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    if (piece.text.empty()) return Bad(name, absl::StrCat("piece ", id, " is empty"));
    if (FindInvalidUtf8(piece.text) != std::string_view::npos)
      return Bad(name, absl::StrCat("piece ", id, " is not UTF-8"));
    const bool is_text =
        piece.type == PieceType::kNormal || piece.type == PieceType::kUserDefined || piece.type == PieceType::kUnused;
    if (!(is_text ? known : reserved).try_emplace(piece.text, id).second) {
      return Bad(name, absl::StrCat("piece ", id, ", '", piece.text.substr(0, 100), "', stands there twice"));
    }
    if (piece.type == PieceType::kUnused && file.type == ModelType::kBpe) {
      return Unsupported(name, absl::StrCat("an unused piece (", id, ") in a BPE model"));
    }
    if (piece.type == PieceType::kUserDefined && file.type == ModelType::kUnigram) {
      return Unsupported(name,
                         absl::StrCat("a user-defined piece ('", piece.text.substr(0, 100), "') in a Unigram model"));
    }
    if (piece.type == PieceType::kUnknown) unknown = id;
    if (piece.type == PieceType::kUserDefined) {
      user.ids[piece.text] = id;
      user_texts.push_back(piece.text);
    }
    for (size_t byte = 0; piece.type == PieceType::kByte && byte < 256; ++byte) {
      if (piece.text == absl::StrFormat("<0x%02X>", byte)) bytes[byte] = true;
    }
  }
  user.matcher = SpecialMatcher(user_texts);
  if (unknown == BpeModel::kNone) return Bad(name, "has no piece for what is unknown");
  if (file.byte_fallback && std::find(bytes.begin(), bytes.end(), false) != bytes.end()) {
    return Bad(name, "has byte_fallback, but not all of the 256 bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(std::string_view content, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const ModelFile file, Read(content, name));
  auto user = std::make_shared<UserDefined>();
  uint32_t unknown = BpeModel::kNone;
  CAIRN_RETURN_IF_ERROR(Check(file, name, *user, unknown));
  PipelineTokenizer::Parts parts;
  parts.normalizer_repairs = true;
  parts.vocab_size = static_cast<uint32_t>(file.pieces.size());
  const auto normalizer = std::make_shared<const BlankNormalizer>(file, user);
  parts.normalizer.push_back([normalizer](Pieces& pieces) {
    pieces.text = normalizer->Normalize(pieces.text);
    return absl::OkStatus();
  });
  if (file.type == ModelType::kBpe) {
    if (!user->ids.empty()) parts.pre_tokenizer.push_back(UserDefinedStep(user));
    parts.model = std::make_unique<PieceMerges>(file, user, unknown);
    parts.joins = file.byte_fallback ? std::nullopt : std::optional<uint32_t>(unknown);
  } else {
    UnigramRules rules = {.vocab = {}, .unknown = unknown, .byte_fallback = file.byte_fallback, .sentencepiece = true};
    for (const Piece& piece : file.pieces) {
      rules.vocab.push_back({.text = piece.text, .score = piece.score, .matched = piece.type == PieceType::kNormal});
    }
    parts.model = UnigramModel(rules);
  }
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<PipelineTokenizer> tokenizer, PipelineTokenizer::Create(std::move(parts)));
  return tokenizer;
}

}  // namespace cairn::corpus
