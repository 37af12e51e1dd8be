// Expands the macros of the three fused layouts.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/fused_statement.h"
#include "mapping/temporary_macros.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool HasToken(const Program& program, LineId line, Symbol name) {
  const auto tokens = program.tokens(line);
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](const Token& token) { return token.is(TokenKind::kIdentifier) && token.symbol == name; });
}

void Append(std::vector<Symbol>& to, const std::vector<Symbol>& names, int64_t from, int64_t count) {
  to.insert(to.end(), names.begin() + from, names.begin() + from + count);
}

// Returns the names as `ranks` ranks hold them one after the other: each has its share of every part.
std::vector<Symbol> RankByRank(const std::vector<std::vector<Symbol>>& parts, int64_t ranks) {
  std::vector<Symbol> names;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (const std::vector<Symbol>& part : parts) {
      const auto share = static_cast<int64_t>(part.size()) / ranks;
      Append(names, part, rank * share, share);
    }
  }
  return names;
}

// Returns whether the statement maps one fused tensor to another one, to its parts, or from its parts.
bool Maps(const FusedStatement& fused, size_t parts) {
  const size_t left = fused.left.size(), right = fused.right.size();
  return (left == 1 && (right == 1 || right == parts)) || (left == parts && right == 1);
}

}  // namespace

bool TemporaryMacros::ReadFused(LineId line, Stage stage, FusedStatement& fused) {
  std::string fault = ReadFusedStatement(context_.program, line, stage, context_.legacy_qkv, fused);
  if (fault.empty() && stage != Stage::kFusedFfn) fault = FaultOfHeads(fused);
  if (fault.empty()) fault = CountMadeNames(context_, static_cast<size_t>(fused.heads + 2 * fused.kv_heads));
  if (fault.empty()) return true;
  Fail(line, stage, Reason::kMappingMacro, std::move(fault));
  return false;
}

void TemporaryMacros::Emit(LineId parent, Stage stage, const std::vector<Symbol>& left,
                           const std::vector<Symbol>& right, int64_t axis, std::vector<LineId>& out) {
  Program& program = context_.program;
  const Symbol number = program.symbols().Intern(absl::StrCat(axis));
  program.Begin(parent, stage);
  const auto list = [&](const std::vector<Symbol>& names) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (i > 0) program.Push(MakeToken(TokenKind::kComma, 0, 0));
      program.PushName(names[i], 0);
    }
  };
  list(left);
  program.Push(MakeToken(TokenKind::kArrow, 0, 0));
  list(right);
  program.Push(MakeToken(TokenKind::kComma, 0, 0));
  program.PushName(kAxis, 0);
  program.Push(MakeToken(TokenKind::kEqual, 0, 0));
  program.Push(MakeToken(TokenKind::kNumber, number, 0));
  out.push_back(program.End());
}

bool TemporaryMacros::IsFusedQkvOld(LineId line) const {
  if (HasToken(context_.program, line, kFusedQkvOld)) return true;
  if (!context_.legacy_qkv || !HasToken(context_.program, line, kFusedQkv)) return false;
  const auto names = NamesOf(context_.program, line);
  return names.left.size() == 1 && names.right.size() == 1;
}

int64_t TemporaryMacros::ShardsOf(LineId line, Stage stage, const std::vector<Symbol>& side, bool on_left) {
  return side.size() == 1 ? ShardCount(line, stage, side[0], on_left) : 1;
}

void TemporaryMacros::EmitRankByRank(LineId line, Stage stage, const FusedStatement& fused,
                                     const std::vector<std::vector<Symbol>>& parts, int64_t from, int64_t to,
                                     std::vector<LineId>& out) {
  std::vector<Symbol> whole = fused.left;
  if (whole.size() > 1) {
    std::string joined;
    for (const Symbol name : fused.left) absl::StrAppend(&joined, View(context_.symbols().Text(name)), ".");
    whole = {FreeName(context_.program.symbols().Intern(joined + "tmp"))};
    Emit(line, stage, fused.left, whole, fused.axis, out);
  }
  Emit(line, stage, whole, RankByRank(parts, from), fused.axis, out);
  if (fused.right.size() == 1) return Emit(line, stage, RankByRank(parts, to), fused.right, fused.axis, out);
  for (size_t i = 0; i < parts.size(); ++i) Emit(line, stage, parts[i], {fused.right[i]}, fused.axis, out);
}

// The layout is rank by rank: a rank's query heads, then its K heads, then its V heads.
void TemporaryMacros::ExpandFusedQkvOld(LineId line, std::vector<LineId>& out) {
  constexpr Stage kStage = Stage::kFusedQkvOld;
  if (!IsFusedQkvOld(line)) return out.push_back(line);
  FusedStatement fused;
  if (!ReadFused(line, kStage, fused)) return;
  if (!Maps(fused, 3)) {
    return Fail(
        line, kStage, Reason::kMappingMacro,
        absl::StrCat("Unsupported fused_qkv_old macro format: it maps 1 name to 1, 1 to 3 (q, k, v) or 3 to 1, ",
                     "not ", fused.left.size(), " to ", fused.right.size()));
  }
  const int64_t from = ShardsOf(line, kStage, fused.left, true);
  const int64_t to = ShardsOf(line, kStage, fused.right, false);
  if (from == 0 || to == 0) return;
  for (const auto& [shards, side] : {std::pair(from, "left"), std::pair(to, "right")}) {
    if (fused.heads % shards == 0 && fused.kv_heads % shards == 0) continue;
    return Fail(line, kStage, Reason::kMappingMacro,
                absl::StrCat("the tensor ", side, " of the arrow has ", shards, " shards, which do not divide its ",
                             fused.heads, " query heads and ", fused.kv_heads,
                             " KV heads; replicated KV heads have to be mapped before they are sharded"));
  }
  const std::vector<std::vector<Symbol>> heads = {FreeNames("fused_qkv_old_tmp.Q_", fused.heads),
                                                  FreeNames("fused_qkv_old_tmp.K_", fused.kv_heads),
                                                  FreeNames("fused_qkv_old_tmp.V_", fused.kv_heads)};
  if (fused.left.size() == 3 && context_.reverse && fused.heads != fused.kv_heads) {
    // Read backwards, a merge of q, k and v would be a split into equal parts, but these three are not equal.
    for (size_t i = 0; i < heads.size(); ++i) Emit(line, kStage, {fused.left[i]}, heads[i], fused.axis, out);
    return Emit(line, kStage, RankByRank(heads, to), fused.right, fused.axis, out);
  }
  EmitRankByRank(line, kStage, fused, heads, from, to, out);
}

// The layout is rank by rank: a rank's part of gate, then its part of up. Gate is the first half, up the second.
void TemporaryMacros::ExpandFusedFfn(LineId line, std::vector<LineId>& out) {
  constexpr Stage kStage = Stage::kFusedFfn;
  if (!HasToken(context_.program, line, kFusedFfn)) return out.push_back(line);
  FusedStatement fused;
  if (!ReadFused(line, kStage, fused)) return;
  if (!Maps(fused, 2)) {
    return Fail(
        line, kStage, Reason::kMappingMacro,
        absl::StrCat("Unsupported fused_ffn macro format: it maps 1 name to 1, 1 to 2 (gate, up) or 2 to 1, not ",
                     fused.left.size(), " to ", fused.right.size()));
  }
  const int64_t from = ShardsOf(line, kStage, fused.left, true);
  const int64_t to = ShardsOf(line, kStage, fused.right, false);
  if (from == 0 || to == 0) return;
  const int64_t pieces = std::lcm(from, to);
  if (pieces > static_cast<int64_t>(kMaxNamesPerStatement)) {
    return Fail(line, kStage, Reason::kMappingMacro, absl::StrCat(from, " and ", to, " shards need too many pieces"));
  }
  if (std::string fault = CountMadeNames(context_, 2 * static_cast<size_t>(pieces)); !fault.empty()) {
    return Fail(line, kStage, Reason::kMappingMacro, std::move(fault));
  }
  const std::vector<std::vector<Symbol>> halves = {FreeNames("fused_ffn_tmp.GATE_", pieces),
                                                   FreeNames("fused_ffn_tmp.UP_", pieces)};
  EmitRankByRank(line, kStage, fused, halves, from, to, out);
}

// The layout is KV head by KV head: its query heads, then K, then V. It does not depend on the number of ranks.
void TemporaryMacros::ExpandFusedQkv(LineId line, std::vector<LineId>& out) {
  constexpr Stage kStage = Stage::kFusedQkv;
  if (!HasToken(context_.program, line, kFusedQkv)) return out.push_back(line);
  FusedStatement fused;
  if (!ReadFused(line, kStage, fused)) return;
  const bool merging = fused.left.size() == 3 && fused.right.size() == 1;
  if (!merging && !(fused.left.size() == 1 && fused.right.size() == 3)) {
    return Fail(line, kStage, Reason::kMappingMacro,
                absl::StrCat("Only support q,k,v -> fused_qkv or fused_qkv -> q,k,v patterns, not ", fused.left.size(),
                             " names to ", fused.right.size(),
                             fused.left.size() == 1 && fused.right.size() == 1
                                 ? "; in an old config this text meant fused_qkv_old: set \"legacy_qkv\": true"
                                 : ""));
  }
  const std::vector<Symbol>& parts = merging ? fused.left : fused.right;
  std::vector<std::vector<Symbol>> heads;
  for (const int64_t count : {fused.heads, fused.kv_heads, fused.kv_heads}) {
    heads.push_back(FreeNames(context_.symbols().Text(parts[heads.size()]), count));
  }
  const std::vector<Symbol> order = RankByRank(heads, fused.kv_heads);
  if (!merging) Emit(line, kStage, fused.left, order, fused.axis, out);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (merging) {
      Emit(line, kStage, {parts[i]}, heads[i], fused.axis, out);
    } else {
      Emit(line, kStage, heads[i], {parts[i]}, fused.axis, out);
    }
  }
  if (merging) Emit(line, kStage, order, fused.right, fused.axis, out);
}

}  // namespace cairn::aoa
