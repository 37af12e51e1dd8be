#include "cli/corpus/shuffle_on_engine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_part.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"
#include "corpus/shuffle/shared_output.h"
#include "corpus/shuffle/shuffle_parts.h"

namespace cairn::cli {
namespace {

nlohmann::ordered_json ToJson(const corpus::LineMultiset& lines) {
  return nlohmann::ordered_json::array({lines.lines, lines.bytes, lines.sum_a, lines.sum_b});
}

corpus::LineMultiset MultisetFrom(const nlohmann::json& json) {
  return {json.at(0).get<uint64_t>(), json.at(1).get<uint64_t>(), json.at(2).get<uint64_t>(),
          json.at(3).get<uint64_t>()};
}

// What a bucket has got of all parts.
struct FilledBucket {
  std::vector<std::string> files;
  corpus::LineMultiset lines;
};

std::vector<FilledBucket> BucketsOf(const std::vector<nlohmann::json>& reports, uint32_t buckets) {
  std::vector<FilledBucket> filled(buckets);
  for (const nlohmann::json& report : reports) {
    for (uint32_t i = 0; i < buckets; ++i) {
      const corpus::LineMultiset lines = MultisetFrom(report.at("bucket_lines").at(i));
      if (lines.lines == 0) continue;
      filled[i].files.push_back(report.at("files").at(i).get<std::string>());
      filled[i].lines += lines;
    }
  }
  return filled;
}

// `number`: "3/8". The task writes a file of its own, or `at` a byte of one that all tasks write.
corpus::EngineTask SortTask(const corpus::ShuffleOptions& options, const FilledBucket& bucket,
                            const std::string& number, const std::string& output, std::optional<uint64_t> at,
                            const std::string& scratch) {
  corpus::EngineTask task{absl::StrCat("bucket ", number), {"corpus", "shuffle"}, std::nullopt, bucket.lines.bytes};
  task.words.insert(task.words.end(), bucket.files.begin(), bucket.files.end());
  task.words.insert(task.words.end(),
                    {"--bucket", number, "--seed", absl::StrCat(options.seed), "--memory", absl::StrCat(options.memory),
                     "--threads", absl::StrCat(options.threads), "--temp-dir", scratch, "--separator",
                     absl::StrFormat("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(options.separator)))});
  if (!options.direct) task.words.push_back("--buffered");
  if (at.has_value()) {
    task.words.insert(task.words.end(), {"--at", absl::StrCat(*at)});
  } else {
    task.output = task.words.size() + 1;
  }
  task.words.insert(task.words.end(), {"--output", output});
  return task;
}

absl::StatusOr<std::string> WorkParent(const corpus::ShuffleOptions& options) {
  const auto bad = [](const std::string& message, const std::string& next) {
    return MakeError(Reason::kBadRequest, message, {{"next", next}});
  };
  if (options.resume || options.no_scratch) {
    return bad(absl::StrCat(options.resume ? "--resume" : "--no-scratch", " does not go with --engine"),
               "Leave one of them out: on an engine only lost tasks are done again, and buckets are files.");
  }
  CAIRN_RETURN_IF_ERROR(corpus::CheckIsLocal("--temp-dir", options.temp_dir, "buckets are read and written there"));
  if (!options.temp_dir.empty()) return options.temp_dir;
  CAIRN_ASSIGN_OR_RETURN(const corpus::OutputPlace place, corpus::FindOutputPlace(options.output));
  if (!place.stream && !place.object) return "";
  return bad(absl::StrCat(options.output, " has no directory for the buckets of --engine"),
             "Give --temp-dir a directory that all nodes share.");
}

}  // namespace

std::string ChecksumText(const corpus::LineMultiset& lines) {
  return absl::StrFormat("%016x%016x", lines.sum_a, lines.sum_b);
}

absl::StatusOr<nlohmann::ordered_json> ScatterForEngine(const corpus::ShuffleOptions& options, const std::string& part,
                                                        uint32_t buckets) {
  CAIRN_ASSIGN_OR_RETURN(const corpus::InputPart parsed, corpus::ParsePart(part));
  CAIRN_ASSIGN_OR_RETURN(const corpus::ScatteredPart scattered,
                         corpus::ScatterPart(options, parsed, buckets, InterruptFlag()));
  nlohmann::ordered_json json = {{"files", scattered.files}, {"inputs", scattered.all}};  // CheckSameInputs
  for (const corpus::LineMultiset& lines : scattered.lines) json["bucket_lines"].push_back(ToJson(lines));
  return json;
}

absl::StatusOr<corpus::ShuffleReport> ShuffleOnEngine(const EngineArguments& arguments,
                                                      const corpus::ShuffleOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::string work_parent, WorkParent(options));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, corpus::ShuffleInputBytes(options));
  const std::atomic<bool>& interrupted = InterruptFlag();
  CAIRN_ASSIGN_OR_RETURN(const corpus::OutputPlace place, corpus::FindOutputPlace(options.output));
  corpus::MadeDirectory directory;
  if (!place.stream) {
    CAIRN_ASSIGN_OR_RETURN(directory, corpus::MadeDirectory::Of(place.path));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto run, EngineRun::Start(arguments, options.threads, options.output, work_parent));
  if (options.begins) options.begins();
  const uint32_t parts = run->PartsFor(bytes);
  const uint32_t buckets = std::min(parts, corpus::kMostBuckets);
  std::vector<std::string> words = WordsForTasks(
      {"--output", "-o", "--threads", "--temp-dir", "--split-lines", "--split-bytes", "--split-files", "--compress"});
  words.insert(words.end(), {"--threads", absl::StrCat(options.threads), "--buckets", absl::StrCat(buckets)});
  std::vector<corpus::EngineTask> tasks;
  for (uint32_t number = 1; number <= parts; ++number) {
    corpus::EngineTask task{absl::StrCat("part ", number, " of ", parts), words, std::nullopt, bytes / parts};
    task.words.insert(task.words.end(), {"--part", absl::StrCat(number, "/", parts), "--output"});
    task.output = task.words.size();
    task.words.push_back(run->PathOf("part", number));
    tasks.push_back(std::move(task));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> reports, run->Run("reading", tasks));
  CAIRN_RETURN_IF_ERROR(CheckSameInputs(reports));

  std::vector<FilledBucket> filled = BucketsOf(reports, buckets);
  std::vector<corpus::LineMultiset> sizes;
  corpus::LineMultiset all;
  for (const FilledBucket& bucket : filled) {
    sizes.push_back(bucket.lines);
    all += bucket.lines;
  }
  std::unique_ptr<corpus::SharedOutput> shared;
  CAIRN_ASSIGN_OR_RETURN(const bool fits, corpus::SharedOutput::Fits(options));
  if (fits) {
    CAIRN_ASSIGN_OR_RETURN(shared, corpus::SharedOutput::Create(options, sizes, interrupted));
  }
  std::vector<uint32_t> numbers;  // of the buckets that have lines
  tasks.clear();
  for (uint32_t i = 0; i < buckets; ++i) {
    if (filled[i].files.empty()) continue;
    numbers.push_back(i);
    const std::string number = absl::StrCat(i + 1, "/", buckets);
    tasks.push_back(
        shared != nullptr
            ? SortTask(options, filled[i], number, shared->path(), shared->OffsetOf(i), work_parent)
            : SortTask(options, filled[i], number, run->PathOf("sorted", i + 1), std::nullopt, work_parent));
  }
  std::vector<std::string> sorted;
  bool direct = options.direct;
  if (!tasks.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> found, run->Run("sorting", tasks));
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string checksum = found[i].at("multiset_checksum").get<std::string>();
      if (checksum != ChecksumText(filled[numbers[i]].lines)) {
        return MakeError(Reason::kChecksumMismatch,
                         absl::StrCat(tasks[i].name, " has not the lines that the parts gave it. Is a disk damaged?"));
      }
      if (shared != nullptr) shared->MarkWritten(numbers[i]);
      sorted.push_back(found[i].at("outputs").at(0).get<std::string>());
      direct = direct && found[i].at("direct_io").at("output").get<bool>();
    }
  }
  if (shared != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(corpus::ShuffleReport report, shared->Commit());
    report.scratch_bytes = all.bytes + all.lines;
    report.direct_output = direct;
    return report;
  }
  corpus::ShuffleProgress progress;
  const absl::Time start = Clock::Real().SteadyNow();
  const ProgressLine line([&] {
    return DescribeProgress("joining", progress.bytes_written, progress.bytes_total,
                            absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start));
  });
  CAIRN_ASSIGN_OR_RETURN(corpus::ShuffleReport report,
                         corpus::JoinBuckets(options, sorted, all, interrupted, &progress));
  report.scratch_bytes = all.bytes + all.lines;
  return report;
}

}  // namespace cairn::cli
