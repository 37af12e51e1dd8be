#include "cli/corpus/corpus_bpe_train_command.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/input_files.h"
#include "cli/corpus/note.h"
#include "cli/corpus/train_flags.h"
#include "cli/corpus/train_on_engine.h"
#include "common/base/clock.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/trainer.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/io/bad_lines.h"
#include "corpus/io/files_below.h"
#include "corpus/io/input_part.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/output_file.h"

namespace cairn::cli {
namespace {

using corpus::Pretokenizer;

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start); }

std::string BadLinesLog(const TrainArguments& arguments) { return arguments.output + "/bad_lines.log"; }

// Says what --resume has found.
std::string Describe(const corpus::TrainResumption& found) {
  std::string text = absl::StrCat("--resume: ", found.text, found.text.empty() ? "" : ": ");
  if (!found.count.found && found.merges == 0) return text + "there is no earlier run to go on from, so all is done";
  if (!found.count.found) {
    text += "no word was counted";
  } else if (found.count.inputs_done >= found.inputs) {
    text += "an earlier run has counted the words of all inputs";
  } else {
    absl::StrAppend(&text, "an earlier run has counted the words of ", found.count.inputs_done, " of ", found.inputs,
                    " inputs, and of ", FormatSize(static_cast<int64_t>(found.count.offset)), " of the next one");
  }
  absl::StrAppend(&text, ", and made ", found.merges, " merges; the rest is done now");
  return text;
}

// Without development text the tokens of a group are counted in its own text, whose length says nothing about what the
// group needs.
void NoteUnevenGroups(const corpus::TrainOptions& options) {
  if (options.groups.size() < 2 || !options.groups.front().development.empty() || !options.parity.ratios.empty())
    return;
  std::vector<std::pair<uint64_t, std::string>> sizes;
  for (const corpus::TextGroup& group : options.groups) sizes.emplace_back(corpus::BytesOf(group.inputs), group.name);
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  PrintNote(
      absl::StrCat("without --development, each group gets as many tokens as its own text needs, so a group with "
                   "little text gets few: ",
                   ForTerminal(least->second), " has ", FormatSize(static_cast<int64_t>(least->first)), ", ",
                   ForTerminal(most->second), " has ", FormatSize(static_cast<int64_t>(most->first)),
                   ". Give --development NAME=PATH for each, with the same content, or --ratio"));
}

// Counts the words of one part, and writes them to --output.
absl::Status TrainPart(const TrainArguments& arguments, corpus::TrainOptions options, const Pretokenizer& pretokenizer,
                       const CommandContext& context) {
  options.stop = &InterruptFlag();
  CAIRN_ASSIGN_OR_RETURN(const auto directory, corpus::MadeDirectory::Of(arguments.output));
  CAIRN_ASSIGN_OR_RETURN(const corpus::InputPart part, corpus::ParsePart(arguments.engine.part));
  CAIRN_ASSIGN_OR_RETURN(corpus::PartOfInputs found, corpus::FindPart(corpus::PathsOf(options.inputs), part,
                                                                      CutsForCounting(options, pretokenizer)));
  options.inputs = std::move(found.pieces);
  CAIRN_ASSIGN_OR_RETURN(const corpus::CountedPart counted, CountPart(options, pretokenizer, arguments.output));
  if (context.json()) {
    const nlohmann::ordered_json json = {{"counts", counted.run.path},
                                         {"bytes", counted.run.bytes},
                                         {"crc32c", counted.run.crc32c},
                                         {"distinct_words", counted.summary.distinct_words},
                                         {"input_bytes", counted.summary.file_bytes},
                                         {"inputs", found.all}};  // CheckSameInputs
    absl::PrintF("%s\n", JsonText(json));
    return absl::OkStatus();
  }
  absl::PrintF("%s: the counts of %d distinct words\n", counted.run.path, counted.summary.distinct_words);
  return absl::OkStatus();
}

absl::Status Train(const TrainArguments& arguments, const CommandContext& context) {
  CAIRN_ASSIGN_OR_RETURN(corpus::TrainOptions options, ReadTrainArguments(arguments));
  CAIRN_ASSIGN_OR_RETURN(const Pretokenizer pretokenizer, ChoosePretokenizer(arguments, options));
  if (!arguments.engine.part.empty()) return TrainPart(arguments, std::move(options), pretokenizer, context);
  const std::atomic<bool>& interrupted = InterruptFlag();
  // The work may take hours, and only then something is written there.
  CAIRN_ASSIGN_OR_RETURN(const auto directory, corpus::MadeDirectory::Of(TokenizerJson(arguments)));
  CAIRN_RETURN_IF_ERROR(corpus::OutputFile::Create(TokenizerJson(arguments), {}).status());
  std::vector<std::string> outputs;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "tokenizer.tiktoken"}) {
    outputs.push_back(absl::StrCat(arguments.output, "/", name));
  }
  if (arguments.skip_bad_lines) outputs.push_back(BadLinesLog(arguments));
  CAIRN_RETURN_IF_ERROR(CheckAreNoInputs(outputs, AllInputs(options)));
  ReplacementNote replacement(outputs);
  NoteUnevenGroups(options);
  options.stop = &interrupted;
  std::unique_ptr<corpus::OutputFile> bad_lines;
  if (arguments.skip_bad_lines) {
    CAIRN_ASSIGN_OR_RETURN(bad_lines, corpus::OutputFile::Create(BadLinesLog(arguments), {}));
    options.bad_lines = [&](const std::string& input, const corpus::BadLines& bad) {
      return bad.Write(input, *bad_lines);
    };
  }
  std::atomic<uint64_t> read = 0, merged = 0;
  options.progress = [&](const char* phase, uint64_t done) {
    (phase == std::string_view("merging") ? merged : read) = done;
    replacement.WorkHasBegun();
    return !interrupted.load();
  };
  if (options.resume) options.resumption = [](const corpus::TrainResumption& found) { PrintNote(Describe(found)); };
  const auto start = Clock::Real().SteadyNow();
  absl::StatusOr<corpus::TrainSummary> trained;
  if (!arguments.engine.engine.empty()) {
    trained = TrainOnEngine(arguments.engine, options, pretokenizer, std::max(arguments.threads, 1),
                            TokenizerJson(arguments), arguments.temp_dir);
  } else {
    const uint64_t total = corpus::BytesOf(AllInputs(options));
    const ProgressLine line([&] {
      if (merged > 0) return absl::StrCat("merging: ", merged.load(), " of ", options.vocab_size);
      return DescribeProgress("counting words", read, total, SecondsSince(start));
    });
    trained = corpus::TrainBpe(options, pretokenizer);
  }
  CAIRN_ASSIGN_OR_RETURN(const corpus::TrainSummary summary, std::move(trained));
  if (bad_lines != nullptr) CAIRN_RETURN_IF_ERROR(bad_lines->Finish());
  CAIRN_RETURN_IF_ERROR(corpus::WriteVocabulary(summary.vocabulary, arguments.output));
  if (bad_lines != nullptr) CAIRN_RETURN_IF_ERROR(bad_lines->Commit());
  replacement.WorkIsDone();
  const double seconds = SecondsSince(start);
  const auto& vocabulary = summary.vocabulary;
  const auto specials = std::count_if(vocabulary.tokens.begin(), vocabulary.tokens.end(),
                                      [](const auto& token) { return token.special; });
  if (context.json()) {
    nlohmann::ordered_json json = {{"output", arguments.output},
                                   {"vocab_size", vocabulary.tokens.size()},
                                   {"merges", vocabulary.merges.size()},
                                   {"special_tokens", specials},
                                   {"distinct_words", summary.count.distinct_words},
                                   {"input_bytes", summary.count.file_bytes},
                                   {"resumed", summary.count.resumed},
                                   {"resumed_merges", summary.resumed_merges},
                                   {"spilled", summary.count.spilled},
                                   {"seconds", seconds}};
    if (arguments.skip_bad_lines) {
      json["bad_lines"] = summary.count.bad_lines;
      json["bad_lines_report"] = BadLinesLog(arguments);
    }
    absl::PrintF("%s\n", JsonText(json));
  } else {
    absl::PrintF("%s: %d tokens (%d merges, %d special) from %s, %d distinct words, in %.2f s\n", arguments.output,
                 vocabulary.tokens.size(), vocabulary.merges.size(), specials,
                 FormatSize(static_cast<int64_t>(summary.count.file_bytes)), summary.count.distinct_words, seconds);
    if (arguments.skip_bad_lines) {
      absl::PrintF("%s: %d bad lines, which were left out\n", BadLinesLog(arguments), summary.count.bad_lines);
    }
  }
  if (vocabulary.tokens.size() < options.vocab_size) {
    absl::FPrintF(stderr, "note: no pair was left to merge after %d tokens, fewer than the %d asked for\n",
                  vocabulary.tokens.size(), options.vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace

void AddCorpusBpeTrainCommand(Command bpe, CommandContext& context) {
  auto arguments = std::make_shared<TrainArguments>();
  Command command =
      bpe.AddCommand("train", "Learns a byte-level BPE vocabulary from text and writes it as a tokenizer");
  AddTrainOptions(command, *arguments);
  command.Footer(R"(Examples:
  cairn corpus bpe train corpus.txt --vocab-size 32768 --special-token '<|endoftext|>' --output tokenizer
  cairn corpus bpe train shard-*.jsonl.zst --vocab-size 128000 --pretokenizer o200k --output tokenizer --resume
  cairn corpus bpe train corpus.txt --vocab-size 32000 --tie-break huggingface --by-line --output like-hf
  cairn corpus bpe train corpus.txt --vocab-size 40000 --by-line --superwords-from tokenizer --output superwords)");
  command.Action([arguments, &context] { RunCorpusCommand(context, [&] { return Train(*arguments, context); }); });
}

}  // namespace cairn::cli
