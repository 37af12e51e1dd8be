#include "cli/corpus/corpus_bpe_compare_command.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/input_files.h"
#include "cli/corpus/note.h"
#include "cli/corpus/pretokenizer_flag.h"
#include "cli/corpus/text_flags.h"
#include "cli/corpus/vocabulary_comparison.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/files_below.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"
#include "corpus/pipeline/load_tokenizer.h"
#include "corpus/pipeline/token_texts.h"
#include "corpus/pipeline/vocabulary_measure.h"

namespace cairn::cli {
namespace {

constexpr size_t kLongest = 10;
constexpr size_t kLongestBytes = 200;  // of one token that is shown

struct CompareArguments {
  std::vector<std::string> tokenizers;
  std::vector<std::string> texts;
  TextArguments reading;
  std::string html;
  std::string pretokenizer;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

absl::StatusOr<std::vector<corpus::NamedText>> TextsOf(const CompareArguments& arguments) {
  std::vector<corpus::NamedText> texts;
  for (const std::string& argument : arguments.texts) {
    CAIRN_ASSIGN_OR_RETURN(const auto named, NameAndValue("--text", argument));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> files, ExpandInputs({named.second}));
    auto text = std::find_if(texts.begin(), texts.end(), [&](const auto& t) { return t.name == named.first; });
    if (text == texts.end()) text = texts.insert(texts.end(), {named.first, {}, {}});
    text->files.insert(text->files.end(), files.begin(), files.end());
  }
  for (corpus::NamedText& text : texts) {
    auto lines = ReadTextArguments(arguments.reading, text.files);
    if (!lines.ok()) return Annotate(lines.status(), absl::StrCat("--text ", text.name));
    text.lines = *std::move(lines);
  }
  return texts;
}

size_t Characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Returns nothing if the file has no list of tokens that is read.
absl::StatusOr<std::vector<std::string>> LongestTokens(const std::string& tokenizer) {
  auto texts = corpus::ReadTokenTexts(tokenizer);
  if (texts.status().code() == absl::StatusCode::kUnimplemented) return std::vector<std::string>();
  CAIRN_RETURN_IF_ERROR(texts.status());
  std::sort(texts->begin(), texts->end(), [](const auto& a, const auto& b) {
    return std::pair(Characters(b.second), a.first) < std::pair(Characters(a.second), b.first);
  });
  std::vector<std::string> longest;
  for (size_t i = 0; i < std::min(kLongest, texts->size()); ++i) {
    longest.emplace_back(CutText(Printable((*texts)[i].second), kLongestBytes));
  }
  return longest;
}

absl::Status Compare(const CompareArguments& arguments, const CommandContext& context) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<corpus::NamedText> texts, TextsOf(arguments));
  for (const corpus::NamedText& text : texts) CAIRN_RETURN_IF_ERROR(CheckAreNoInputs({arguments.html}, text.files));
  for (const std::string& tokenizer : arguments.tokenizers) {
    CAIRN_RETURN_IF_ERROR(CheckAreNoInputs({arguments.html}, FilesOfTokenizer(tokenizer)));
  }
  ReplacementNote replacement(arguments.html.empty() ? std::vector<std::string>()
                                                     : std::vector<std::string>{arguments.html});
  const std::atomic<bool>& interrupted = InterruptFlag();
  corpus::MadeDirectory directory;
  std::unique_ptr<corpus::OutputFile> page;
  if (!arguments.html.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const corpus::OutputPlace place, corpus::FindReplaceable(arguments.html));
    CAIRN_ASSIGN_OR_RETURN(directory, corpus::MadeDirectory::Of(place.path));
    CAIRN_ASSIGN_OR_RETURN(page, corpus::OutputFile::Create(arguments.html, {.direct = false}));
  }
  uint64_t total = 0;
  VocabularyComparison comparison;
  for (const corpus::NamedText& text : texts) {
    comparison.texts.push_back(text.name);
    total += corpus::BytesOf(text.files) * arguments.tokenizers.size();
  }
  std::atomic<uint64_t> done = 0, read = 0;
  corpus::MeasureOptions options = {.threads = arguments.threads, .stop = &interrupted};
  options.progress = [&](uint64_t bytes) {
    read = bytes;
    replacement.WorkHasBegun();
    return !interrupted.load();
  };
  CAIRN_ASSIGN_OR_RETURN(const corpus::BpeLoadOptions load,
                         LoadOptionsFor(arguments.tokenizers, arguments.pretokenizer));
  {
    const auto start = Clock::Real().SteadyNow();
    const ProgressLine line([&] {
      return DescribeProgress("encoding", done + read, total, absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start));
    });
    for (const std::string& name : arguments.tokenizers) {
      CAIRN_ASSIGN_OR_RETURN(const auto tokenizer, corpus::LoadTokenizer(name, load));
      VocabularyComparison::Vocabulary vocabulary = {.name = name, .tokens = tokenizer->vocab_size()};
      for (const corpus::NamedText& text : texts) {
        CAIRN_ASSIGN_OR_RETURN(corpus::TextMeasure measure, corpus::MeasureText(*tokenizer, text, options));
        vocabulary.measures.push_back(std::move(measure));
        done += read.exchange(0);
      }
      CAIRN_ASSIGN_OR_RETURN(vocabulary.longest, LongestTokens(name));
      comparison.vocabularies.push_back(std::move(vocabulary));
    }
  }
  if (page != nullptr) {
    CAIRN_RETURN_IF_ERROR(page->Append(ComparisonPage(comparison)));
    CAIRN_RETURN_IF_ERROR(page->Finish());
    CAIRN_RETURN_IF_ERROR(page->Commit());
    replacement.WorkIsDone();
  }
  absl::PrintF("%s", context.json() ? JsonText(ComparisonJson(comparison)) + "\n" : ComparisonTables(comparison));
  return absl::OkStatus();
}

}  // namespace

void AddCorpusBpeCompareCommand(Command bpe, CommandContext& context) {
  auto arguments = std::make_shared<CompareArguments>();
  Command command = bpe.AddCommand("compare",
                                   "Shows how well tokenizers encode texts: bytes per token, tokens per word, unused "
                                   "tokens, the longest tokens");
  command
      .AddOption("TOKENIZER", arguments->tokenizers,
                 "A directory, a tokenizer.json of any kind, a SentencePiece *.model, a *.tiktoken or a vocab.json")
      .Required();
  command
      .AddOption(
          "--text", arguments->texts,
          "NAME=PATH: a text, each line of which is encoded by itself, or JSON lines (.jsonl), each of whose texts is; "
          "perhaps with .gz, .xz or .zst, or .parquet, .arrow, .feather or .tar. May be given several times, also for "
          "the same name")
      .Required()
      .OneEachTime();
  AddTextOptions(command, arguments->reading);
  command.AddOption("--html", arguments->html, "Also write the comparison as a page with charts to this file");
  command.AddOption("--pretokenizer", arguments->pretokenizer,
                    "The rule that cuts words, for files that do not have it (tiktoken), as for encode");
  command.AddOption("--threads", arguments->threads, "How many threads work at the same time")
      .Between(1, 1024)
      .ShowDefault();
  command.Footer(R"(Example:
  cairn corpus bpe compare tokenizer gpt2/tokenizer.json --text english=en.txt --text hindi=hi.txt.zst --html page.html)");
  command.Action([arguments, &context] { RunCorpusCommand(context, [&] { return Compare(*arguments, context); }); });
}

}  // namespace cairn::cli
