#include "cli/corpus/corpus_bpe_train_command.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/input_files.h"
#include "cli/corpus/replaced_output.h"
#include "cli/corpus/train_on_engine.h"
#include "common/base/clock.h"
#include "common/file/atomic_write.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/bpe/merge_veto.h"
#include "corpus/bpe/trainer.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/io/bad_lines.h"
#include "corpus/io/files_below.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/input_part.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"

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
  bool skip_bad_lines = false;
  std::string invalid_utf8 = "bytes";
  std::string memory;
  std::string temp_dir;
  bool resume = false;
  std::string checkpoint_every = "4GiB";
  std::string extend;
  std::string superwords_from;
  std::vector<std::string> vetoes;
  std::vector<std::string> groups;
  std::vector<std::string> development;
  std::vector<std::string> ratios;
  uint32_t together = 0;
  uint32_t window = 0;
  std::string alpha = "2";
};

std::string TokenizerJson(const TrainArguments& arguments) { return arguments.output + "/tokenizer.json"; }
std::string BadLinesLog(const TrainArguments& arguments) { return arguments.output + "/bad_lines.log"; }

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

// Returns the directory in which the counts on disk get their own one.
absl::StatusOr<std::string> ParentOfCounts(const TrainArguments& arguments) {
  CAIRN_RETURN_IF_ERROR(corpus::CheckIsLocal("--temp-dir", arguments.temp_dir, "word counts are merged from there"));
  const bool in_parts = !arguments.engine.engine.empty() || !arguments.engine.part.empty();
  const bool on_disk = !arguments.memory.empty() || arguments.resume || in_parts;
  if (!arguments.temp_dir.empty() && !on_disk) {
    return MakeError(Reason::kBadRequest, "--temp-dir has no effect: all word counts stay in memory",
                     {{"next", "Add --memory, above which they go there, or leave --temp-dir out."}});
  }
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

absl::StatusOr<double> PositiveNumber(const std::string& flag, const std::string& text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number) && number > 0) return number;
  return MakeError(Reason::kBadRequest, absl::StrCat(flag, ": '", text, "' is no positive number"), {});
}

absl::Status AddGroups(const TrainArguments& arguments, corpus::TrainOptions& options) {
  const auto find = [&](const std::string& name) {
    return std::find_if(options.groups.begin(), options.groups.end(), [&](const auto& g) { return g.name == name; });
  };
  const auto of_group = [&](const std::string& flag,
                            const std::string& text) -> absl::StatusOr<std::pair<size_t, std::string>> {
    CAIRN_ASSIGN_OR_RETURN(const auto value, NameAndValue(flag, text));
    const auto group = find(value.first);
    if (group != options.groups.end())
      return std::pair(static_cast<size_t>(group - options.groups.begin()), value.second);
    return MakeError(Reason::kBadRequest, absl::StrCat(flag, " ", text, ": no --group has this name"), {});
  };
  for (const std::string& text : arguments.groups) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, NameAndValue("--group", text));
    if (find(value.first) == options.groups.end()) options.groups.push_back({value.first, {}, {}});
    CAIRN_ASSIGN_OR_RETURN(const auto files, ExpandInputs({value.second}));
    auto& inputs = find(value.first)->inputs;
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  for (const std::string& text : arguments.development) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, of_group("--development", text));
    CAIRN_ASSIGN_OR_RETURN(const auto files, ExpandInputs({value.second}));
    auto& inputs = options.groups[value.first].development;
    inputs.insert(inputs.end(), files.begin(), files.end());
  }
  std::vector<double> ratios(options.groups.size());
  for (const std::string& text : arguments.ratios) {
    CAIRN_ASSIGN_OR_RETURN(const auto value, of_group("--ratio", text));
    CAIRN_ASSIGN_OR_RETURN(ratios[value.first], PositiveNumber("--ratio", value.second));
    options.parity.ratios = ratios;
  }
  if (!arguments.ratios.empty() && std::count(ratios.begin(), ratios.end(), 0.0) > 0) {
    return MakeError(Reason::kBadRequest, "not all groups have a ratio", {{"next", "Give --ratio for all or none."}});
  }
  options.parity.together = arguments.together;
  options.parity.window = arguments.window;
  CAIRN_ASSIGN_OR_RETURN(options.parity.alpha, PositiveNumber("--alpha", arguments.alpha));
  return absl::OkStatus();
}

std::vector<std::string> AllInputs(const corpus::TrainOptions& options) {
  std::vector<std::string> all = corpus::PathsOf(options.inputs);
  for (const corpus::TextGroup& group : options.groups) {
    all.insert(all.end(), group.inputs.begin(), group.inputs.end());
    all.insert(all.end(), group.development.begin(), group.development.end());
  }
  return all;
}

absl::StatusOr<corpus::TrainOptions> ToOptions(const TrainArguments& arguments) {
  corpus::TrainOptions options;
  CAIRN_ASSIGN_OR_RETURN(const std::string parent, ParentOfCounts(arguments));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> files, ExpandInputs(arguments.inputs));
  options.inputs = corpus::WholeInputs(files);
  CAIRN_RETURN_IF_ERROR(AddGroups(arguments, options));
  if (options.inputs.empty() == options.groups.empty()) {
    return MakeError(Reason::kBadRequest, "the text is given either as INPUT or as --group",
                     {{"option", "INPUT"}, {"next", "Give files, or --group NAME=PATH for each group."}});
  }
  const std::vector<std::string> inputs = AllInputs(options);
  const auto json_lines = static_cast<size_t>(std::count_if(inputs.begin(), inputs.end(), IsJsonLines));
  if (!arguments.json_key.empty() || json_lines == inputs.size()) {
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
  if (arguments.skip_bad_lines && options.unit != corpus::TextUnit::kJson) {
    return MakeError(Reason::kBadRequest, "--skip-bad-lines is for JSON lines: in plain text no line is bad",
                     {{"next", "Leave --skip-bad-lines out."}});
  }
  if (arguments.skip_bad_lines && arguments.resume) {
    return MakeError(Reason::kBadRequest, "--skip-bad-lines describes the lines of one run, and --resume has several",
                     {{"next", "Leave --resume or --skip-bad-lines out."}});
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
  const std::string& extended = arguments.extend.empty() ? arguments.superwords_from : arguments.extend;
  if (!extended.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options.extend, corpus::LoadBpeVocabulary(extended));
  }
  options.vetoes = arguments.vetoes;
  if (options.vetoes.empty() && !arguments.superwords_from.empty()) options.vetoes = corpus::SuperwordVetoes();
  CAIRN_RETURN_IF_ERROR(corpus::MakeVeto(options.vetoes).status());  // told before hours of counting
  // A resumed count must find what the last one left behind, while two other counts must not meet.
  constexpr std::string_view kCount = ".bpe-count";
  options.work_directory = absl::StrCat(parent, "/", std::string(kCount));
  if (!arguments.resume) {
    const std::string prefix = absl::StrCat(std::string(kCount), "-");
    corpus::RemoveLeftDirectories(parent, prefix);
    options.work_directory = absl::StrCat(parent, "/", prefix, corpus::FreshHiddenToken());
  }
  if (options.resume && std::count(inputs.begin(), inputs.end(), "-") > 0) {
    return MakeError(Reason::kBadRequest, "--resume cannot read standard input again; give a file",
                     {{"next", "Write the input to a file and give that, or leave --resume out."}});
  }
  return options;
}

absl::StatusOr<Pretokenizer> ChoosePretokenizer(const TrainArguments& arguments, const corpus::TrainOptions& options) {
  if (!arguments.pattern.empty()) {
    absl::StatusOr<Pretokenizer> rule = Pretokenizer::FromPattern(arguments.pattern);
    return rule.ok() ? std::move(rule) : Annotate(rule.status(), "--pattern");
  }
  if (!arguments.pretokenizer.empty()) return Pretokenizer::Named(arguments.pretokenizer);
  if (!arguments.superwords_from.empty()) return Pretokenizer::FromPattern(corpus::kSuperwordPattern);
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
  if (!arguments.groups.empty()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--group does not go with ", flag),
                     {{"next", absl::StrCat("Leave ", flag, " out, or give all files as INPUT.")}});
  }
  if (arguments.skip_bad_lines) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--skip-bad-lines does not go with ", flag),
                     {{"next", absl::StrCat("Leave ", flag, " out, or correct the lines.")}});
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
  std::unique_ptr<corpus::OutputFile> bad_lines;
  if (arguments.skip_bad_lines) {
    NoteReplaced({BadLinesLog(arguments)});
    CAIRN_RETURN_IF_ERROR(corpus::MakeDirectoryOf(BadLinesLog(arguments)));
    CAIRN_ASSIGN_OR_RETURN(bad_lines, corpus::OutputFile::Create(BadLinesLog(arguments), {}));
    options.bad_lines = [&](const std::string& input, const corpus::BadLines& bad) {
      return bad.Write(input, *bad_lines);
    };
  }
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
  command.AddOption(
      "INPUT", arguments->inputs,
      "Text or JSON lines (.jsonl), perhaps with .gz, .xz or .zst, or .parquet, .arrow, .feather or .tar: files or "
      "directories, also "
      "s3://BUCKET/KEY, quoted patterns of those; - is standard input");
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
  command.AddFlag("--skip-bad-lines", arguments->skip_bad_lines,
                  "Leave bad JSON lines out, and describe each in bad_lines.log beside the tokenizer. By default the "
                  "first one ends the run");
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
  const Argument resume = command.AddFlag(
      "--resume", arguments->resume,
      "Keep the word counts and the merges on disk; if the run ends early, the same command continues from them");
  command
      .AddOption("--checkpoint-every", arguments->checkpoint_every,
                 "With --resume: save the counts each time this much more input has been read")
      .ShowDefault()
      .Needs(resume);
  AddEngineOptions(command, arguments->engine);
  const Argument extend = command.AddOption(
      "--extend", arguments->extend,
      "A tokenizer (directory or tokenizer.json) whose tokens keep their ids; merges are added to it");
  command
      .AddOption("--superwords-from", arguments->superwords_from,
                 "Like --extend, but text is no longer cut at blanks, so the new tokens may have several words (the "
                 "second stage of SuperBPE)")
      .Excludes(extend);
  command
      .AddOption(
          "--veto", arguments->vetoes,
          "A regular expression; a token in which it finds a match is not made. May be given several times. With "
          "--superwords-from the default refuses a blank behind a colon, and more than four words")
      .OneEachTime();
  const Argument group =
      command
          .AddOption("--group", arguments->groups,
                     "NAME=PATH instead of INPUT: text of a group, as of a language. Merges are chosen so that the "
                     "groups have equally many tokens. May be given several times, also for the same group")
          .OneEachTime();
  command
      .AddOption("--development", arguments->development,
                 "NAME=PATH: text of the same content in each group, in which the tokens are counted. The default is "
                 "the text of --group")
      .OneEachTime()
      .Needs(group);
  command
      .AddOption("--ratio", arguments->ratios,
                 "NAME=NUMBER: how many bytes a token of the group should have in proportion to other groups, instead "
                 "of equally many tokens")
      .OneEachTime()
      .Needs(group);
  const Argument window =
      command
          .AddOption("--window", arguments->window,
                     "With --group: a group that had too many of so many last merges has to wait. 0: none waits")
          .ShowDefault()
          .Needs(group);
  command
      .AddOption("--alpha", arguments->alpha,
                 "With --window: too many are this many times the window divided by the number of groups")
      .ShowDefault()
      .Needs(window);
  command
      .AddOption("--global-merges", arguments->together,
                 "With --group: so many merges are first chosen by all text together")
      .ShowDefault()
      .Needs(group);
  command.Footer(R"(Examples:
  cairn corpus bpe train corpus.txt --vocab-size 32768 --special-token '<|endoftext|>' --output tokenizer
  cairn corpus bpe train shard-*.jsonl.zst --vocab-size 128000 --pretokenizer o200k --output tokenizer --resume
  cairn corpus bpe train corpus.txt --vocab-size 32000 --tie-break huggingface --by-line --output like-hf
  cairn corpus bpe train corpus.txt --vocab-size 40000 --by-line --superwords-from tokenizer --output superwords)");
  command.Action([arguments, &context] {
    const absl::Status status = Train(*arguments, context);
    if (!status.ok()) context.exit_status = ReportError(context, status);
  });
}

}  // namespace cairn::cli
