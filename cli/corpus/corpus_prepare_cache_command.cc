#include "cli/corpus/corpus_prepare_cache_command.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/corpus/corpus_error.h"
#include "common/base/clock.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/object_stores.h"
#include "corpus/sampler/description.h"
#include "corpus/sampler/prepare_cache.h"

namespace cairn::cli {
namespace {

constexpr const char* kHelp =
    R"(Example:
  cairn corpus prepare-cache --data-path 30 a_text_document 70 b_text_document --split 99,1,0 --seq-length 4096 \
      --train-samples 10000000 --global-batch-size 1024 --eval-interval 1000 --eval-iters 10 \
      --data-cache-path cache --tokenizer-identifiers tokenizer.json
Give the options as in the training run: Megatron-LM then finds all indices in --data-cache-path and builds none. The
files are byte for byte those of megatron-core. A run that was interrupted is continued by the same command.)";

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max() - 1;

struct Arguments {
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::string split = "969, 30, 1";
  std::string surplus = "0.005", cache_path, tokenizer_identifiers;
  uint32_t seed = 1234;
  std::optional<int64_t> train_samples, train_iters, valid_samples, test_samples, global_batch_size;
  int64_t eval_interval = 1000, eval_iters = 100;
  uint32_t sequence_length = 0;
  std::string memory;
  int threads = 0;
  bool full_validation = false, multiple_validation_sets = false, rebuild = false;
};

absl::Status Needs(const char* option, const std::string& what) {
  return MakeError(Reason::kBadRequest, absl::StrCat(option, " is missing: ", what),
                   {{"option", option}, {"next", absl::StrCat("Give ", option, " as in the training run.")}});
}

// The numbers of get_train_valid_test_num_samples in Megatron-LM's training.py.
absl::Status FillSamples(const Arguments& given, corpus::CacheOptions& options) {
  const bool counted = given.valid_samples.has_value() && given.test_samples.has_value();
  const bool needs_batch = !given.train_samples.has_value() || !counted;
  if (needs_batch && !given.global_batch_size.has_value()) {
    return Needs("--global-batch-size", "the numbers of samples follow from it");
  }
  if (!given.train_samples.has_value() && !given.train_iters.has_value()) {
    return Needs("--train-samples", "it, or --train-iters, says how long the run is");
  }
  const int64_t batch = given.global_batch_size.value_or(1);
  const int64_t iterations = given.train_iters.value_or(given.train_samples.value_or(0) / batch);
  const auto product = [](int64_t a, int64_t b) -> absl::StatusOr<uint64_t> {
    int64_t result;
    if (!__builtin_mul_overflow(a, b, &result)) return static_cast<uint64_t>(result);
    return MakeError(Reason::kBadRequest, absl::StrCat(a, " times ", b, " samples are too many"));
  };
  CAIRN_ASSIGN_OR_RETURN(const uint64_t train, product(iterations, batch));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t test, product(given.eval_iters, batch));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t valid,
                         product(iterations / given.eval_interval + 1, static_cast<int64_t>(test)));
  options.samples[0] = given.train_samples.has_value() ? static_cast<uint64_t>(*given.train_samples) : train;
  options.samples[1] = given.valid_samples.has_value() ? static_cast<uint64_t>(*given.valid_samples) : valid;
  options.samples[2] = given.test_samples.has_value() ? static_cast<uint64_t>(*given.test_samples) : test;
  if (given.full_validation) options.samples[1] = std::nullopt;
  return absl::OkStatus();
}

absl::StatusOr<corpus::CacheOptions> ToOptions(const Arguments& given) {
  if (given.cache_path.empty()) {
    return MakeError(Reason::kBadRequest, "--data-cache-path is empty", {{"next", "Name a directory."}});
  }
  corpus::CacheOptions options;
  const std::vector<std::string>* const own[] = {&given.train_data_path, &given.valid_data_path, &given.test_data_path};
  if (!given.data_path.empty()) {
    CAIRN_ASSIGN_OR_RETURN(options.data_path, corpus::ParseDataPath(given.data_path));
  }
  for (size_t split = 0; split < corpus::kSplits; ++split) {
    if (own[split]->empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(options.data_path_of[split], corpus::ParseDataPath(*own[split]));
  }
  options.split = given.split;
  CAIRN_RETURN_IF_ERROR(FillSamples(given, options));
  options.seed = given.seed;
  options.sequence_length = given.sequence_length;
  if (!absl::SimpleAtod(given.surplus, &options.surplus) || !(options.surplus >= 0) ||
      !std::isfinite(options.surplus)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--mid-level-dataset-surplus is a share, not \"", given.surplus, "\""),
                     {{"next", "Give a number of at least 0, as --mid-level-dataset-surplus 0.005."}});
  }
  options.multiple_validation_sets = given.multiple_validation_sets;
  CAIRN_ASSIGN_OR_RETURN(options.tokenizer, corpus::ReadTokenizerIdentifiers(given.tokenizer_identifiers));
  CAIRN_RETURN_IF_ERROR(
      corpus::CheckIsLocal("--data-cache-path", given.cache_path, "Megatron-LM maps these files into memory"));
  options.cache_path = given.cache_path;
  options.rebuild = given.rebuild;
  // Most datasets of a blend are small; their threads wait for the disk, so there are more of them than cores.
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  options.threads = given.threads > 0 ? given.threads : std::clamp(4 * cores, 4, 32);
  options.memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
  if (!given.memory.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(given.memory));
    options.memory = static_cast<uint64_t>(memory);
  }
  return options;
}

void Print(const CommandContext& context, const corpus::CacheOptions& options,
           const std::vector<corpus::CachedDataset>& cached) {
  if (context.json()) {
    nlohmann::ordered_json json = {{"cache_path", options.cache_path}, {"datasets", nlohmann::ordered_json::array()}};
    for (const corpus::CachedDataset& dataset : cached) {
      nlohmann::ordered_json one = {{"split", dataset.split}};
      if (!dataset.prefix.empty()) one["prefix"] = dataset.prefix;
      one["name"] = dataset.name;
      one["samples"] = dataset.samples;
      if (!dataset.prefix.empty()) one["epochs"] = dataset.epochs;
      one["kept"] = dataset.kept;
      json["datasets"].push_back(std::move(one));
    }
    absl::PrintF("%s\n", JsonText(json));
    return;
  }
  for (const corpus::CachedDataset& dataset : cached) {
    absl::PrintF("%-5s  %d samples%s of %s%s\n", dataset.split, dataset.samples,
                 dataset.prefix.empty() ? "" : absl::StrCat(" in ", dataset.epochs, " epochs"),
                 dataset.prefix.empty() ? "the blend" : ForTerminal(dataset.prefix),
                 dataset.kept ? " (was there)" : "");
  }
  absl::PrintF("cache  %s\n", ForTerminal(options.cache_path));
}

absl::Status RunPrepareCache(const CommandContext& context, const Arguments& given) {
  CAIRN_ASSIGN_OR_RETURN(const corpus::CacheOptions options, ToOptions(given));
  corpus::PrepareCacheProgress progress;
  absl::StatusOr<std::vector<corpus::CachedDataset>> cached;
  {
    const absl::Time start = Clock::Real().SteadyNow();
    const ProgressLine line([&] {
      const double seconds = absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start);
      return absl::StrFormat("dataset %d of %d, %d of %d million numbers, %.0f s", progress.datasets.load(),
                             progress.datasets_total.load(), progress.values.load() / 1000000,
                             progress.values_total.load() / 1000000, seconds);
    });
    cached = corpus::PrepareCache(options, InterruptFlag(), progress);
  }
  CAIRN_RETURN_IF_ERROR(cached.status());
  Print(context, options, *cached);
  return absl::OkStatus();
}

}  // namespace

void AddCorpusPrepareCacheCommand(Command corpus, CommandContext& context) {
  auto given = std::make_shared<Arguments>();
  Command app = corpus.AddCommand(
      "prepare-cache", "Builds Megatron-LM's GPTDataset and blend indices ahead, as its prepare_cache.py does");
  app.Footer(kHelp);
  const Argument data_path =
      app.AddOption("--data-path", given->data_path,
                    "Prefixes of .bin/.idx pairs, also s3://BUCKET/KEY, with or without a weight before each")
          .TakesMany();
  app.AddOption("--train-data-path", given->train_data_path, "The same for training alone, without --split")
      .TakesMany();
  app.AddOption("--valid-data-path", given->valid_data_path, "The same for validation alone").TakesMany();
  app.AddOption("--test-data-path", given->test_data_path, "The same for the test alone").TakesMany();
  app.AddOption("--split", given->split, "With --data-path: the shares of training, validation and test")
      .ShowDefault()
      .Needs(data_path);
  app.AddOption("--seq-length", given->sequence_length, "Tokens of a sample").Between(2, kMostTokens).Required();
  app.AddOption("--seed", given->seed, "The number that chooses the orders").Between(0, UINT32_MAX).ShowDefault();
  const Argument iterations =
      app.AddOption("--train-iters", given->train_iters, "The length of the run in steps").Between(0, INT64_MAX);
  app.AddOption("--train-samples", given->train_samples, "The length of the run in samples")
      .Between(0, INT64_MAX)
      .Excludes(iterations);
  app.AddOption("--global-batch-size", given->global_batch_size, "Samples of a step").Between(1, INT64_MAX);
  app.AddOption("--eval-interval", given->eval_interval, "Steps between validations")
      .Between(1, INT64_MAX)
      .ShowDefault();
  app.AddOption("--eval-iters", given->eval_iters, "Steps of a validation, and of the test")
      .Between(0, INT64_MAX)
      .ShowDefault();
  app.AddOption("--valid-samples", given->valid_samples,
                "Samples for all validations, if they do not follow from the options above (a batch size that grows); "
                "Megatron-LM prints them as \"datasets target sizes\"")
      .Between(0, INT64_MAX);
  app.AddOption("--test-samples", given->test_samples, "The same for the test").Between(0, INT64_MAX);
  app.AddFlag("--full-validation", given->full_validation, "Validate on one epoch of the validation split");
  app.AddFlag("--multiple-validation-sets", given->multiple_validation_sets,
              "Each prefix of --valid-data-path is a dataset of its own");
  app.AddOption("--mid-level-dataset-surplus", given->surplus,
                "The share of samples that is built of each weighted dataset beyond those that its weight needs")
      .ShowDefault();
  app.AddOption("--data-cache-path", given->cache_path, "The directory for the indices").Required();
  app.AddOption("--tokenizer-identifiers", given->tokenizer_identifiers,
                "A JSON file with the tokenizer's unique_identifiers, which are in the names of the files; or a "
                "description.txt of an earlier cache for the same tokenizer")
      .Required();
  app.AddOption("--num-dataset-builder-threads", given->threads,
                "How many datasets are built at the same time. The default is four for each core, 32 at most")
      .Between(1, 1024);
  app.AddOption(
      "--memory", given->memory,
      "The most memory that lengths and indices under construction may take, as 64GiB; about 12 bytes for each "
      "document, or 4 for each document of each epoch or each sample. The default is half of the machine's");
  app.AddFlag("--rebuild", given->rebuild, "Build files anew that are there already");
  app.Action([given, &context] { RunCorpusCommand(context, [&] { return RunPrepareCache(context, *given); }); });
}

}  // namespace cairn::cli
