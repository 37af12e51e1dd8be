#include "cli/corpus/vocabulary_comparison.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/terminal.h"
#include "common/base/printable.h"

namespace cairn::cli {
namespace {

using Vocabulary = VocabularyComparison::Vocabulary;

constexpr size_t kColours = 6;
constexpr size_t kLongestInTables = 3;
constexpr size_t kNameCharacters = 60;

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

std::string Rate(double rate) { return absl::StrFormat("%.2f", rate); }

std::string Quoted(const std::string& token) { return absl::StrCat("'", token, "'"); }

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A path's end tells more than its begin.
std::string ShortName(const std::string& name) {
  const std::string text = Printable(name);
  if (text.size() <= kNameCharacters) return text;
  size_t cut = text.size() - kNameCharacters;
  while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;
  return absl::StrCat("…", text.substr(cut));
}

constexpr char kStyle[] = R"(<style>
:root {
  color-scheme: light dark;
  --back: #ffffff; --card: #f5f6f8; --text: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --c0: #3f7fcf; --c1: #c9611f; --c2: #2f8f5b; --c3: #8a55c2; --c4: #a88413; --c5: #c2456f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171b; --card: #1e2228; --text: #e6e9ed; --soft: #a3acb7; --line: #39404a;
    --c0: #6fa3e6; --c1: #ea9158; --c2: #62bd8a; --c3: #b48be3; --c4: #d3b14a; --c5: #e67d9f;
  }
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 0.5em 1em 3em; max-width: 60em;
  background: var(--back); color: var(--text); }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin: 1.6em 0 0.3em; } p { color: var(--soft); margin: 0.2em 0 0.6em; }
svg { width: 100%; height: auto; } svg text { font: 13px system-ui, sans-serif; fill: var(--text); }
svg .axis { stroke: var(--line); } .value { font-variant-numeric: tabular-nums; }
.c0 { fill: var(--c0); background: var(--c0); } .c1 { fill: var(--c1); background: var(--c1); }
.c2 { fill: var(--c2); background: var(--c2); } .c3 { fill: var(--c3); background: var(--c3); }
.c4 { fill: var(--c4); background: var(--c4); } .c5 { fill: var(--c5); background: var(--c5); }
.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0.2em 1.4em; overflow-wrap: anywhere; }
.key span { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; border-radius: 2px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.25em 0.8em; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child, .text { text-align: left; }
th { white-space: nowrap; } td { overflow-wrap: break-word; max-width: 30em; }
code { white-space: pre-wrap; background: var(--card); border: 1px solid var(--line); border-radius: 3px;
  padding: 0 0.2em; margin: 0 0.3em 0.2em 0; display: inline-block; }
</style>
)";

// Draws a group of bars for each label, and in it one bar for each vocabulary.
std::string Chart(const std::vector<std::string>& labels, const std::vector<Vocabulary>& vocabularies,
                  const std::string& title, double (*value)(const Vocabulary&, size_t), std::string (*format)(double)) {
  constexpr int kWidth = 900, kLabel = 200, kValue = 70, kBar = 16, kGap = 14, kTextBase = 13;
  const auto count = static_cast<int>(vocabularies.size());
  const int group = count * kBar + kGap;
  double most = 0;
  for (const Vocabulary& vocabulary : vocabularies) {
    for (size_t i = 0; i < labels.size(); ++i) most = std::max(most, value(vocabulary, i));
  }
  const int height = static_cast<int>(labels.size()) * group;
  std::string svg =
      absl::StrFormat(R"(<svg viewBox="0 0 %d %d" role="img" aria-label="%s">)", kWidth, height, Escaped(title));
  for (size_t i = 0; i < labels.size(); ++i) {
    const int top = static_cast<int>(i) * group;
    std::string label = labels[i];
    if (label.size() > 26) label = absl::StrCat(std::string(CutText(label, 24)), "…");
    absl::StrAppendFormat(&svg, R"(<text x="%d" y="%d" text-anchor="end">%s</text>)", kLabel - 10,
                          top + count * kBar / 2 + 5, Escaped(label));
    for (size_t v = 0; v < vocabularies.size(); ++v) {
      const double number = value(vocabularies[v], i);
      const double width = most == 0 ? 0 : number / most * (kWidth - kLabel - kValue);
      const int y = top + static_cast<int>(v) * kBar;
      const std::string shown = format(number);
      absl::StrAppendFormat(&svg,
                            R"(<g><title>%s, %s: %s</title><rect class="c%d" x="%d" y="%d" width="%.1f" height="%d"/>)",
                            Escaped(ShortName(vocabularies[v].name)), Escaped(labels[i]), shown, v % kColours, kLabel,
                            y, width, kBar - 3);
      absl::StrAppendFormat(&svg, R"(<text class="value" x="%.1f" y="%d">%s</text></g>)", kLabel + width + 6,
                            y + kTextBase - 1, shown);
    }
  }
  absl::StrAppendFormat(&svg, R"(<line class="axis" x1="%d" y1="0" x2="%d" y2="%d"/></svg>)", kLabel, kLabel,
                        height - kGap);
  return svg;
}

}  // namespace

size_t Vocabulary::Unused() const {
  size_t used = 0;
  for (size_t id = 0; id < tokens; ++id) {
    used +=
        std::any_of(measures.begin(), measures.end(), [&](const auto& m) { return id < m.used.size() && m.used[id]; });
  }
  return tokens - used;
}

std::string ComparisonTables(const VocabularyComparison& comparison) {
  Table texts({"TEXT", "TOKENIZER", "BYTES", "TOKENS", "BYTES/TOKEN", "TOKENS/WORD"});
  for (size_t i = 0; i < comparison.texts.size(); ++i) {
    for (const Vocabulary& vocabulary : comparison.vocabularies) {
      const corpus::TextMeasure& measure = vocabulary.measures[i];
      texts.Add({comparison.texts[i], ShortName(vocabulary.name), absl::StrCat(measure.bytes),
                 absl::StrCat(measure.tokens), absl::StrFormat("%.3f", measure.bytes_per_token()),
                 absl::StrFormat("%.3f", measure.tokens_per_word())});
    }
  }
  Table vocabularies({"TOKENIZER", "SIZE", "UNUSED", "LONGEST TOKENS"});
  for (const Vocabulary& vocabulary : comparison.vocabularies) {
    std::string longest;
    for (size_t i = 0; i < std::min(kLongestInTables, vocabulary.longest.size()); ++i) {
      absl::StrAppend(&longest, i == 0 ? "" : " ", Quoted(vocabulary.longest[i]));
    }
    vocabularies.Add({ShortName(vocabulary.name), absl::StrCat(vocabulary.tokens), Percent(vocabulary.UnusedShare()),
                      vocabulary.longest.empty() ? "-" : longest});
  }
  return absl::StrCat(texts.ToString(), "\n", vocabularies.ToString());
}

nlohmann::ordered_json ComparisonJson(const VocabularyComparison& comparison) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Vocabulary& vocabulary : comparison.vocabularies) {
    nlohmann::ordered_json texts = nlohmann::ordered_json::array();
    for (size_t i = 0; i < comparison.texts.size(); ++i) {
      const corpus::TextMeasure& measure = vocabulary.measures[i];
      texts.push_back({{"text", comparison.texts[i]},
                       {"bytes", measure.bytes},
                       {"words", measure.words},
                       {"tokens", measure.tokens},
                       {"bytes_per_token", measure.bytes_per_token()},
                       {"tokens_per_word", measure.tokens_per_word()},
                       {"used_tokens", std::count(measure.used.begin(), measure.used.end(), true)}});
    }
    json.push_back({{"tokenizer", vocabulary.name},
                    {"vocab_size", vocabulary.tokens},
                    {"unused_tokens", vocabulary.Unused()},
                    {"texts", texts},
                    {"longest_tokens", vocabulary.longest}});
  }
  return json;
}

std::string ComparisonPage(const VocabularyComparison& comparison) {
  const std::vector<Vocabulary>& vocabularies = comparison.vocabularies;
  std::string page = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>Tokenizers compared</title>\n",
      kStyle, "</head>\n<body>\n<h1>Tokenizers compared</h1>\n<ul class=\"key\">\n");
  for (size_t v = 0; v < vocabularies.size(); ++v) {
    absl::StrAppend(&page, "<li><span class=\"c", v % kColours, "\"></span>", Escaped(ShortName(vocabularies[v].name)),
                    "</li>\n");
  }
  const auto bytes = [](const Vocabulary& vocabulary, size_t i) { return vocabulary.measures[i].bytes_per_token(); };
  const auto words = [](const Vocabulary& vocabulary, size_t i) { return vocabulary.measures[i].tokens_per_word(); };
  const auto unused = [](const Vocabulary& vocabulary, size_t) { return vocabulary.UnusedShare(); };
  absl::StrAppend(&page, "</ul>\n<h2>Bytes per token</h2>\n<p>More is better: the text has fewer tokens.</p>\n",
                  Chart(comparison.texts, vocabularies, "Bytes per token by text", bytes, Rate),
                  "\n<h2>Tokens per word</h2>\n<p>Fewer is better. Words stand between blanks, so the numbers of "
                  "languages without blanks compare only with each other.</p>\n",
                  Chart(comparison.texts, vocabularies, "Tokens per word by text", words, Rate),
                  "\n<h2>Unused tokens</h2>\n<p>They stand in none of the texts.</p>\n",
                  Chart({"all texts"}, vocabularies, "Share of unused tokens", unused, Percent),
                  "\n<h2>Numbers</h2>\n<div class=\"wide\"><table>\n<tr><th>Text</th><th class=\"text\">Tokenizer</th>"
                  "<th>Bytes</th><th>Words</th><th>Tokens</th><th>Bytes per token</th><th>Tokens per word</th></tr>\n");
  for (size_t i = 0; i < comparison.texts.size(); ++i) {
    for (const Vocabulary& vocabulary : vocabularies) {
      const corpus::TextMeasure& measure = vocabulary.measures[i];
      absl::StrAppend(&page, "<tr><td>", Escaped(comparison.texts[i]), "</td><td class=\"text\">",
                      Escaped(ShortName(vocabulary.name)), "</td><td>", measure.bytes, "</td><td>", measure.words,
                      "</td><td>", measure.tokens, "</td><td>", absl::StrFormat("%.3f", measure.bytes_per_token()),
                      "</td><td>", absl::StrFormat("%.3f", measure.tokens_per_word()), "</td></tr>\n");
    }
  }
  absl::StrAppend(&page,
                  "</table></div>\n<h2>Vocabularies</h2>\n<div class=\"wide\"><table>\n<tr><th>Tokenizer</th>"
                  "<th>Tokens</th><th>Unused</th><th class=\"text\">Longest tokens</th></tr>\n");
  for (const Vocabulary& vocabulary : vocabularies) {
    absl::StrAppend(&page, "<tr><td>", Escaped(ShortName(vocabulary.name)), "</td><td>", vocabulary.tokens, "</td><td>",
                    Percent(vocabulary.UnusedShare()), "</td><td class=\"text\">");
    for (const std::string& token : vocabulary.longest) absl::StrAppend(&page, "<code>", Escaped(token), "</code>");
    absl::StrAppend(&page, "</td></tr>\n");
  }
  return absl::StrCat(page, "</table></div>\n</body>\n</html>\n");
}

}  // namespace cairn::cli
