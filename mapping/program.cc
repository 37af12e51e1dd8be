#include "mapping/program.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace cairn::aoa {

std::string_view NameOf(Stage stage) {
  switch (stage) {
    case Stage::kLexer:
      return "lexer";
    case Stage::kLayerIdOffset:
      return "layer_id_offset";
    case Stage::kId:
      return "id";
    case Stage::kArray:
      return "array";
    case Stage::kStar:
      return "star";
    case Stage::kMappingChain:
      return "get_var_mapping_chain";
    case Stage::kTranspose:
      return "transpose";
    case Stage::kFusedQkvOld:
      return "fused_qkv_old";
    case Stage::kFusedFfn:
      return "fused_ffn";
    case Stage::kFusedQkv:
      return "fused_qkv";
    case Stage::kParser:
      return "parser";
    case Stage::kEngine:
      return "engine";
  }
  return "?";
}

size_t Program::Slot(Stage stage) {
  for (size_t i = 0; i < kMacroStages.size(); ++i) {
    if (kMacroStages[i] == stage) return i;
  }
  return 0;
}

void Program::FinishLine(Line& line) {
  line.count = static_cast<uint32_t>(tokens_.size()) - line.first;
  line.traits = 0;
  line.has_bracket = false;
  line.has_fused_flag = false;
  for (uint32_t i = 0; i < line.count; ++i) {
    const Token& token = tokens_[line.first + i];
    if (token.is(TokenKind::kIdentifier)) {
      line.traits |= symbols_.Traits(token.symbol);
      line.has_fused_flag |= token.symbol >= kFusedFfn && token.symbol <= kFusedQkv;
    } else if (token.is(TokenKind::kLeftBracket)) {
      line.has_bracket = true;
    }
  }
}

Program::AddResult Program::AddText(std::string_view text) {
  std::vector<Token> tokens;
  AddResult result;
  result.fault = Lex(text, symbols_, tokens);
  if (result.fault.has_value()) tokens.clear();
  // If the string has one statement, the user's text is the whole string; else it is the statement's own line.
  std::vector<std::pair<size_t, size_t>> runs;  // of tokens
  for (size_t from = 0, i = 0; i <= tokens.size(); ++i) {
    if (i < tokens.size() && !tokens[i].is(TokenKind::kNewline)) continue;
    if (i > from) runs.emplace_back(from, i);
    from = i + 1;
  }
  if (result.fault.has_value()) runs.emplace_back(0, 0);
  for (const auto& [from, to] : runs) {
    std::string_view own = text;
    if (runs.size() > 1) {
      const size_t begin = tokens[from].column;
      own = text.substr(begin, text.find_first_of("\r\n", begin) - begin);
      const absl::string_view trimmed = absl::StripAsciiWhitespace(absl::string_view(own.data(), own.size()));
      own = {trimmed.data(), trimmed.size()};
    }
    roots_.emplace_back(own);
    Line line{.first = static_cast<uint32_t>(tokens_.size()),
              .parent = kNoLine,
              .root = static_cast<uint32_t>(roots_.size() - 1),
              .made_by = Stage::kLexer};
    tokens_.insert(tokens_.end(), tokens.begin() + static_cast<ptrdiff_t>(from),
                   tokens.begin() + static_cast<ptrdiff_t>(to));
    FinishLine(line);
    lines_.push_back(line);
    current_.push_back(static_cast<LineId>(lines_.size() - 1));
  }
  if (result.fault.has_value()) {
    result.faulty = current_.back();
    current_.pop_back();
  }
  return result;
}

void Program::Reserve(size_t more) {
  constexpr size_t kUsualTokens = 6;
  lines_.reserve(lines_.size() + more);
  tokens_.reserve(tokens_.size() + kUsualTokens * more);
}

void Program::AppendText(LineId id, std::string& text) const {
  for (const Token& token : tokens(id)) AppendToken(token, symbols_, text);
}

std::string Program::Text(LineId id) const {
  std::string text;
  AppendText(id, text);
  return text;
}

void Program::Begin(LineId parent, Stage stage) {
  lines_.push_back({.first = static_cast<uint32_t>(tokens_.size()),
                    .parent = parent,
                    .root = lines_[parent].root,
                    .made_by = stage});
}

LineId Program::End() {
  FinishLine(lines_.back());
  return static_cast<LineId>(lines_.size() - 1);
}

}  // namespace cairn::aoa
