#include "corpus/shuffle/shuffle.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"
#include "corpus/io/output_place.h"
#include "corpus/shuffle/shuffle_job.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSlack = uint64_t{16} << 20;         // the contract allows this much above the budget
constexpr uint64_t kSmallThings = uint64_t{6} << 20;    // stacks, heap, what the kernel rounds up
constexpr uint64_t kOutputBuffers = uint64_t{3} << 20;  // for OutputFile
constexpr uint64_t kFrameMemory = uint64_t{4} << 20;    // for one compressing thread: text, frame, tables
constexpr uint64_t kObjectPart = uint64_t{8} << 20;     // of an output in an object store
constexpr uint64_t kStoreMemory = uint64_t{8} << 20;    // for the requests to an object store
constexpr uint64_t kDecoderMemory = uint64_t{1} << 20;  // for one reader of compressed files, without its window
constexpr uint64_t kLeastRegion = uint64_t{8} << 20;
constexpr size_t kSampleBytes = 256 << 10;
constexpr size_t kEntriesWithoutWork = 2;  // of a journal: what is shuffled, and the plan
// The first guess is that texts are this many times larger than their compressed form.
constexpr uint64_t kGuessedRatio = 4;

// Returns what the process holds already, which is mostly the program itself.
uint64_t ResidentBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return kSlack;
  unsigned long long total = 0, resident = 0;
  const int count = std::fscanf(file, "%llu %llu", &total, &resident);
  std::fclose(file);
  return count == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : kSlack;
}

absl::Status Validate(const ShuffleOptions& options) {
  const auto bad = [](std::string_view message) { return MakeError(Reason::kBadRequest, message); };
  if (options.inputs.empty()) return bad("no input is given");
  if (options.output.empty()) return bad("no output is given");
  if ((options.split_lines > 0) + (options.split_bytes > 0) + (options.split_files > 0) > 1) {
    return bad("give one of --split-lines, --split-bytes and --split-files");
  }
  if (options.split_files > 1'000'000) return bad("--split-files is above 1000000");
  CAIRN_RETURN_IF_ERROR(
      CheckIsLocal("--temp-dir", options.temp_dir, "the temporary file is written and read at random"));
  if (options.threads < 1) return bad("--threads must be at least 1");
  if (options.at.has_value() && options.resume) return bad("--at and --resume exclude each other");
  if (options.memory < kMinShuffleMemory) {
    return MakeError(
        Reason::kMemoryLimit,
        absl::StrCat("--memory is ", FormatSize(static_cast<int64_t>(options.memory)), "; a shuffle needs 32 MiB"));
  }
  return absl::OkStatus();
}

std::string DirectoryOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Returns the mean length of the first lines, for the plan.
uint64_t SampleLineBytes(const ShuffleJob& job) {
  AlignedBuffer buffer(kSampleBytes);
  uint64_t lines = 0, bytes = 0;
  int files = 0;
  for (const InputFile& input : job.inputs) {
    if (!input.rereadable || input.size == 0) continue;
    if (++files > 8) break;
    auto source = OpenSource(input.path, job.source);
    if (!source.ok()) continue;  // the pass will report the error
    const auto count = (*source)->Read(buffer.data(), buffer.size());
    if (!count.ok()) continue;
    lines += static_cast<uint64_t>(std::count(buffer.data(), buffer.data() + *count, job.options.separator));
    bytes += *count;
  }
  return lines == 0 ? std::max<uint64_t>(bytes, 64) : bytes / lines;
}

// Divides the memory that the budget leaves. `object_parts` is that of an output in an object store, else 0.
absl::Status Plan(ShuffleJob& job, int object_parts) {
  const bool compressed = std::any_of(job.inputs.begin(), job.inputs.end(),
                                      [](const InputFile& input) { return input.rereadable && !input.seekable; });
  const bool piped =
      std::any_of(job.inputs.begin(), job.inputs.end(), [](const InputFile& i) { return !i.rereadable; });
  const bool objects =
      std::any_of(job.inputs.begin(), job.inputs.end(), [](const InputFile& input) { return input.object; });
  uint64_t budget = job.options.memory + kSlack;
  uint64_t reserved = ResidentBytes() + kSmallThings;
  reserved += object_parts == 0 ? kOutputBuffers : kObjectPart * static_cast<uint64_t>(object_parts + 1);
  if (objects || object_parts > 0) reserved += kStoreMemory;
  int threads = job.options.threads;
  // Little memory allows few threads, because each costs stacks and buffers.
  threads = static_cast<int>(std::min<uint64_t>(threads, job.options.memory / (uint64_t{8} << 20)));
  if (job.options.compression != Compression::kNone) reserved += kFrameMemory * static_cast<uint64_t>(threads);
  if (compressed) {
    // A decompression window of 8 MiB for each reader is what the tools' usual levels need; it is larger where there is
    // room.
    threads = static_cast<int>(std::clamp<uint64_t>(job.options.memory / (uint64_t{32} << 20), 1, threads));
    const bool windows = std::any_of(job.inputs.begin(), job.inputs.end(), [](const InputFile& input) {
      return input.compression == Compression::kZstd || input.compression == Compression::kXz;
    });
    const uint64_t room =
        std::clamp<uint64_t>(job.options.memory / 8 / static_cast<uint64_t>(threads), 8 << 20, 128 << 20);
    const uint64_t window = windows ? room : 0;
    if (windows) job.source.max_window = window;
    reserved += (window + kDecoderMemory) * static_cast<uint64_t>(threads);
  }
  if (objects) {
    threads = static_cast<int>(std::clamp<uint64_t>(job.options.memory / (uint64_t{32} << 20), 1, threads));
    job.source.read_ahead =
        std::clamp<uint64_t>(job.options.memory / 8 / static_cast<uint64_t>(threads), 4 << 20, 32 << 20);
    reserved += job.source.read_ahead * static_cast<uint64_t>(threads);
  }
  if (reserved + kLeastRegion > budget) {
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat("--memory ", FormatSize(static_cast<int64_t>(job.options.memory)), " leaves ",
                                  "too little after buffers of ", FormatSize(static_cast<int64_t>(reserved)), "; give ",
                                  FormatSize(static_cast<int64_t>(reserved + kLeastRegion - kSlack)), " or more"));
  }
  MemoryPlanInput input;
  input.region_bytes = RoundUpToIo(std::min(budget - reserved, job.options.memory)) - kIoAlignment;
  input.threads = threads;
  for (const InputFile& file : job.inputs) {
    input.text_bytes += file.seekable || !file.rereadable ? file.size : file.size * kGuessedRatio;
  }
  if (piped) input.text_bytes = std::max<uint64_t>(input.text_bytes, 64 * input.region_bytes);
  job.progress->bytes_total = compressed || piped ? 0 : input.text_bytes;
  input.line_bytes = SampleLineBytes(job);
  job.plan = job.options.plan ? *job.options.plan : PlanMemory(input);
  if (compressed || piped) job.plan.fits = job.plan.fits && !piped;
  job.region = AlignedBuffer(std::max<size_t>(
      input.region_bytes, std::max(job.plan.sorters * job.plan.sorter_bytes,
                                   job.plan.readers * (2 * job.plan.read_block + job.plan.writer_bytes))));
  return absl::OkStatus();
}

// Returns all that decides the output's bytes. Another run with the same fingerprint may go on with this one's work.
std::string Fingerprint(const ShuffleJob& job, const std::string& header) {
  const ShuffleOptions& options = job.options;
  Digester digester;
  digester.Add("shuffle 1")
      .Add(options.seed)
      .Add(options.split_lines)
      .Add(options.split_bytes)
      .Add(options.split_files);
  digester.Add(static_cast<uint64_t>(options.compression)).Add(options.header_lines).Add(header);
  digester.Add(static_cast<uint64_t>(static_cast<unsigned char>(options.separator))).Add(options.range_bytes);
  digester.Add(fs::absolute(options.output).string());
  for (const std::string& column : options.columns) digester.Add(column);
  for (const InputFile& input : job.inputs) {
    digester.Add(input.object ? input.path : fs::absolute(input.path).string());
    digester.Add(input.size).Add(static_cast<uint64_t>(input.modified_ns));
    if (input.object) digester.Add(input.identity);
  }
  return DigestHex(digester.Finish());
}

// Returns whether `input` has, behind its links, the name of a part of `output`.
bool IsAPart(const std::string& output, const std::string& input) {
  if (const ObjectStores* const stores = StoresOf(output)) {
    const std::string part = StoresOf(input) == nullptr ? "" : stores->NameOf(input).value_or("");
    const size_t name = part.rfind('/') + 1;  // npos + 1 is 0
    return part.substr(0, name) == output.substr(0, output.rfind('/') + 1) && IsPartOf(output, part.substr(name));
  }
  std::error_code error;
  const fs::path file = fs::canonical(input, error);
  if (error || !fs::is_regular_file(file, error)) return false;
  return IsPartOf(output, file.filename().string()) && fs::equivalent(DirectoryOf(output), file.parent_path(), error);
}

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return OutputError("create", path, errno);
}

absl::Status RunResumable(ShuffleJob& job, ShuffleOutputOptions output_options, const std::string& header) {
  const std::string output = fs::absolute(job.options.output).lexically_normal().string();
  const std::string name = fs::path(output).filename().string();
  const std::string id = DigestHex(Digest(output)).substr(0, 12);
  const std::string state = absl::StrCat(job.options.temp_dir, "/.", name, ".", id, ".shuffle");
  output_options.partial_prefix = absl::StrCat(DirectoryOf(output), "/.", name, ".", id, ".partial");
  CAIRN_RETURN_IF_ERROR(MakeDirectory(state));
  const std::string journal_path = state + "/journal";
  CAIRN_ASSIGN_OR_RETURN(auto journal, Journal::Open(journal_path));
  const std::string fingerprint = Fingerprint(job, header);
  std::vector<nlohmann::json> entries = journal->TakeEntries();
  job.found.earlier = !entries.empty();
  const bool same = !entries.empty() && entries.front().value("fingerprint", "") == fingerprint;
  job.found.other = job.found.earlier && !same;
  if (!same) {
    // There is nothing to go on from, or only the work of other inputs or options.
    entries.assign(1, {{"kind", "begin"}, {"fingerprint", fingerprint}});
  }
  journal->Restore(std::move(entries));
  const std::string partial_prefix = output_options.partial_prefix;
  const absl::Status status = ShuffleThroughScratch(job, std::move(output_options), journal.get(), state);
  const auto remove_state = [&] {
    // The journal goes first: the next run removes files that are left without a journal.
    unlink(journal_path.c_str());
    unlink((state + "/scratch").c_str());
    rmdir(state.c_str());
  };
  if (!status.ok() && journal->entries() <= kEntriesWithoutWork) {
    remove_state();
    ShuffleOutputOptions left;
    left.partial_prefix = partial_prefix;
    ShuffleOutput::RemovePartials(left);
    return status;
  }
  if (HasReason(status, Reason::kNoSpace)) {
    // Other runs leave nothing, but here the partial files stay, and the same command goes on from them.
    return MakeError(Reason::kNoSpace, std::string(status.message()),
                     {{"file", MetadataOf(status)["file"]},
                      {"next", absl::StrCat("Free space and give the same command again, which goes on from what this "
                                            "run has kept in ",
                                            state, " and ", partial_prefix, ".*; or remove those.")}});
  }
  CAIRN_RETURN_IF_ERROR(status);
  remove_state();  // the output is whole
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OutputPlace> FindShuffleOutput(const ShuffleOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(OutputPlace place, FindOutputPlace(options.output));
  const bool splits = options.Splits();
  if (place.stream && (splits || options.resume)) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat(place.path, " is a stream, which ",
                     splits ? "has no parts" : "cannot be gone on with after an interruption"),
        {{"next", absl::StrCat("Give --output a file's name, or leave ", splits ? "the split" : "--resume", " out.")}});
  }
  if (options.at.has_value() && (place.stream || place.object)) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--at is for a file that stands, which ", place.path, " is not"),
                     {{"file", place.path}, {"next", "Leave --at out."}});
  }
  if (place.object && options.resume) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(place.path, " is in an object store, where no hidden file can be gone on with"),
                     {{"file", place.path}, {"next", "Leave --resume out, or give --output a path of this machine."}});
  }
  // The parts' names are made of the one that was given, whatever stands there.
  if (splits && !place.object) place.path = options.output;
  return place;
}

absl::Status CheckOutputIsNoInput(const ShuffleOptions& options, const OutputPlace& place,
                                  const std::vector<InputFile>& inputs) {
  if (place.stream) return absl::OkStatus();
  const bool splits = options.Splits();
  for (const InputFile& input : inputs) {
    if (splits ? !IsAPart(place.path, input.path) : CheckIsNoInput(place.path, input.path).ok()) continue;
    return MakeError(Reason::kBadRequest,
                     splits ? absl::StrCat("the input ", input.path, " has the name of a part of the output ",
                                           options.output, ", so it is among the inputs")
                            : absl::StrCat("the output ", options.output, " is among the inputs"),
                     {{"file", input.path},
                      {"next", absl::StrCat("Give --output another name, outside of the inputs' directory; if ",
                                            input.path, " is an earlier output and no input, move it out first.")}});
  }
  return absl::OkStatus();
}

SourceOptions SourceOptionsFor(const ShuffleOptions& options, const std::atomic<bool>& stop) {
  SourceOptions source;
  source.direct = options.direct;
  source.stop = &stop;
  source.columns = options.columns;
  return source;
}

ShuffleOutputOptions OutputOptionsFor(const ShuffleOptions& options, const OutputPlace& place,
                                      const std::string& header, const std::atomic<bool>& stop) {
  ShuffleOutputOptions output;
  output.path = place.path;
  output.stream = place.stream;
  output.object = place.object;
  output.at = options.at;
  output.object_parts = static_cast<int>(std::clamp<uint64_t>(options.memory / (uint64_t{64} << 20), 1, 4));
  output.split_lines = options.split_lines;
  output.split_bytes = options.split_bytes;
  output.split_files = options.split_files;
  output.compression = options.compression;
  output.threads = static_cast<int>(std::clamp<uint64_t>(options.memory / (uint64_t{8} << 20), 1, options.threads));
  output.separator = options.separator;
  output.header = header;
  output.direct = options.direct;
  output.stop = &stop;
  return output;
}

absl::StatusOr<ShuffleReport> Shuffle(const ShuffleOptions& options, const std::atomic<bool>& stop,
                                      ShuffleProgress* progress) {
  CAIRN_RETURN_IF_ERROR(Validate(options));
  ShuffleProgress unseen;
  ShuffleJob job;
  job.options = options;
  job.stop = &stop;
  job.progress = progress != nullptr ? progress : &unseen;
  job.source = SourceOptionsFor(options, stop);
  job.source.table_readers = TableReadersFor(options.threads);
  CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, FindShuffleOutput(options));
  job.options.output = place.path;
  if (options.temp_dir.empty()) job.options.temp_dir = ScratchDirectoryFor(place.path);

  CAIRN_ASSIGN_OR_RETURN(job.inputs, ListInputs(options.inputs));
  CAIRN_RETURN_IF_ERROR(CheckOutputIsNoInput(options, place, job.inputs));
  CAIRN_RETURN_IF_ERROR(CheckColumns(job.inputs, options.columns));
  for (const InputFile& input : job.inputs) {
    if (input.rereadable) continue;
    const std::string_view flag = options.no_scratch ? "--no-scratch" : options.resume ? "--resume" : "";
    if (!flag.empty()) {
      return MakeError(Reason::kBadRequest, absl::StrCat(std::string(flag), " needs inputs that can be read again; ",
                                                         input.path, " is a pipe"));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string header,
                         ReadHeaders(job.inputs, options.header_lines, options.separator, job.source));
  job.ranges = DivideInputs(job.inputs, options.range_bytes);
  job.report.input_files = job.inputs.size();
  ShuffleOutputOptions output = OutputOptionsFor(options, place, header, stop);
  CAIRN_RETURN_IF_ERROR(Plan(job, place.object ? output.object_parts : 0));

  if (options.begins) options.begins();
  MadeDirectory directory;
  if (!place.stream) {
    CAIRN_ASSIGN_OR_RETURN(directory, MadeDirectory::Of(place.path));
  }
  if (options.no_scratch || (job.plan.fits && !options.plan && !options.resume)) {
    CAIRN_RETURN_IF_ERROR(ShuffleByRereading(job, std::move(output)));
  } else if (options.resume) {
    CAIRN_RETURN_IF_ERROR(RunResumable(job, std::move(output), header));
  } else {
    CAIRN_RETURN_IF_ERROR(ShuffleThroughScratch(job, std::move(output), nullptr, ""));
  }
  return std::move(job.report);
}

}  // namespace cairn::corpus
