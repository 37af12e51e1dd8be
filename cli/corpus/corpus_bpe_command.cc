#include "cli/corpus/corpus_bpe_command.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/corpus_bpe_compare_command.h"
#include "cli/corpus/corpus_bpe_train_command.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/input_files.h"
#include "cli/corpus/note.h"
#include "cli/corpus/pretokenizer_flag.h"
#include "cli/corpus/text_flags.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/encode_lines.h"
#include "corpus/io/files_below.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"
#include "corpus/pipeline/load_tokenizer.h"

namespace cairn::cli {
namespace {

int DefaultThreads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start); }

struct EncodeArguments {
  std::string tokenizer;
  std::string merges;
  std::string input;
  std::string output;
  std::string pretokenizer;
  TextArguments text;
  int threads = DefaultThreads();
};

absl::Status Encode(const EncodeArguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> input, ExpandInputs({arguments.input}));
  if (input.size() > 1) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat(arguments.input, " means ", input.size(), " files, but one is encoded"),
                     {{"next", "Name one file."}});
  }
  std::vector<std::string> read_files = FilesOfTokenizer(arguments.tokenizer);
  read_files.insert(read_files.end(), {input.front(), arguments.merges});
  CAIRN_RETURN_IF_ERROR(CheckAreNoInputs({arguments.output}, read_files));
  corpus::EncodeLinesOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.lines, ReadTextArguments(arguments.text, input));
  CAIRN_ASSIGN_OR_RETURN(
      const corpus::BpeLoadOptions load,
      LoadOptionsFor({arguments.merges.empty() ? arguments.tokenizer : "vocab.json"}, arguments.pretokenizer));
  CAIRN_ASSIGN_OR_RETURN(const auto tokenizer,
                         arguments.merges.empty()
                             ? corpus::LoadTokenizer(arguments.tokenizer, load)
                             : corpus::LoadGpt2Tokenizer(arguments.tokenizer, arguments.merges, load));
  const std::string out = arguments.output.empty() ? "-" : arguments.output;
  ReplacementNote replacement({out});
  const std::atomic<bool>& interrupted = InterruptFlag();
  corpus::OutputFile::Options place;
  place.stream = true;
  place.stop = &interrupted;
  CAIRN_ASSIGN_OR_RETURN(const corpus::OutputPlace found, corpus::FindOutputPlace(out));
  corpus::MadeDirectory directory;
  if (!found.stream) {
    CAIRN_ASSIGN_OR_RETURN(directory, corpus::MadeDirectory::Of(found.path));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto output, corpus::OutputFile::Create(out, place));
  options.stop = &interrupted;
  std::atomic<uint64_t> read = 0;
  options.input = input.front();
  options.threads = arguments.threads;
  options.write = [&](std::string_view bytes) { return output->Append(bytes); };
  options.progress = [&](uint64_t bytes) {
    read = bytes;
    replacement.WorkHasBegun();
    return !interrupted.load();
  };
  {
    const uint64_t total = corpus::BytesOf(input);
    const auto start = Clock::Real().SteadyNow();
    std::optional<ProgressLine> line;  // not on a terminal that ids are written to
    if (!arguments.output.empty()) {
      line.emplace([&] { return DescribeProgress("encoding", read, total, SecondsSince(start)); });
    }
    CAIRN_RETURN_IF_ERROR(corpus::EncodeLines(*tokenizer, options).status());
  }
  CAIRN_RETURN_IF_ERROR(output->Commit());
  replacement.WorkIsDone();
  return absl::OkStatus();
}

void AddEncode(Command bpe, CommandContext& context) {
  auto arguments = std::make_shared<EncodeArguments>();
  Command command =
      bpe.AddCommand("encode", "Writes the token ids of each line, or of each JSON line's text, as a line of numbers");
  command
      .AddOption("--tokenizer", arguments->tokenizer,
                 "A directory, a tokenizer.json of any kind, a SentencePiece *.model, a *.tiktoken, or a vocab.json "
                 "beside its "
                 "merges.txt")
      .Required();
  command.AddOption("--merges", arguments->merges, "merges.txt, if it does not stand beside vocab.json");
  command.AddOption("--pretokenizer", arguments->pretokenizer,
                    "The rule that cuts words, if the file does not have it (tiktoken): a name as for train, or a "
                    "regular expression");
  command
      .AddOption("INPUT", arguments->input,
                 "A file of lines of text or of JSON lines (.jsonl), perhaps with .gz, .xz or .zst, or .parquet, "
                 ".arrow, .feather or .tar, also s3://BUCKET/KEY; - is standard input")
      .Required();
  command.AddOption("--output", arguments->output, "The file for the ids. The default is standard output");
  AddTextOptions(command, arguments->text);
  command.AddOption("--threads", arguments->threads, "How many threads work at the same time")
      .Between(1, 1024)
      .ShowDefault();
  command.Footer(R"(Examples:
  cairn corpus bpe encode --tokenizer tokenizer corpus.txt > ids.txt
  cairn corpus bpe encode --tokenizer cl100k_base.tiktoken corpus.txt.zst --output ids.txt)");
  command.Action([arguments, &context] { RunCorpusCommand(context, [&] { return Encode(*arguments); }); });
}

}  // namespace

void AddCorpusBpeCommand(Command corpus, CommandContext& context) {
  Command bpe = corpus.AddCommand("bpe",
                                  "Trains byte-level BPE vocabularies, encodes text by a tokenizer, and compares "
                                  "tokenizers");
  bpe.RequireCommand();
  AddCorpusBpeTrainCommand(bpe, context);
  AddEncode(bpe, context);
  AddCorpusBpeCompareCommand(bpe, context);
}

}  // namespace cairn::cli
