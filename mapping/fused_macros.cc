// Expands the macros of the three fused layouts.
#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mapping/temporary_macros.h"

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

bool HasToken(const Program& program, LineId line, Symbol name) {
  const auto tokens = program.tokens(line);
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](const Token& token) { return token.is(TokenKind::kIdentifier) && token.symbol == name; });
}

std::vector<Symbol> Part(const std::vector<Symbol>& names, int64_t from, int64_t count) {
  return {names.begin() + from, names.begin() + from + count};
}

void Append(std::vector<Symbol>& to, const std::vector<Symbol>& names, int64_t from, int64_t count) {
  to.insert(to.end(), names.begin() + from, names.begin() + from + count);
}

}  // namespace

bool TemporaryMacros::ParseFused(LineId line, Stage stage, Fused& fused) {
  const Program& program = context_.program;
  const SymbolTable& symbols = context_.symbols();
  const auto tokens = program.tokens(line);
  const std::string flag(symbols.Text(FlagOf(stage)));
  const auto text = [&](size_t i) {
    if (i >= tokens.size()) return std::string("the end of the statement");
    std::string quoted = "'";
    AppendToken(tokens[i], symbols, quoted);
    return quoted += '\'';
  };
  const auto fail = [&](std::string message) {
    Fail(line, stage, Reason::kMappingMacro, std::move(message));
    return false;
  };
  size_t at = 0;
  const auto is_name = [&](size_t i) {
    return i < tokens.size() && tokens[i].is(TokenKind::kIdentifier) && !IsKeyword(tokens[i].symbol);
  };
  for (std::vector<Symbol>* side : {&fused.left, &fused.right}) {
    while (true) {
      if (!is_name(at)) return fail(absl::StrCat("a tensor's name was expected, but here stands ", text(at)));
      side->push_back(tokens[at++].symbol);
      if (at >= tokens.size() || !tokens[at].is(TokenKind::kComma)) break;
      if (side == &fused.right && !is_name(at + 1)) break;
      ++at;
    }
    if (side == &fused.left) {
      if (at >= tokens.size() || !tokens[at].is(TokenKind::kArrow)) {
        return fail(absl::StrCat("No -> found in expression: here stands ", text(at)));
      }
      ++at;
    }
  }
  int64_t groups = 0, kv_heads = 0;
  std::string last = "the names";
  while (at < tokens.size()) {
    if (!tokens[at].is(TokenKind::kComma)) {
      return fail(
          absl::StrCat("The different attributes must be split by a comma, but after ", last, " comes ", text(at)));
    }
    ++at;
    if (at >= tokens.size() || !tokens[at].is(TokenKind::kIdentifier)) {
      return fail(absl::StrCat("an attribute was expected, but here stands ", text(at)));
    }
    const Symbol key = tokens[at++].symbol;
    last = std::string(symbols.Text(key));
    if (key >= kFusedFfn && key <= kFusedQkv) {
      if (key == FlagOf(stage) || (stage == Stage::kFusedQkvOld && key == kFusedQkv && context_.legacy_qkv)) continue;
      return fail(absl::StrCat("one statement carries one fused layout, not both ", flag, " and ", last));
    }
    if (at + 1 >= tokens.size() || !tokens[at].is(TokenKind::kEqual) || !tokens[at + 1].is(TokenKind::kNumber)) {
      return fail(
          absl::StrCat("attribute '", last, "' of ", flag, " needs '=' and a number, but here stands ", text(at)));
    }
    const std::string_view digits = symbols.Text(tokens[at + 1].symbol);
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) {
      return fail(absl::StrCat("the value of '", last, "' is too large: ", View(digits)));
    }
    at += 2;
    absl::StrAppend(&last, "=", View(digits));
    if (key == kAxis) {
      fused.axis = value;
    } else if (key == kNumHeads && stage != Stage::kFusedFfn) {
      fused.heads = value;
    } else if (key == kNumKeyValueGroups && stage != Stage::kFusedFfn) {
      groups = value;
      if (value == 0) return fail("num_key_value_groups must be positive (got: 0)");
    } else if (key == kNumKvHeads && stage != Stage::kFusedFfn) {
      kv_heads = value;
      if (value == 0) return fail("num_kv_heads must be positive (got: 0)");
    } else {
      return fail(absl::StrCat("Unsupported attribute of ", flag, ": ", last));
    }
  }
  // Today num_key_value_groups is the number of KV heads; in old configs it was the number of query heads per KV head.
  if (groups > 0 && context_.legacy_qkv && stage == Stage::kFusedQkvOld) {
    if (fused.heads % groups != 0) {
      return fail(absl::StrCat("num_heads (", fused.heads, ") must be divisible by num_key_value_groups (", groups,
                               ", the query heads per KV head in old configs)"));
    }
    groups = fused.heads / groups;
  }
  if (groups > 0 && kv_heads > 0 && groups != kv_heads) {
    return fail(absl::StrCat("num_kv_heads=", kv_heads, " and num_key_value_groups, which gives ", groups,
                             " KV heads, disagree"));
  }
  fused.kv_heads = kv_heads > 0 ? kv_heads : groups;
  return true;
}

bool TemporaryMacros::CheckHeads(LineId line, Stage stage, const Fused& fused) {
  std::string wrong;
  if (fused.heads <= 0) {
    wrong = absl::StrCat("num_heads must be positive (got: ", fused.heads, ")");
  } else if (fused.kv_heads <= 0) {
    wrong = "the number of KV heads must be positive: give num_kv_heads=N (or num_key_value_groups=N)";
  } else if (fused.heads % fused.kv_heads != 0) {
    wrong =
        absl::StrCat("num_heads (", fused.heads, ") must be divisible by num_key_value_groups (", fused.kv_heads, ")");
  } else if (fused.heads > static_cast<int64_t>(kMaxNamesPerStatement)) {
    wrong = absl::StrCat("num_heads (", fused.heads, ") is more than ", kMaxNamesPerStatement);
  } else {
    return true;
  }
  Fail(line, stage, Reason::kMappingMacro, std::move(wrong));
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

// The layout is rank by rank: a rank's query heads, then its K heads, then its V heads.
void TemporaryMacros::ExpandFusedQkvOld(LineId line, std::vector<LineId>& out) {
  constexpr Stage kStage = Stage::kFusedQkvOld;
  const bool legacy = context_.legacy_qkv && HasToken(context_.program, line, kFusedQkv) &&
                      NamesOf(context_.program, line).left.size() == 1 &&
                      NamesOf(context_.program, line).right.size() == 1;
  if (!HasToken(context_.program, line, kFusedQkvOld) && !legacy) return out.push_back(line);
  Fused fused;
  if (!ParseFused(line, kStage, fused) || !CheckHeads(line, kStage, fused)) return;
  const size_t n = fused.left.size(), m = fused.right.size();
  if (!((n == 1 && (m == 1 || m == 3)) || (n == 3 && m == 1))) {
    return Fail(
        line, kStage, Reason::kMappingMacro,
        absl::StrCat("Unsupported fused_qkv_old macro format: it maps 1 name to 1, 1 to 3 (q, k, v) or 3 to 1, ",
                     "not ", n, " to ", m));
  }
  const int64_t from = n == 1 ? ShardCount(line, kStage, fused.left[0], true) : 1;
  const int64_t to = m == 1 ? ShardCount(line, kStage, fused.right[0], false) : 1;
  if (from == 0 || to == 0) return;
  for (const auto& [shards, side] : {std::pair(from, "left"), std::pair(to, "right")}) {
    if (fused.heads % shards == 0 && fused.kv_heads % shards == 0) continue;
    return Fail(line, kStage, Reason::kMappingMacro,
                absl::StrCat("the tensor ", side, " of the arrow has ", shards, " shards, which do not divide its ",
                             fused.heads, " query heads and ", fused.kv_heads,
                             " KV heads; replicated KV heads have to be mapped before they are sharded"));
  }
  const std::vector<Symbol> q = FreeNames("fused_qkv_old_tmp.Q_", fused.heads);
  const std::vector<Symbol> k = FreeNames("fused_qkv_old_tmp.K_", fused.kv_heads);
  const std::vector<Symbol> v = FreeNames("fused_qkv_old_tmp.V_", fused.kv_heads);
  const auto blocks = [&](int64_t shards) {
    std::vector<Symbol> names;
    for (int64_t rank = 0; rank < shards; ++rank) {
      for (const auto* heads : {&q, &k, &v}) {
        const auto share = static_cast<int64_t>(heads->size()) / shards;
        Append(names, *heads, rank * share, share);
      }
    }
    return names;
  };
  if (n == 3 && context_.reverse && fused.heads != fused.kv_heads) {
    // Read backwards, a merge of q, k and v would be a split into equal parts, but these three are not equal.
    Emit(line, kStage, Part(fused.left, 0, 1), q, fused.axis, out);
    Emit(line, kStage, Part(fused.left, 1, 1), k, fused.axis, out);
    Emit(line, kStage, Part(fused.left, 2, 1), v, fused.axis, out);
    return Emit(line, kStage, blocks(to), fused.right, fused.axis, out);
  }
  std::vector<Symbol> whole = fused.left;
  if (n == 3) {
    const auto name = [&](size_t i) { return View(context_.symbols().Text(fused.left[i])); };
    whole = {FreeName(context_.program.symbols().Intern(absl::StrCat(name(0), ".", name(1), ".", name(2), ".tmp")))};
    Emit(line, kStage, fused.left, whole, fused.axis, out);
  }
  Emit(line, kStage, whole, blocks(from), fused.axis, out);
  if (m == 1) {
    Emit(line, kStage, blocks(to), fused.right, fused.axis, out);
  } else {
    Emit(line, kStage, q, {fused.right[0]}, fused.axis, out);
    Emit(line, kStage, k, {fused.right[1]}, fused.axis, out);
    Emit(line, kStage, v, {fused.right[2]}, fused.axis, out);
  }
}

// The layout is rank by rank: a rank's part of gate, then its part of up. Gate is the first half, up the second.
void TemporaryMacros::ExpandFusedFfn(LineId line, std::vector<LineId>& out) {
  constexpr Stage kStage = Stage::kFusedFfn;
  if (!HasToken(context_.program, line, kFusedFfn)) return out.push_back(line);
  Fused fused;
  if (!ParseFused(line, kStage, fused)) return;
  const size_t n = fused.left.size(), m = fused.right.size();
  if (!((n == 1 && (m == 1 || m == 2)) || (n == 2 && m == 1))) {
    return Fail(
        line, kStage, Reason::kMappingMacro,
        absl::StrCat("Unsupported fused_ffn macro format: it maps 1 name to 1, 1 to 2 (gate, up) or 2 to 1, not ", n,
                     " to ", m));
  }
  const int64_t from = n == 1 ? ShardCount(line, kStage, fused.left[0], true) : 1;
  const int64_t to = m == 1 ? ShardCount(line, kStage, fused.right[0], false) : 1;
  if (from == 0 || to == 0) return;
  const int64_t pieces = from / std::gcd(from, to) * to;
  if (pieces > static_cast<int64_t>(kMaxNamesPerStatement)) {
    return Fail(line, kStage, Reason::kMappingMacro, absl::StrCat(from, " and ", to, " shards need too many pieces"));
  }
  const std::vector<Symbol> gate = FreeNames("fused_ffn_tmp.GATE_", pieces);
  const std::vector<Symbol> up = FreeNames("fused_ffn_tmp.UP_", pieces);
  const auto blocks = [&](int64_t shards) {
    std::vector<Symbol> names;
    for (int64_t rank = 0; rank < shards; ++rank) {
      for (const auto* half : {&gate, &up}) Append(names, *half, rank * (pieces / shards), pieces / shards);
    }
    return names;
  };
  std::vector<Symbol> whole = fused.left;
  if (n == 2) {
    whole = {FreeName(context_.program.symbols().Intern(absl::StrCat(
        View(context_.symbols().Text(fused.left[0])), ".", View(context_.symbols().Text(fused.left[1])), ".tmp")))};
    Emit(line, kStage, fused.left, whole, fused.axis, out);
  }
  Emit(line, kStage, whole, blocks(from), fused.axis, out);
  if (m == 1) {
    Emit(line, kStage, blocks(to), fused.right, fused.axis, out);
  } else {
    Emit(line, kStage, gate, {fused.right[0]}, fused.axis, out);
    Emit(line, kStage, up, {fused.right[1]}, fused.axis, out);
  }
}

// The layout is KV head by KV head: its query heads, then K, then V. It does not depend on the number of ranks.
void TemporaryMacros::ExpandFusedQkv(LineId line, std::vector<LineId>& out) {
  constexpr Stage kStage = Stage::kFusedQkv;
  if (!HasToken(context_.program, line, kFusedQkv)) return out.push_back(line);
  Fused fused;
  if (!ParseFused(line, kStage, fused) || !CheckHeads(line, kStage, fused)) return;
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
  const auto heads = [&](size_t i, int64_t count) { return FreeNames(context_.symbols().Text(parts[i]), count); };
  const std::vector<Symbol> q = heads(0, fused.heads), k = heads(1, fused.kv_heads), v = heads(2, fused.kv_heads);
  const int64_t per_group = fused.heads / fused.kv_heads;
  std::vector<Symbol> order;
  for (int64_t group = 0; group < fused.kv_heads; ++group) {
    Append(order, q, group * per_group, per_group);
    order.push_back(k[group]);
    order.push_back(v[group]);
  }
  if (merging) {
    for (auto [i, names] : {std::pair(0, &q), std::pair(1, &k), std::pair(2, &v)}) {
      Emit(line, kStage, Part(parts, i, 1), *names, fused.axis, out);
    }
    Emit(line, kStage, order, fused.right, fused.axis, out);
  } else {
    Emit(line, kStage, fused.left, order, fused.axis, out);
    for (auto [i, names] : {std::pair(0, &q), std::pair(1, &k), std::pair(2, &v)}) {
      Emit(line, kStage, *names, Part(parts, i, 1), fused.axis, out);
    }
  }
}

}  // namespace cairn::aoa
