#include "corpus/bpe/trainer.h"

#include <algorithm>
#include <filesystem>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/bpe/count_record.h"
#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/merge_record.h"
#include "corpus/bpe/merge_veto.h"
#include "corpus/bpe/parity_engine.h"
#include "corpus/bpe/word_runs.h"
#include "corpus/bpe/work_directory.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {
namespace {

constexpr uint32_t kBytes = 256;

// Returns the special tokens of a vocabulary, each once: those of the vocabulary that is extended, then new ones.
std::vector<std::string> AllSpecials(const TrainOptions& options) {
  std::vector<std::string> specials;
  absl::flat_hash_set<std::string> seen;
  if (options.extend) {
    for (const auto& token : options.extend->tokens) {
      if (token.special && seen.insert(token.bytes).second) specials.push_back(token.bytes);
    }
  }
  for (const std::string& token : options.special_tokens) {
    if (seen.insert(token).second) specials.push_back(token);
  }
  return specials;
}

absl::Status CheckGroups(const TrainOptions& options) {
  const auto bad = [](const std::string& what, const std::string& next) {
    return MakeError(Reason::kBadRequest, what, {{"next", next}});
  };
  const std::vector<TextGroup>& groups = options.groups;
  const std::vector<double>& ratios = options.parity.ratios;
  for (const TextGroup& group : groups) {
    if (group.inputs.empty()) return bad(absl::StrCat("the group ", group.name, " has no text"), "Give it --group.");
    if (group.development.empty() != groups.front().development.empty()) {
      const TextGroup& without = group.development.empty() ? group : groups.front();
      return bad(absl::StrCat("the group ", without.name, " has no development text, but others have"),
                 "Give --development for all groups or for none.");
    }
  }
  if (ratios.empty()) return absl::OkStatus();
  if (ratios.size() != groups.size()) return bad("not all groups have a ratio", "Give --ratio for all groups or none.");
  if (!groups.front().development.empty()) {
    return bad("ratios are for groups without development text", "Leave out --ratio or --development.");
  }
  return absl::OkStatus();
}

absl::Status Check(const TrainOptions& options, const std::vector<std::string>& specials) {
  for (const std::string& special : specials) {
    if (special.empty()) return MakeError(Reason::kBadRequest, "a special token is empty");
    const auto bytes = FromByteLevel(special);
    if (bytes.has_value() && bytes->size() == 1) {
      return MakeError(Reason::kBadRequest, absl::StrCat("the special token '", special,
                                                         "' is already the name of a byte; choose a longer one"));
    }
  }
  const uint64_t least = kBytes + specials.size();
  if (options.vocab_size < least) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--vocab-size ", options.vocab_size, " is below 256 bytes + ",
                                                       specials.size(), " special tokens = ", least));
  }
  CAIRN_RETURN_IF_ERROR(CheckGroups(options));
  if (!options.extend) return absl::OkStatus();
  const uint64_t grown = options.extend->tokens.size() + specials.size() -
                         static_cast<size_t>(std::count_if(options.extend->tokens.begin(), options.extend->tokens.end(),
                                                           [](const auto& token) { return token.special; }));
  if (options.vocab_size < grown) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--vocab-size ", options.vocab_size, " is below the ", grown,
                                  " tokens of the vocabulary to extend and the new special tokens"));
  }
  return absl::OkStatus();
}

// Puts the engine's tokens under the ids of a vocabulary.
BpeVocabulary Assemble(const TrainOptions& options, const std::vector<std::string>& specials, MergeResult result) {
  BpeVocabulary vocabulary;
  std::vector<uint32_t> id_of(result.tokens.size());
  const auto add = [&](const std::string& bytes, bool special) {
    vocabulary.tokens.push_back({bytes, special});
    return static_cast<uint32_t>(vocabulary.tokens.size() - 1);
  };
  if (options.extend) {
    vocabulary.tokens = options.extend->tokens;
    absl::flat_hash_map<std::string, uint32_t> known;
    absl::flat_hash_set<std::string> known_specials;
    for (uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
      const auto& token = vocabulary.tokens[id];
      if (token.special) {
        known_specials.insert(token.bytes);
      } else {
        known.emplace(token.bytes, id);
      }
    }
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const auto it = known.find(result.tokens[i]);
      id_of[i] = it != known.end() ? it->second : add(result.tokens[i], false);
    }
    for (const std::string& special : specials) {
      if (!known_specials.contains(special)) add(special, true);
    }
  } else {
    const bool specials_first = options.tie_break == TieBreak::kHuggingFace;
    if (specials_first) {
      for (const std::string& special : specials) add(special, true);
    }
    for (size_t i = 0; i < result.tokens.size(); ++i) id_of[i] = add(result.tokens[i], false);
    if (!specials_first) {
      for (const std::string& special : specials) add(special, true);
    }
  }
  for (const Merge& merge : result.merges) vocabulary.merges.emplace_back(id_of[merge.left], id_of[merge.right]);
  return vocabulary;
}

// Says on what the counts depend besides the inputs.
std::string CountSettings(const TrainOptions& options, const Pretokenizer& pretokenizer) {
  std::string settings = absl::StrCat(pretokenizer.pattern(), "\n", static_cast<int>(options.unit), "\n",
                                      static_cast<int>(options.invalid_utf8), "\n", options.json_key);
  for (const std::string& special : AllSpecials(options)) {
    absl::StrAppend(&settings, "\n", special.size(), " ", special);
  }
  return settings;
}

// Counts the words of inputs, one after the other, with the same options.
class Counting {
 public:
  Counting(const TrainOptions& options, const Pretokenizer& pretokenizer, const SpecialMatcher& specials)
      : options_(options), pretokenizer_(pretokenizer), specials_(specials) {}

  // `found` has what is to be told besides the count, if that is resumed.
  absl::Status Count(TrainResumption found, const std::vector<InputPiece>& inputs, const std::string& directory,
                     size_t parts, std::function<void(size_t, uint64_t, uint64_t)> expect, const WordVisitor& visit) {
    CountOptions counting = OptionsFor(inputs, directory);
    counting.resume = options_.resume;
    if (options_.resumption) {
      found.inputs = inputs.size();
      counting.resumption = [this, found](const CountResumption& count) mutable {
        found.count = count;
        options_.resumption(found);
      };
    }
    counting.parts = parts;
    counting.expect = std::move(expect);
    return Run(counting, visit);
  }

  // Gives the words in ascending order.
  absl::Status CountSorted(const std::vector<InputPiece>& inputs, const std::string& directory,
                           const WordVisitor& visit) {
    CountOptions counting = OptionsFor(inputs, directory);
    counting.sorted = true;
    return Run(counting, visit);
  }

  // Describes all counts together.
  const CountSummary& summary() const { return summary_; }

 private:
  CountOptions OptionsFor(const std::vector<InputPiece>& inputs, const std::string& directory) {
    CountOptions counting;
    counting.lines = {.unit = options_.unit, .json_key = options_.json_key, .max_line = options_.max_line};
    if (options_.unit == TextUnit::kFile) {
      counting.blocks.inputs = inputs;
    } else {
      counting.blocks = BlocksOfLines(counting.lines, inputs);
    }
    counting.blocks.invalid_utf8 = options_.invalid_utf8;
    counting.blocks.stop = options_.stop;
    counting.blocks.table_readers = TableReadersFor(options_.threads);
    counting.threads = options_.threads;
    counting.memory_bytes = options_.memory_bytes / 2;  // the other half is for the blocks and the engine
    counting.directory = directory;
    counting.checkpoint_bytes = options_.checkpoint_bytes;
    counting.settings = CountSettings(options_, pretokenizer_);
    counting.bad_lines = options_.bad_lines;
    if (options_.progress) {
      counting.progress = [this](uint64_t bytes) { return options_.progress("counting", summary_.file_bytes + bytes); };
    }
    return counting;
  }

  absl::Status Run(const CountOptions& counting, const WordVisitor& visit) {
    std::error_code error;
    std::filesystem::create_directories(counting.directory, error);
    if (error) return OutputError("create", counting.directory, error.value());
    CAIRN_ASSIGN_OR_RETURN(const CountSummary count, CountWords(counting, pretokenizer_, specials_, visit));
    summary_.file_bytes += count.file_bytes;
    summary_.distinct_words += count.distinct_words;
    summary_.bad_lines += count.bad_lines;
    summary_.resumed |= count.resumed;
    summary_.spilled |= count.spilled;
    return absl::OkStatus();
  }

  const TrainOptions& options_;
  const Pretokenizer& pretokenizer_;
  const SpecialMatcher& specials_;
  CountSummary summary_;
};

absl::Status CheckMemory(const TrainOptions& options, const CountSummary& count, uint64_t needed) {
  if (options.memory_bytes == 0 || needed <= options.memory_bytes) return absl::OkStatus();
  return MakeError(
      Reason::kMemoryLimit,
      absl::StrCat("merging the ", count.distinct_words, " distinct words takes about ",
                   FormatSize(static_cast<int64_t>(needed)), ", more than --memory ",
                   FormatSize(static_cast<int64_t>(options.memory_bytes)), "; raise it, or train on a sample"));
}

// Returns a digest of all on which the merges depend, but for their number.
std::string MergeFingerprint(const TrainOptions& options, const MergeOptions& merging,
                             const Pretokenizer& pretokenizer) {
  Digester digester;
  digester.Add("cairn bpe merges");
  digester.Add(CountFingerprint(PathsOf(options.inputs), CountSettings(options, pretokenizer)));
  digester.Add(merging.min_frequency).Add(options.vetoes.size());
  for (const std::string& veto : options.vetoes) digester.Add(veto);
  digester.Add(merging.first.size());
  for (const auto& [left, right] : merging.first) digester.Add(left).Add(right);
  return DigestHex(digester.Finish());
}

// Makes merging begin after the merges of an earlier run, and record its own.
size_t ResumeMerges(MergeRecord& record, MergeOptions& merging) {
  const size_t room = merging.wanted - std::min<size_t>(merging.wanted, merging.first.size());
  const size_t resumed = std::min(room, record.merges().size());
  merging.first.insert(merging.first.end(), record.merges().begin(),
                       record.merges().begin() + static_cast<ptrdiff_t>(resumed));
  merging.checkpoint = [&record, recorded = merging.first.size()](const MergeState& state) mutable {
    MergeRecord::Merges more;
    for (; recorded < state.merges().size(); ++recorded) {
      const Merge& merge = state.merges()[recorded];
      more.emplace_back(state.tokens()[merge.left], state.tokens()[merge.right]);
    }
    return record.Append(more);
  };
  return resumed;
}

absl::StatusOr<MergeResult> TrainTogether(const TrainOptions& options, const Pretokenizer& pretokenizer,
                                          MergeOptions merging, Counting& counting, size_t& resumed_merges) {
  std::optional<MergeRecord> record;
  if (options.resume && options.tie_break == TieBreak::kBytes) {
    CAIRN_ASSIGN_OR_RETURN(record, MergeRecord::Open(absl::StrCat(options.work_directory, "/merges"),
                                                     MergeFingerprint(options, merging, pretokenizer)));
    resumed_merges = ResumeMerges(*record, merging);
  }
  MergeEngine engine(std::move(merging));
  CAIRN_RETURN_IF_ERROR(counting.Count(
      {.merges = resumed_merges}, options.inputs, options.work_directory, engine.shards(),
      [&](size_t shard, uint64_t words, uint64_t bytes) { engine.Reserve(shard, words, bytes); },
      [&](size_t shard, std::string_view word, uint64_t times) { return engine.AddWord(shard, word, times); }));
  CAIRN_RETURN_IF_ERROR(CheckMemory(options, counting.summary(), engine.EstimatedBytes()));
  return engine.Run();
}

absl::StatusOr<MergeResult> TrainByGroups(const TrainOptions& options, const MergeOptions& merging,
                                          Counting& counting) {
  const bool development = !options.groups.front().development.empty();
  ParityEngine engine(merging, options.parity, options.groups.size(), development);
  for (size_t group = 0; group < options.groups.size(); ++group) {
    const auto count = [&](ParityEngine::Use use, const std::vector<std::string>& inputs, const char* name) {
      const char* const of = use == ParityEngine::Use::kWords ? "" : "development text of ";
      return counting.Count(
          {.text = absl::StrCat(of, options.groups[group].name)}, WholeInputs(inputs),
          absl::StrCat(options.work_directory, "/", name, "-", group), engine.shards(),
          [&](size_t shard, uint64_t words, uint64_t bytes) { engine.Reserve(group, use, shard, words, bytes); },
          [&](size_t shard, std::string_view word, uint64_t times) {
            return engine.AddWord(group, use, shard, word, times);
          });
    };
    CAIRN_RETURN_IF_ERROR(count(ParityEngine::Use::kWords, options.groups[group].inputs, "words"));
    if (!development) continue;
    CAIRN_RETURN_IF_ERROR(
        count(ParityEngine::Use::kDevelopmentWords, options.groups[group].development, "development"));
  }
  CAIRN_RETURN_IF_ERROR(CheckMemory(options, counting.summary(), engine.EstimatedBytes()));
  return engine.Run();
}

}  // namespace

PlaceToCut CutsForCounting(const TrainOptions& options, const Pretokenizer& pretokenizer) {
  if (options.unit != TextUnit::kFile) {
    return [](const RangedInput& input, uint64_t offset) { return FirstLineFrom(input, offset, '\n', false); };
  }
  // If bytes are left out or replaced, a cut shows only in what remains.
  const bool as_it_is = options.invalid_utf8 == InvalidUtf8::kBytes || options.invalid_utf8 == InvalidUtf8::kError;
  if (!pretokenizer.has_safe_cuts() || !as_it_is) return nullptr;
  return [&pretokenizer, specials = SpecialMatcher(AllSpecials(options))](const RangedInput& input, uint64_t offset) {
    return SafeCutBefore(input, offset, pretokenizer, specials);
  };
}

absl::StatusOr<CountedPart> CountPart(const TrainOptions& options, const Pretokenizer& pretokenizer,
                                      const std::string& path) {
  const std::vector<std::string> specials = AllSpecials(options);
  CAIRN_RETURN_IF_ERROR(Check(options, specials));
  CAIRN_ASSIGN_OR_RETURN(const auto work, WorkDirectory::Open(options.work_directory, /*resume=*/false));
  const SpecialMatcher matcher(specials);
  Counting counting(options, pretokenizer, matcher);
  CAIRN_ASSIGN_OR_RETURN(RunWriter run, RunWriter::Create(path));
  CAIRN_RETURN_IF_ERROR(
      counting.CountSorted(options.inputs, options.work_directory,
                           [&](size_t, std::string_view word, uint64_t times) { return run.Add(word, times); }));
  CountedPart part{counting.summary(), {}};
  CAIRN_ASSIGN_OR_RETURN(part.run, run.Finish());
  return part;
}

absl::Status RecordParts(const TrainOptions& options, const Pretokenizer& pretokenizer,
                         const std::vector<WordRun>& runs) {
  CountRecord record{CountFingerprint(PathsOf(options.inputs), CountSettings(options, pretokenizer)), runs, {}};
  record.position.input = options.inputs.size();
  return SaveCountRecord(options.work_directory, record);
}

absl::Status CheckTraining(const TrainOptions& options) {
  CAIRN_RETURN_IF_ERROR(MakeVeto(options.vetoes).status());
  return Check(options, AllSpecials(options));
}

absl::StatusOr<TrainSummary> TrainBpe(const TrainOptions& options, const Pretokenizer& pretokenizer) {
  const std::vector<std::string> specials = AllSpecials(options);
  CAIRN_RETURN_IF_ERROR(Check(options, specials));
  CAIRN_ASSIGN_OR_RETURN(const auto work, WorkDirectory::Open(options.work_directory, options.resume));
  const HugePageReuse reuse;  // the memory of the word tables then serves merging
  MergeOptions merging;
  merging.tie_break = options.tie_break;
  merging.min_frequency = std::max<uint64_t>(options.min_frequency, 1);
  merging.wanted = options.vocab_size - kBytes - static_cast<uint32_t>(specials.size());
  CAIRN_ASSIGN_OR_RETURN(merging.veto, MakeVeto(options.vetoes));
  merging.threads = static_cast<uint32_t>(options.threads);
  if (options.extend) {
    for (const auto& [left, right] : options.extend->merges) {
      merging.first.emplace_back(options.extend->tokens[left].bytes, options.extend->tokens[right].bytes);
    }
  }
  if (options.progress) {
    merging.progress = [&](uint32_t merges) { return options.progress("merging", merges); };
  }
  const SpecialMatcher matcher(specials);
  Counting counting(options, pretokenizer, matcher);
  size_t resumed_merges = 0;
  CAIRN_ASSIGN_OR_RETURN(MergeResult result, options.groups.empty() ? TrainTogether(options, pretokenizer, merging,
                                                                                    counting, resumed_merges)
                                                                    : TrainByGroups(options, merging, counting));
  TrainSummary summary = {Assemble(options, specials, std::move(result)), counting.summary(), resumed_merges};
  summary.vocabulary.pattern = pretokenizer.pattern();
  summary.vocabulary.gpt2_pretokenizer = pretokenizer.is_gpt2();
  work->Finished();
  return summary;
}

}  // namespace cairn::corpus
