#include "cli/corpus/corpus_bpe_command.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/replaced_output.h"
#include "cli/corpus/train_on_engine.h"
#include "common/base/clock.h"
#include "common/file/atomic_write.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/encode_lines.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/bpe/trainer.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/bpe/word_runs.h"
#include "corpus/io/files_below.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/input_part.h"
#include "corpus/io/object_inputs.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"
#include "corpus/pipeline/load_tokenizer.h"

namespace cairn::cli {
namespace {

using corpus::Pretokenizer;

int DefaultThreads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start); }

struct TrainArguments {
  std::vector<std::string> inputs;
  uint32_t vocab_size = 0;
  std::string output;
  std::string pretokenizer;
  std::string pattern;
  std::vector<std::string> special_tokens;
  uint64_t min_frequency = 1;
  std::string tie_break = "bytes";
  bool by_line = false;
  int threads = 0;  // one for each core; of a task, 1
  EngineArguments engine;
  std::string json_key;
  std::string invalid_utf8 = "bytes";
  std::string memory;
  std::string temp_dir;
  bool resume = false;
  std::string checkpoint_every = "4GiB";
  std::string extend;
};

std::string TokenizerJson(const TrainArguments& arguments) { return arguments.output + "/tokenizer.json"; }

bool HasEnding(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

bool IsJsonLines(const std::string& input) {
  std::string name = input;
  for (const char* ending : {".gz", ".xz", ".zst"}) {
    if (HasEnding(name, ending)) name.resize(name.size() - std::string(ending).size());
  }
  return corpus::IsTable(name) || corpus::IsTar(name) || HasEnding(name, ".jsonl") || HasEnding(name, ".ndjson");
}

// A directory stands for the files below it. No shell expands patterns of objects.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (corpus::ObjectStores* const stores = corpus::StoresOf(input)) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> objects, corpus::FindObjects(*stores, input));
      files.insert(files.end(), objects.begin(), objects.end());
      continue;
    }
    std::error_code error;
    if (!std::filesystem::is_directory(input, error)) {
      files.push_back(input);
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> below, corpus::FilesBelow(input));
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

// Returns the directory in which the counts on disk get their own one.
absl::StatusOr<std::string> ParentOfCounts(const TrainArguments& arguments) {
  CAIRN_RETURN_IF_ERROR(corpus::CheckIsLocal("--temp-dir", arguments.temp_dir, "word counts are merged from there"));
  if (!arguments.temp_dir.empty()) return arguments.temp_dir;
  if (!arguments.engine.part.empty()) return std::string(DirectoryOf(arguments.output));
  if (corpus::StoresOf(arguments.output) == nullptr) return arguments.output;
  if (arguments.resume) {
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat("--resume keeps word counts beside --output, but ", arguments.output, " is in an object store"),
        {{"next", "Give --temp-dir a directory of this machine."}});
  }
  return corpus::ScratchDirectoryFor(TokenizerJson(arguments));
}

absl::StatusOr<corpus::TrainOptions> ToOptions(const TrainArguments& arguments) {
  corpus::TrainOptions options;
  CAIRN_ASSIGN_OR_RETURN(const std::string parent, ParentOfCounts(arguments));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(arguments.inputs));
  options.inputs = corpus::WholeInputs(files);
  const auto json_lines = static_cast<size_t>(std::count_if(files.begin(), files.end(), IsJsonLines));
  if (!arguments.json_key.empty() || json_lines == files.size()) {
    options.unit = corpus::TextUnit::kJson;
    options.json_key = arguments.json_key.empty() ? "text" : arguments.json_key;
    if (arguments.by_line) {
      return MakeError(Reason::kBadRequest,
                       "--by-line is for plain text: in JSON lines each object is a text of its own",
                       {{"next", "Leave --by-line out."}});
    }
  } else if (json_lines > 0) {
    return MakeError(Reason::kBadRequest,
                     "some inputs are JSON lines and some are not; train on one kind, or give --json-key for all",
                     {{"next", "Give only inputs of one kind, or --json-key."}});
  } else if (arguments.by_line) {
    options.unit = corpus::TextUnit::kLine;
  }
  CAIRN_ASSIGN_OR_RETURN(options.invalid_utf8, corpus::ParseInvalidUtf8(arguments.invalid_utf8));
  options.vocab_size = arguments.vocab_size;
  options.special_tokens = arguments.special_tokens;
  options.min_frequency = arguments.min_frequency;
  options.tie_break = arguments.tie_break == "huggingface" ? corpus::TieBreak::kHuggingFace : corpus::TieBreak::kBytes;
  options.threads = arguments.threads > 0 ? arguments.threads : DefaultThreads();
  if (!arguments.memory.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.memory));
    constexpr int64_t kLeast = int64_t{32} << 20;
    if (memory < kLeast)
      return MakeError(Reason::kBadRequest, "--memory is below 32MiB", {{"next", "Give --memory 32MiB or more."}});
    options.memory_bytes = static_cast<uint64_t>(memory);
  }
  CAIRN_ASSIGN_OR_RETURN(const int64_t every, ParseSize(arguments.checkpoint_every));
  options.checkpoint_bytes = static_cast<uint64_t>(every);
  options.resume = arguments.resume;
  if (!arguments.extend.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options.extend, corpus::LoadBpeVocabulary(arguments.extend));
  }
  // A resumed count must find what the last one left behind, while two other counts must not meet.
  constexpr std::string_view kCount = ".bpe-count";
  options.work_directory = absl::StrCat(parent, "/", std::string(kCount));
  if (!arguments.resume) {
    const std::string prefix = absl::StrCat(std::string(kCount), "-");
    corpus::RemoveLeftDirectories(parent, prefix);
    options.work_directory = absl::StrCat(parent, "/", prefix, corpus::FreshHiddenToken());
  }
  if (options.resume && std::count(files.begin(), files.end(), "-") > 0) {
    return MakeError(Reason::kBadRequest, "--resume cannot read standard input again; give a file",
                     {{"next", "Write the input to a file and give that, or leave --resume out."}});
  }
  return options;
}

absl::StatusOr<Pretokenizer> ChoosePretokenizer(const TrainArguments& arguments, const corpus::TrainOptions& options) {
  if (!arguments.pattern.empty()) return Pretokenizer::FromPattern(arguments.pattern);
  if (!arguments.pretokenizer.empty()) return Pretokenizer::Named(arguments.pretokenizer);
  return options.extend ? Pretokenizer::FromPattern(options.extend->pattern) : Pretokenizer::Named("gpt2");
}

// Counts the words of one part, and writes them to --output.
absl::Status TrainPart(const TrainArguments& arguments, corpus::TrainOptions options, const Pretokenizer& pretokenizer,
                       const CommandContext& context) {
  CAIRN_ASSIGN_OR_RETURN(const corpus::InputPart part, corpus::ParsePart(arguments.engine.part));
  CAIRN_ASSIGN_OR_RETURN(corpus::PartOfInputs found, corpus::FindPart(corpus::PathsOf(options.inputs), part,
                                                                      CutsForCounting(options, pretokenizer)));
  options.inputs = std::move(found.pieces);
  options.stop = &InterruptFlag();
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

// Refuses what does not fit to --engine and --part.
absl::Status CheckParts(const TrainArguments& arguments) {
  if (arguments.engine.part.empty() && arguments.engine.engine.empty()) return absl::OkStatus();
  const std::string flag = arguments.engine.part.empty() ? "--engine" : "--part";
  if (arguments.resume) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--resume does not go with ", flag),
                     {{"next", "Leave --resume out: only what is lost is counted again."}});
  }
  if (corpus::StoresOf(arguments.output) == nullptr || !arguments.temp_dir.empty()) return absl::OkStatus();
  return MakeError(Reason::kBadRequest,
                   absl::StrCat(flag, " keeps word counts in files, but --output is in an object store"),
                   {{"next", "Give --temp-dir a directory that all nodes share."}});
}

absl::Status Train(const TrainArguments& arguments, const CommandContext& context) {
  CAIRN_RETURN_IF_ERROR(CheckParts(arguments));
  CAIRN_ASSIGN_OR_RETURN(corpus::TrainOptions options, ToOptions(arguments));
  CAIRN_ASSIGN_OR_RETURN(const Pretokenizer pretokenizer, ChoosePretokenizer(arguments, options));
  if (!arguments.engine.part.empty()) return TrainPart(arguments, std::move(options), pretokenizer, context);
  if (corpus::StoresOf(arguments.output) != nullptr) {
    // The work may take hours, and only then something is written there.
    CAIRN_RETURN_IF_ERROR(corpus::OutputFile::Create(TokenizerJson(arguments), {}).status());
  }
  NoteReplaced({TokenizerJson(arguments), arguments.output + "/vocab.json", arguments.output + "/merges.txt",
                arguments.output + "/tokenizer.tiktoken"});
  const std::atomic<bool>& interrupted = InterruptFlag();
  options.stop = &interrupted;
  std::atomic<uint64_t> read = 0, merged = 0;
  options.progress = [&](const char* phase, uint64_t done) {
    (phase == std::string_view("merging") ? merged : read) = done;
    return !interrupted.load();
  };
  const auto start = Clock::Real().SteadyNow();
  absl::StatusOr<corpus::TrainSummary> trained;
  if (!arguments.engine.engine.empty()) {
    trained = TrainOnEngine(arguments.engine, options, pretokenizer, std::max(arguments.threads, 1),
                            TokenizerJson(arguments), arguments.temp_dir);
  } else {
    const uint64_t total = corpus::BytesOf(corpus::PathsOf(options.inputs));
    const ProgressLine line([&] {
      if (merged > 0) return absl::StrCat("merging: ", merged.load(), " of ", options.vocab_size);
      return DescribeProgress("counting words", read, total, SecondsSince(start));
    });
    trained = corpus::TrainBpe(options, pretokenizer);
  }
  CAIRN_ASSIGN_OR_RETURN(const corpus::TrainSummary summary, std::move(trained));
  CAIRN_RETURN_IF_ERROR(corpus::WriteVocabulary(summary.vocabulary, arguments.output));
  const double seconds = SecondsSince(start);
  const auto& vocabulary = summary.vocabulary;
  const auto specials = std::count_if(vocabulary.tokens.begin(), vocabulary.tokens.end(),
                                      [](const auto& token) { return token.special; });
  if (context.json()) {
    const nlohmann::ordered_json json = {{"output", arguments.output},
                                         {"vocab_size", vocabulary.tokens.size()},
                                         {"merges", vocabulary.merges.size()},
                                         {"special_tokens", specials},
                                         {"distinct_words", summary.count.distinct_words},
                                         {"input_bytes", summary.count.file_bytes},
                                         {"resumed", summary.count.resumed},
                                         {"spilled", summary.count.spilled},
                                         {"seconds", seconds}};
    absl::PrintF("%s\n", JsonText(json));
  } else {
    absl::PrintF("%s: %d tokens (%d merges, %d special) from %s, %d distinct words, in %.2f s\n", arguments.output,
                 vocabulary.tokens.size(), vocabulary.merges.size(), specials,
                 FormatSize(static_cast<int64_t>(summary.count.file_bytes)), summary.count.distinct_words, seconds);
  }
  if (vocabulary.tokens.size() < options.vocab_size) {
    absl::FPrintF(stderr, "note: no pair was left to merge after %d tokens, fewer than the %d asked for\n",
                  vocabulary.tokens.size(), options.vocab_size);
  }
  return absl::OkStatus();
}

void AddTrain(Command bpe, CommandContext& context) {
  auto arguments = std::make_shared<TrainArguments>();
  Command command =
      bpe.AddCommand("train", "Learns a byte-level BPE vocabulary from text and writes it as a tokenizer");
  command
      .AddOption(
          "INPUT", arguments->inputs,
          "Text or JSON lines (.jsonl), perhaps with .gz, .xz or .zst, or .parquet, .arrow, .feather or .tar: files or "
          "directories, also "
          "s3://BUCKET/KEY, quoted patterns of those; - is standard input")
      .Required();
  command
      .AddOption("--vocab-size", arguments->vocab_size,
                 "How many tokens the vocabulary has: 256 bytes, the merges and the special tokens together")
      .Required();
  command
      .AddOption("--output", arguments->output,
                 "Directory, or s3://BUCKET/PREFIX, for tokenizer.json, tokenizer_config.json, vocab.json, merges.txt, "
                 "tokenizer.tiktoken")
      .Required();
  const Argument name =
      command
          .AddOption("--pretokenizer", arguments->pretokenizer,
                     "The rule that cuts text into words. The default is gpt2; with --extend, that of the tokenizer")
          .OneOf({"gpt2", "gpt4", "cl100k", "llama3", "qwen2", "o200k", "whitespace"});
  command
      .AddOption("--pattern", arguments->pattern,
                 "A regular expression that cuts text into words; it is read as Hugging Face reads it")
      .Excludes(name);
  command
      .AddOption("--special-token", arguments->special_tokens,
                 "A token that is never merged with its neighbours. May be given several times")
      .OneEachTime()  // without it "[PAD]" would be read as a list
      ;
  command
      .AddOption("--min-frequency", arguments->min_frequency,
                 "A pair of tokens that occurs fewer times than this is not merged")
      .ShowDefault();
  command
      .AddOption("--tie-break", arguments->tie_break,
                 "Which of equally frequent pairs merges first: the one with the greatest bytes, or the one that "
                 "Hugging Face takes")
      .OneOf({"bytes", "huggingface"})
      .ShowDefault();
  command.AddFlag(
      "--by-line", arguments->by_line,
      "Read each line, with its newline, as a text of its own, as Hugging Face does; else a file is one text");
  command.AddOption("--json-key", arguments->json_key, "Key of the text in JSON lines (default: text)");
  command
      .AddOption("--invalid-utf8", arguments->invalid_utf8,
                 "What to do with bytes that are not UTF-8: learn them as they are, stop with an error, leave them "
                 "out, or read U+FFFD instead")
      .OneOf({"bytes", "error", "skip", "replace"})
      .ShowDefault();
  command
      .AddOption("--threads", arguments->threads,
                 "How many threads work at the same time; 0 means one for each core, or one in each task of --engine")
      .Between(0, 1024)
      .ShowDefault();
  command.AddOption(
      "--memory", arguments->memory,
      "Write word counts to disk when they need more memory than this, as 2GiB. There is no limit by default");
  command.AddOption("--temp-dir", arguments->temp_dir,
                    "The directory for word counts on disk. The default is that of --output; if it is in an object "
                    "store, that of TMPDIR");
  command.AddFlag("--resume", arguments->resume,
                  "Keep the word counts on disk; if the run ends early, the same command continues from them");
  command
      .AddOption("--checkpoint-every", arguments->checkpoint_every,
                 "With --resume: save the counts each time this much more input has been read")
      .ShowDefault();
  AddEngineOptions(command, arguments->engine);
  command.AddOption("--extend", arguments->extend,
                    "A tokenizer (directory or tokenizer.json) whose tokens keep their ids; merges are added to it");
  command.Footer(R"(Examples:
  cairn corpus bpe train corpus.txt --vocab-size 32768 --special-token '<|endoftext|>' --output tokenizer
  cairn corpus bpe train shard-*.jsonl.zst --vocab-size 128000 --pretokenizer o200k --output tokenizer --resume
  cairn corpus bpe train corpus.txt --vocab-size 32000 --tie-break huggingface --by-line --output like-hf)");
  command.Action([arguments, &context] {
    const absl::Status status = Train(*arguments, context);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

struct EncodeArguments {
  std::string tokenizer;
  std::string merges;
  std::string input;
  std::string output;
  std::string pretokenizer;
  int threads = DefaultThreads();
};

absl::Status Encode(const EncodeArguments& arguments) {
  CAIRN_RETURN_IF_ERROR(corpus::CheckIsNoInput(arguments.output, arguments.input));
  std::vector<std::string> input = {arguments.input};
  if (corpus::StoresOf(arguments.input) != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(input, FilesOf(input));
    if (input.size() > 1) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat(arguments.input, " means ", input.size(), " objects, but one text is encoded"),
                       {{"next", "Name one object."}});
    }
  }
  if (corpus::IsTable(input.front()) || corpus::IsTar(input.front())) {
    return MakeError(Reason::kUnsupported, absl::StrCat(input.front(), " is no text whose lines can be encoded"),
                     {{"file", input.front()}, {"next", "Use cairn corpus preprocess, which encodes its texts."}});
  }
  corpus::BpeLoadOptions load;
  if (!arguments.pretokenizer.empty()) load.pretokenizer = arguments.pretokenizer;
  CAIRN_ASSIGN_OR_RETURN(const auto tokenizer,
                         arguments.merges.empty()
                             ? corpus::LoadTokenizer(arguments.tokenizer, load)
                             : corpus::LoadGpt2Tokenizer(arguments.tokenizer, arguments.merges, load));
  if (!arguments.output.empty()) NoteReplaced({arguments.output});
  const std::atomic<bool>& interrupted = InterruptFlag();
  corpus::OutputFile::Options place;
  place.stream = true;
  place.stop = &interrupted;
  CAIRN_ASSIGN_OR_RETURN(const auto output,
                         corpus::OutputFile::Create(arguments.output.empty() ? "-" : arguments.output, place));
  corpus::EncodeLinesOptions options;
  options.stop = &interrupted;
  std::atomic<uint64_t> read = 0;
  options.input = input.front();
  options.threads = arguments.threads;
  options.write = [&](std::string_view bytes) { return output->Append(bytes); };
  options.progress = [&](uint64_t bytes) {
    read = bytes;
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
  return output->Commit();
}

void AddEncode(Command bpe, CommandContext& context) {
  auto arguments = std::make_shared<EncodeArguments>();
  Command command = bpe.AddCommand("encode", "Writes the token ids of each line of a text as a line of numbers");
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
                 "A text file, or s3://BUCKET/KEY; .gz, .xz and .zst are decompressed; - is standard input")
      .Required();
  command.AddOption("--output", arguments->output, "The file for the ids. The default is standard output");
  command.AddOption("--threads", arguments->threads, "How many threads work at the same time")
      .Between(1, 1024)
      .ShowDefault();
  command.Footer(R"(Examples:
  cairn corpus bpe encode --tokenizer tokenizer corpus.txt > ids.txt
  cairn corpus bpe encode --tokenizer cl100k_base.tiktoken corpus.txt.zst --output ids.txt)");
  command.Action([arguments, &context] {
    const absl::Status status = Encode(*arguments);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace

void AddCorpusBpeCommand(Command corpus, CommandContext& context) {
  Command bpe = corpus.AddCommand("bpe", "Trains byte-level BPE vocabularies, and encodes text by a tokenizer");
  bpe.RequireCommand();
  AddTrain(bpe, context);
  AddEncode(bpe, context);
}

}  // namespace cairn::cli
