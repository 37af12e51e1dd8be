#include "corpus/bpe/merge_veto.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "corpus/bpe/compiled_pattern.h"
#include "corpus/bpe/text_blocks.h"

namespace cairn::corpus {

absl::StatusOr<MergeVeto> MakeVeto(const std::vector<std::string>& patterns) {
  struct Rule {
    std::shared_ptr<const CompiledPattern> pattern;
    PatternMatcher matcher;
    std::string name;  // for messages
  };
  auto rules = std::make_shared<std::vector<std::unique_ptr<Rule>>>();
  for (const std::string& text : patterns) {
    const std::string name = absl::StrCat("--veto '", text, "'");
    auto pattern = CompiledPattern::Compile(text);
    if (!pattern.ok()) return Annotate(pattern.status(), name);
    const CompiledPattern& compiled = **pattern;
    rules->push_back(std::unique_ptr<Rule>(new Rule{*std::move(pattern), PatternMatcher(compiled), name}));
  }
  if (rules->empty()) return MergeVeto();
  return [rules](std::string_view bytes) -> absl::StatusOr<bool> {
    std::string text;
    RepairUtf8(bytes, InvalidUtf8::kReplace, true, text);
    for (const auto& rule : *rules) {
      const absl::StatusOr<PatternMatcher::Match> match = rule->matcher.Find(text, 0);
      if (!match.ok()) return Annotate(match.status(), rule->name);
      if (match->found) return true;
    }
    return false;
  };
}

std::vector<std::string> SuperwordVetoes() { return {": ", "[^ ]( +[^ ]+){4}"}; }

}  // namespace cairn::corpus
