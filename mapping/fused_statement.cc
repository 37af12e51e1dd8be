#include "mapping/fused_statement.h"

#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/macro_context.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

Symbol FlagOf(Stage stage) {
  switch (stage) {
    case Stage::kFusedQkvOld:
      return kFusedQkvOld;
    case Stage::kFusedFfn:
      return kFusedFfn;
    default:
      return kFusedQkv;
  }
}

// Walks through the tokens of one statement. Its methods return an error message; empty if there is no error.
class FusedReader {
 public:
  FusedReader(const Program& program, LineId line, Stage stage, bool legacy_qkv, FusedStatement& statement)
      : symbols_(program.symbols()),
        tokens_(program.tokens(line)),
        stage_(stage),
        legacy_qkv_(legacy_qkv),
        flag_(symbols_.Text(FlagOf(stage))),
        statement_(statement) {}

  std::string Read() {
    if (std::string fault = ReadNames(statement_.left, false); !fault.empty()) return fault;
    if (!Is(TokenKind::kArrow)) return absl::StrCat("No -> found in expression: here stands ", Here());
    ++at_;
    if (std::string fault = ReadNames(statement_.right, true); !fault.empty()) return fault;
    while (at_ < tokens_.size()) {
      if (std::string fault = ReadAttribute(); !fault.empty()) return fault;
    }
    return CountKvHeads();
  }

 private:
  bool Is(TokenKind kind, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].is(kind);
  }
  bool IsName(size_t ahead = 0) const {
    return Is(TokenKind::kIdentifier, ahead) && !IsKeyword(tokens_[at_ + ahead].symbol);
  }
  std::string Here() const {
    if (at_ >= tokens_.size()) return "the end of the statement";
    std::string quoted = "'";
    AppendToken(tokens_[at_], symbols_, quoted);
    return quoted += '\'';
  }

  // Attributes may follow the names behind a comma.
  std::string ReadNames(std::vector<Symbol>& names, bool attributes_may_follow) {
    while (true) {
      if (!IsName()) return absl::StrCat("a tensor's name was expected, but here stands ", Here());
      names.push_back(tokens_[at_++].symbol);
      if (!Is(TokenKind::kComma)) return "";
      if (attributes_may_follow && !IsName(1)) return "";
      ++at_;
    }
  }

  // Reads ", KEY=NUMBER", or ", FLAG".
  std::string ReadAttribute() {
    if (!Is(TokenKind::kComma)) {
      return absl::StrCat("The different attributes must be split by a comma, but after ", last_, " comes ", Here());
    }
    ++at_;
    if (!Is(TokenKind::kIdentifier)) return absl::StrCat("an attribute was expected, but here stands ", Here());
    const Symbol key = tokens_[at_++].symbol;
    last_ = std::string(symbols_.Text(key));
    if (key >= kFusedFfn && key <= kFusedQkv) return CheckFlag(key);
    if (!Is(TokenKind::kEqual) || !Is(TokenKind::kNumber, 1)) {
      return absl::StrCat("attribute '", last_, "' of ", flag_, " needs '=' and a number, but here stands ", Here());
    }
    const std::string_view digits = symbols_.Text(tokens_[at_ + 1].symbol);
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) {
      return absl::StrCat("the value of '", last_, "' is too large: ", View(digits));
    }
    at_ += 2;
    absl::StrAppend(&last_, "=", View(digits));
    return Set(key, value);
  }

  std::string CheckFlag(Symbol flag) const {
    if (flag == FlagOf(stage_)) return "";
    if (stage_ == Stage::kFusedQkvOld && flag == kFusedQkv && legacy_qkv_) return "";
    return absl::StrCat("one statement carries one fused layout, not both ", flag_, " and ", last_);
  }

  std::string Set(Symbol key, int64_t value) {
    const bool has_heads = stage_ != Stage::kFusedFfn;
    if (key == kAxis) {
      statement_.axis = value;
    } else if (key == kNumHeads && has_heads) {
      statement_.heads = value;
    } else if (key == kNumKeyValueGroups && has_heads) {
      groups_ = value;
      if (value == 0) return "num_key_value_groups must be positive (got: 0)";
    } else if (key == kNumKvHeads && has_heads) {
      statement_.kv_heads = value;
      if (value == 0) return "num_kv_heads must be positive (got: 0)";
    } else {
      return absl::StrCat("Unsupported attribute of ", flag_, ": ", last_);
    }
    return "";
  }

  // Today num_key_value_groups is the number of KV heads; in old configs it was the number of query heads per KV head.
  std::string CountKvHeads() {
    if (groups_ == 0) return "";
    int64_t kv_heads = groups_;
    if (legacy_qkv_ && stage_ == Stage::kFusedQkvOld) {
      if (statement_.heads % groups_ != 0) {
        return absl::StrCat("num_heads (", statement_.heads, ") must be divisible by num_key_value_groups (", groups_,
                            ", the query heads per KV head in old configs)");
      }
      kv_heads = statement_.heads / groups_;
    }
    // An old config without num_heads gives none.
    if (kv_heads > 0 && statement_.kv_heads > 0 && kv_heads != statement_.kv_heads) {
      return absl::StrCat("num_kv_heads=", statement_.kv_heads, " and num_key_value_groups, which gives ", kv_heads,
                          " KV heads, disagree");
    }
    if (statement_.kv_heads == 0) statement_.kv_heads = kv_heads;
    return "";
  }

  const SymbolTable& symbols_;
  const std::span<const Token> tokens_;
  const Stage stage_;
  const bool legacy_qkv_;
  const std::string flag_;
  FusedStatement& statement_;
  size_t at_ = 0;
  int64_t groups_ = 0;              // num_key_value_groups, if it is given
  std::string last_ = "the names";  // the last attribute that was read, for messages
};

}  // namespace

std::string ReadFusedStatement(const Program& program, LineId line, Stage stage, bool legacy_qkv,
                               FusedStatement& statement) {
  return FusedReader(program, line, stage, legacy_qkv, statement).Read();
}

std::string FaultOfHeads(const FusedStatement& statement) {
  const auto [heads, kv_heads] = std::pair(statement.heads, statement.kv_heads);
  if (heads <= 0) return absl::StrCat("num_heads must be positive (got: ", heads, ")");
  if (kv_heads <= 0) {
    return "the number of KV heads must be positive: give num_kv_heads=N (or num_key_value_groups=N)";
  }
  if (heads % kv_heads != 0) {
    return absl::StrCat("num_heads (", heads, ") must be divisible by num_key_value_groups (", kv_heads, ")");
  }
  // Each head becomes names and pieces of its own; no model has a thousandth of these.
  constexpr int64_t kMostHeads = 1 << 16;
  if (heads > kMostHeads) return absl::StrCat("num_heads (", heads, ") is more than ", kMostHeads);
  return "";
}

}  // namespace cairn::aoa
